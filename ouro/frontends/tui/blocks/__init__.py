"""What a transcript is made of: blocks that draw themselves as lines."""
