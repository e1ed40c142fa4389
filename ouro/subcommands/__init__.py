"""What `ouro WORD` does without a conversation: one subcommand a file."""
