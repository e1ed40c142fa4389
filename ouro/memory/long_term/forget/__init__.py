"""True forget: remove a text from everything that ouro stores."""
