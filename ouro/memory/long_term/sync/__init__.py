"""Memory on several machines."""
