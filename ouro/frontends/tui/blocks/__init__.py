"""The blocks of a transcript, which draw themselves as lines."""
