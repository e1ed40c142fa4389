"""The search index of sessions and memory in SQLite: words, vectors, entities."""
