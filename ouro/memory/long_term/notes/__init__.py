"""Notes: what one is, all there are, and what they hang on: names, files, branches, time."""
