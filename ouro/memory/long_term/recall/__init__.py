"""Recall: which notes bear on what was just said."""
