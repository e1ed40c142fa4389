"""Actions: what users run as a slash command or as `ouro WORD`."""
