"""What outlives a session: core files and notes, each scope in a git history of its own."""
