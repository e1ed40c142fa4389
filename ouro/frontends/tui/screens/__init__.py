"""Screens and sheets that cover the whole screen."""
