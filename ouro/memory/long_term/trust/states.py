"""The states of a change of memory, as data: (state, event) → (state, effects).

`ScopeMemory` finds out which event happened, `ChangeEffects` carries out the effects.
docs/architecture.md shows this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

State = Literal["written", "trusted", "pending", "foreign", "refused", "dropped"]
"""Only trusted text is sent to the model. `written`: nothing is decided yet."""
ChangeEvent = Literal[
    "tool ended, in words of the user",
    "turn ended, holds a secret",
    "turn ended, the user must confirm it",
    "turn ended, in words of the user",
    "written for the user, beside foreign text",
    "proposed, in no file",
    "found, only the user can have written it",
    "found, another may have written it",
    "found, approved before ouro was killed",
    "accepted",
    "rejected",
    "undone",
]
TURN_EVENTS: tuple[ChangeEvent, ...] = (
    "turn ended, holds a secret",
    "turn ended, in words of the user",
    "turn ended, the user must confirm it",
)
"""In the order in which they are carried out."""
Effect = Literal[
    "approve the files",
    "commit the files",
    "restore the files",
    "write the lines",
    "commit the lines",
    "record the lines",
    "withdraw the lines",
    "revert the commit",
    "store the proposal",
    "drop the proposal",
]
"""`the files`: as they are, with all that is in them. `the lines`: of this change only; what others
wrote into the same files stays as it is.
"""


class Transition(msgspec.Struct, frozen=True):
    """What an event does to a change in some state."""

    state: State
    effects: tuple[Effect, ...] = ()
    """In the order in which they happen: a kill in between loses nothing."""


TRANSITIONS: Mapping[tuple[State, ChangeEvent], Transition] = {
    ("written", "tool ended, in words of the user"): Transition("written", ("approve the files",)),
    ("written", "turn ended, holds a secret"): Transition("refused", ("withdraw the lines",)),
    ("written", "turn ended, the user must confirm it"): Transition(
        "pending", ("store the proposal", "record the lines", "withdraw the lines")
    ),
    ("written", "turn ended, in words of the user"): Transition("trusted", ("commit the lines",)),
    ("written", "written for the user, beside foreign text"): Transition(
        "trusted", ("write the lines", "commit the lines")
    ),
    ("written", "proposed, in no file"): Transition("pending", ("store the proposal",)),
    ("written", "found, only the user can have written it"): Transition(
        "trusted", ("approve the files", "commit the files")
    ),
    ("written", "found, another may have written it"): Transition("foreign"),
    ("written", "found, approved before ouro was killed"): Transition(
        "trusted", ("commit the files",)
    ),
    ("pending", "accepted"): Transition(
        "trusted", ("write the lines", "commit the lines", "drop the proposal")
    ),
    ("pending", "rejected"): Transition("dropped", ("drop the proposal",)),
    ("foreign", "accepted"): Transition("trusted", ("approve the files", "commit the files")),
    ("foreign", "rejected"): Transition("dropped", ("commit the files", "restore the files")),
    ("trusted", "undone"): Transition("dropped", ("revert the commit",)),
}
"""What an event does to a change; what is not here cannot happen in that state."""
