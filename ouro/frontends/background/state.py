"""SessionState: what a background session tells about itself."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ouro import events
from ouro.display import Todo
from ouro.frontends.background.event_codec import decode
from ouro.session import Status
from ouro.utils.decoding import from_plain
from ouro.utils.text import one_line

Activity = Literal["working", "waiting", "idle"]


class TurnState(msgspec.Struct, frozen=True):
    """What runs in the session, and the messages that wait for it."""

    is_running: bool = False
    """Whether a turn or a shell line runs, maybe behind a question."""
    seconds: float = 0.0
    waiting: tuple[str, ...] = ()
    """The messages that wait for the agent."""
    steering: int = 0
    """How many of the messages in `waiting`, from the first one, steer the running turn."""
    todos: tuple[Todo, ...] = ()


class SessionState(msgspec.Struct, frozen=True):
    """What a host sends about its session, for lists and for attached screens."""

    id: str
    pid: int
    cwd: str
    started_at: str
    title: str
    activity: Activity
    seconds: float
    """How long it is in this state."""
    last_line: str
    """The last line of the answer, the running call, or why the last turn failed."""
    viewers: int
    status: Status
    turn: TurnState = TurnState()
    questions: tuple[dict[str, Any], ...] = ()
    """The open questions as events, the oldest first."""

    @property
    def question(self) -> events.PermissionAsked | events.QuestionAsked | None:
        """The oldest open question; None if there is none."""
        event = decode(self.questions[0]) if self.questions else None
        if isinstance(event, events.PermissionAsked | events.QuestionAsked):
            return event
        return None

    @property
    def question_line(self) -> str:
        """The oldest open question in one line; empty if there is none."""
        match self.question:
            case events.PermissionAsked(title=title):
                return one_line(title)
            case events.QuestionAsked(question=question):
                return one_line(question.text)
            case _:
                return ""


def state_from(data: Any) -> SessionState:
    """The state from its JSON. Raises msgspec.ValidationError if it is not one."""
    return from_plain(data, SessionState)
