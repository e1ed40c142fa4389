"""ACP: ouro as the agent of an editor, over the Agent Client Protocol on standard input and output."""
