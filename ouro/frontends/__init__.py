"""Front ends: full screen, plain prompt and headless; all read the same events."""
