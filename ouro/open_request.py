"""OpenRequest: which session a front end asks for. Apart from the session: a screen is drawn before that is loaded."""

from __future__ import annotations

from typing import Literal

import msgspec

PICK = "?"
"""In place of a session: the person picks one first."""
Part = Literal["full", "tail", "summary"]
"""What of an earlier conversation the model is sent: all that it had, its last turns, or a summary made first."""


class OpenRequest(msgspec.Struct, frozen=True):
    """Which session a front end asks for."""

    resume: str = ""
    """Empty: a new one. Else an id, the start of one, words of a title or of what was said, `latest`, or `PICK`."""
    fork: bool = False
    """Go on in a copy: the session itself stays as it is."""
    read_only: bool = False
    """Nothing is saved; so a session that another process has open can be looked at."""
    message: int = 0
    """The number of the message to be shown first; 0: the end of the conversation."""
    part: Part = "full"
    trust: Literal["unknown", "yes", "no"] = "unknown"
    """What the person said of the folder: `yes` is remembered, `no` opens it without obeying its files."""
