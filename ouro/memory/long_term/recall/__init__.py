"""Recall: find the notes relevant to a message."""
