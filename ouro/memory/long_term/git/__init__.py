"""One git repository per scope: files, commits, history, undo; safe against planted git settings."""
