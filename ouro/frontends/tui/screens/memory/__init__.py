"""The screens of long-term memory: browser and receipt."""
