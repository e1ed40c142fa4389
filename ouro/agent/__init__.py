"""The agent: ask the model, run its tools, and repeat until it answers."""
