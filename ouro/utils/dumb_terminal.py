"""Whether the environment says that nothing may be redrawn on the terminal."""

from __future__ import annotations

import os


def no_drawing_reason() -> str:
    """Why nothing is redrawn: the terminal cannot, or the user has set ACCESSIBLE, which several
    programs read, because a screen reader reads each redrawn line again. Empty if it is drawn.
    """
    term = os.environ.get("TERM", "")
    if term in ("", "dumb"):
        return f"TERM is {term or 'not set'}"
    if os.environ.get("ACCESSIBLE", "").lower() not in ("", "0", "false"):
        return "ACCESSIBLE is set"
    return ""
