"""One git repository per scope: its files, commits, history and undo, safe from what a program plants there."""
