"""Ask the model, run its tools, again, until it answers."""
