"""Capture: a model makes notes of a session in the background."""
