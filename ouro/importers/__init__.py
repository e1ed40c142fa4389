"""Sessions that another program kept, taken over as our own."""
