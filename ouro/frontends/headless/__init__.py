"""Headless: runs without a user; prints text, JSON or streamed JSON."""
