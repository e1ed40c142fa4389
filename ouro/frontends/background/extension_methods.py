"""The methods that ouro adds to the protocol, for a host and its viewers."""

from __future__ import annotations

META = "ouro"
"""The key of ouro's own data in `_meta` of the protocol."""
EVENTS = "ouro/event"
SNAPSHOT = "ouro/snapshot"
STATE = "ouro/state"
TURN = "ouro/turn"
SHOWN = "ouro/shown"
ENDED = "ouro/ended"
"""Notifications of the host to a viewer of ouro."""
REFUSED = "ouro/refused"
"""A notification that a HostConnection makes itself: the host has refused a request of `send`, or has
ended before it answered. Its parameters are the `message` of the error, and the `text` of `send`.
"""
ANSWER = "ouro/answer"
SEND = "ouro/send"
WITHDRAW = "ouro/withdraw"
CHANGE = "ouro/change"
MOVE_COMMAND = "ouro/move_command"
"""Requests of a viewer of ouro; the others are those of the protocol. `extension_method` makes the
method that is sent.
"""


def extension_method(name: str) -> str:
    """The name by which a request of ouro is sent. The protocol demands an underscore before
    methods that it does not define itself.
    """
    return f"_{name}"
