"""Whose words are in memory: what was written, by whom, and what waits for the person."""
