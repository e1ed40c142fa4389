"""The widgets of the screen, one in each file."""
