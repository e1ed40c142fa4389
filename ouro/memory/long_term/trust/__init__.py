"""Whose words are in memory: approval of changes, provenance of words, pending changes."""
