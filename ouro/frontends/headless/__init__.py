"""Without anybody at the keys: text, JSON and streamed JSON."""
