"""The tools of the agent, one per module."""
