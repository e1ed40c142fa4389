"""What ouro can do: one tool a file."""
