"""Notes: file format, notebook, entities, graph, and validity by files, branch and time."""
