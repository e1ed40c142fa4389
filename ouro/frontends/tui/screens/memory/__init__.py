"""The screens of long-term memory: browser (contents, pages, widgets) and receipt."""
