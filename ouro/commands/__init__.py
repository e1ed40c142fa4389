"""The slash commands: one function each, its docstring its help."""
