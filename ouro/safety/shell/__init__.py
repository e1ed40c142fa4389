"""Shell lines: parsed, classified, and matched with the permission rules."""
