"""Helpers without knowledge of the agent: files, text, git, YAML, logs."""
