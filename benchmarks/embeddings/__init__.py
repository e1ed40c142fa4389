"""Embedding models for the search: quality, languages, CPU, memory."""
