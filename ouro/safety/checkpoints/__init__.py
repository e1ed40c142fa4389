"""Checkpoints: the files that turns changed, to undo and redo it."""
