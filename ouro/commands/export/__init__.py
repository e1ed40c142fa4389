"""Sessions written out for others: Markdown and HTML to be read, JSON to be taken over again."""
