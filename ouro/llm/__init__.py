"""How to ask a model."""
