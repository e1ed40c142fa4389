"""What people see: each reads the same events."""
