"""What ouro remembers."""
