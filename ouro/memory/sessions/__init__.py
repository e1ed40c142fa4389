"""Session files: bytes, reader, index, catalog, repair, usage."""
