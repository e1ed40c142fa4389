"""The ground: folders, text files, logs."""
