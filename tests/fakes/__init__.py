"""Small, scriptable stand-ins for models, editors, terminals and other programs."""
