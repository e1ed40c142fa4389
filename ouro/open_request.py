"""OpenRequest: which session a front end asks for. Apart from the session: a screen is drawn before that is loaded."""

from __future__ import annotations

from typing import Literal

import msgspec


class OpenRequest(msgspec.Struct, frozen=True):
    """Which session a front end asks for."""

    resume: str = ""
    """Empty: a new one. Else an id, the start of one, words of a title, or `latest`."""
    trust: Literal["unknown", "yes", "no"] = "unknown"
    """What the person said of the folder: `yes` is remembered, `no` opens it without obeying its files."""
