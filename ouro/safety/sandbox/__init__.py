"""Sandboxes of the operating system for commands: the strongest tier that works here, and its
policies.
"""
