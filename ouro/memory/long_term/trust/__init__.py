"""Trust: provenance of text in memory, approval of changes, pending changes."""
