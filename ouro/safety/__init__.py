"""What may run, where it may reach, and how to take it back."""
