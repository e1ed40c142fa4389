"""What actions show, printed as Markdown, text or JSON."""
