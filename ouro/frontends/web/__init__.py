"""Sessions in a browser: a page for the phone, and the full screen."""
