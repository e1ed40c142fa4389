"""True forget: out of everything that ouro keeps."""
