"""The shadow of sessions and memory in SQLite, and what is asked of it: words, meaning, entities."""
