"""What the screen is made of: one widget a file."""
