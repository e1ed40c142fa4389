"""Views: what actions show, as Markdown, text or JSON."""
