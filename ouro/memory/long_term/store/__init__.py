"""How a scope is kept: its files as the truth, git as their history, and what of it is vouched for."""
