"""The plain prompt, in the terminal's own scrollback."""
