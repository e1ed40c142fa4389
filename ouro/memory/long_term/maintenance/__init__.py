"""Growing old well: notes that say the same made one, and what lasts drawn out of old sessions."""
