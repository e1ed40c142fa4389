"""ouro: a terminal coding agent that remembers."""

__version__ = "0.1.0"
