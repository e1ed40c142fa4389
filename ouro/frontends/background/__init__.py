"""Sessions that run in a process of their own: their host, and those who look at it."""
