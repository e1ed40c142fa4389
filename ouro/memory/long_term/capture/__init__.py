"""Capture: what of a conversation becomes notes, by a model that is asked beside it."""
