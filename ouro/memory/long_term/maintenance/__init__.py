"""Maintenance: summaries of sessions, merging of notes, notes of old sessions."""
