"""What tests use in place of the world: small, real, scriptable."""
