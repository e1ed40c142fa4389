"""Events: a turn as a stream of plain values, the same for every front end.

A turn is  Prompted  then any number of model calls, each
  (TextDelta | ThinkingDelta | Retrying)*  Replied  UsageUpdated
  (ToolStarted+  (PermissionAsked  QuestionClosed)*  ToolRunning?
   (QuestionAsked  QuestionClosed | ToolProgress)*  ToolFinished)*
with Notice, Compacting, Compacted, CoreChanged and Prompted (a steering message) between them, NotesRecalled behind a
Prompted, and TurnFinished last, exactly once. Titled, NoteKept and CoreChanged come outside of turns too, from
`session.events()`, and so does what a subagent in the background does and asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from ouro.display import CommandOutput, Display, Question, Todo
from ouro.messages import Image, Message, ToolCall, Usage
from ouro.utils.text import dollars, plural

Level = Literal["info", "warning", "error"]
Outcome = Literal["answered", "cut", "interrupted", "failed", "unauthorized", "limit", "refused"]


class EventStruct(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    tag=lambda name: re.sub("(?<!^)(?=[A-Z])", "_", name).lower(),
):
    """An event; in JSON its `type` is the name of its class, in small letters with underscores."""


class Prompted(EventStruct, frozen=True):
    """A user message entered the transcript: the first of the turn, or one that steers it."""

    text: str
    images: tuple[Image, ...] = ()


class TextDelta(EventStruct, frozen=True):
    """A piece of the answer, as the model writes it."""

    text: str


class ThinkingDelta(EventStruct, frozen=True):
    """A piece of the reasoning of the model."""

    text: str


class Replied(EventStruct, frozen=True):
    """A model call ended, and its message is in the transcript. If `message.cut` is set, the answer
    is incomplete.
    """

    message: Message


class ToolStarted(EventStruct, frozen=True):
    """A tool call begins; `title` describes it in a few words (`read api.py`). If a hook changes
    it, it is repeated.

    It may still wait for a permission, and be refused: ToolRunning follows when it runs.
    """

    call: ToolCall
    title: str


class ToolRunning(EventStruct, frozen=True):
    """A tool call is permitted, and runs from now on."""

    call_id: str


class ToolProgress(EventStruct, frozen=True):
    """Output of a tool call that still runs."""

    call_id: str
    text: str


class ToolFinished(EventStruct, frozen=True):
    """A tool call has ended, with this result for the user."""

    call_id: str
    name: str
    display: Display
    failed: bool
    seconds: float


def _without_quotes(line: str) -> str:
    """A shell line without its quotes and with single blanks, to compare two spellings of it."""
    return " ".join(re.sub(r"[\"']", "", line).split())


class PermissionAsked(EventStruct, frozen=True):
    """A call waits for the user. `session.answer(question_id, Permit(…))` answers it."""

    question_id: str
    call: ToolCall
    title: str
    display: Display
    """The whole command or the diff, as it would be carried out."""
    reason: str
    """The reason for the question."""
    rule: str
    """The rule that "session" and "always" add, such as `shell(git push *)`; empty if there is
    none.
    """
    of_turn: bool = True
    """If false, a background subagent asks, and the question stays open when a turn ends."""
    edits: bool = False
    """Whether the call is an edit that the mode `edit` would allow."""

    @property
    def shown_reason(self) -> str:
        """The reason for the user: without a command that the question shows already."""
        body = self.display.body
        if not isinstance(body, CommandOutput):
            return self.reason
        # The rules name the command as the reason if nothing else in the line needs the question.
        repeated = _without_quotes(f"it runs {body.command}")
        return "no rule allows it" if _without_quotes(self.reason) == repeated else self.reason

    @property
    def choices(self) -> tuple[PermitChoice, ...]:
        """The possible answers, in the order in which they are offered. For an edit, the mode
        `edit` is offered instead of the rule for the session. `stop` ends the turn: it is not
        offered for a background subagent, which does not belong to the turn.
        """
        choices: list[PermitChoice] = ["yes"]
        if self.edits:
            choices.append("edits")
        elif self.rule:
            choices.append("session")
        if self.rule:
            choices.append("always")
        if self.of_turn:
            choices.append("stop")
        return (*choices, "no")


class QuestionAsked(EventStruct, frozen=True):
    """The agent asks the user something; answered by `session.answer(question_id, Reply(…))`."""

    question_id: str
    question: Question
    of_turn: bool = True
    """If false, it does not belong to a turn, and stays open when a turn ends."""


PLAN_QUESTION = "plan:"
"""The ids of the questions about a plan begin with it: the last choice keeps planning, and `3: text`
comments on line 3.
"""


class QuestionClosed(EventStruct, frozen=True):
    """A permission or question no longer waits: answered, or the turn was interrupted."""

    question_id: str


class TodosChanged(EventStruct, frozen=True):
    """The agent's plan, whole."""

    todos: tuple[Todo, ...]


SubagentState = Literal[
    "running", "thinking", "answering", "waiting", "done", "limit", "failed", "stopped"
]


class SubagentProgress(EventStruct, frozen=True):
    """A subagent began, did something, or ended."""

    call_id: str
    """The call that started it."""
    id: str
    """`explore-1`."""
    task: str
    """The task in a few words."""
    state: SubagentState
    activity: str
    """What it does now; at the end, why its task was not done."""
    calls: int
    """The number of its tool calls so far."""
    usage: Usage
    background: bool = False

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "thinking", "answering", "waiting")

    @property
    def figures(self) -> str:
        """`$0.0213, 12 tool calls, 34k tokens`: what comes last is cut in a narrow terminal."""
        tokens = self.usage.input + self.usage.output
        size = f"{tokens / 1000:.0f}k" if tokens >= 10_000 else f"{tokens:,}"
        cost = "" if self.usage.cost is None else f"{dollars(self.usage.cost)}, "
        return f"{cost}{plural(self.calls, 'tool call')}, {size} tokens"


class Retrying(EventStruct, frozen=True):
    """A model call failed and is asked again after `wait` seconds; discard what it had streamed."""

    reason: str
    attempt: int
    wait: float
    model: str
    max_waited: float = 0.0
    """Seconds of waiting after which ouro gives up; 0: it counts only the attempts."""


class UsageUpdated(EventStruct, frozen=True):
    """What the session has used so far, and how full the model's window is (tokens)."""

    session: Usage
    context: int
    window: int


class Compacting(EventStruct, frozen=True):
    """A summary is being written; emitted again as it grows. Compacted or Notice ends it."""

    written: int = 0
    """The number of characters so far."""
    part: int = 1
    """The part that is summarized now: a text longer than the model's window is summarized in
    parts.
    """
    parts: int = 1


class Compacted(EventStruct, frozen=True):
    """What is sent to the model was made smaller; the receipt. The session keeps every message."""

    before: int
    """Tokens of the next request before and after the compaction."""
    after: int
    covered: int
    """Messages that the summary replaces."""
    kept: int
    """The number of these messages that are still sent word for word."""
    dropped: int
    """Tool outputs that are left out of what is sent."""
    summary: str
    """The summary; empty if no model could summarize and outputs were dropped instead."""
    usage: Usage | None = None


class Titled(EventStruct, frozen=True):
    title: str


class RecalledNote(msgspec.Struct, frozen=True):
    """A note, or a command that ran before: whether it was sent with a message, and why."""

    id: str
    text: str
    state: Literal["loaded", "cut", "skipped"]
    reason: str
    scope: str = ""
    score: float = 0.0
    tokens: int = 0
    chain: int = 1
    """The number of its versions."""


class NotesRecalled(EventStruct, frozen=True):
    """The receipt of recall: notes that were sent to the model with the last message, or with the
    results of tools.
    """

    items: tuple[RecalledNote, ...]
    way: str
    """`local`, `hyde`, `touch`: notes about files that tools have used; `timeout`: the message went
    without notes, because the search took too long; `late`: its notes came with a tool result;
    `other project`: what another project knows, which is shown and not sent.
    """
    milliseconds: float = 0.0


class NoteKept(EventStruct, frozen=True):
    """Capture has changed a note; `session.session_memory.manager.undo(undo)` undoes it."""

    operation: Literal[
        "add",
        "supersede",
        "refine",
        "contradict",
        "confirm",
        "rewrite",
        "archive",
        "share",
        "describe",
        "propose",
    ]
    note_id: str
    text: str
    scope: str
    category: str
    undo: str = ""
    """The commit that holds the change; empty for a proposal, which waits for `accept`."""
    session: str = ""
    """The id of the earlier session in which this was said; empty: the present one."""


class CoreChanged(EventStruct, frozen=True):
    """Long-term memory changed; `session.session_memory.manager.undo(undo)` undoes it."""

    scope: str
    origin: Literal["agent", "person", "outside", "sync", "consolidation", "import", "undo"]
    """`outside`: an editor, another session, a pull."""
    summary: str
    """The change in one line: `preferences.md: + Answer in German`."""
    display: Display
    """The diff."""
    undo: str = ""
    """The commit that holds the change."""
    proposal: str = ""
    """Set if the change waits for approval: `session.session_memory.manager.accept(proposal)` or
    `reject(proposal)`.
    """


class Notice(EventStruct, frozen=True, tag="said"):
    """A message of ouro to the user: a save that failed, a limit near, a record set aside."""

    text: str
    level: Level = "info"


class TurnFinished(EventStruct, frozen=True):
    """The turn is over; `detail` says why it was not answered."""

    outcome: Outcome
    detail: str = ""


Event = (
    Prompted
    | TextDelta
    | ThinkingDelta
    | Replied
    | ToolStarted
    | ToolRunning
    | ToolProgress
    | ToolFinished
    | PermissionAsked
    | QuestionAsked
    | QuestionClosed
    | TodosChanged
    | SubagentProgress
    | Retrying
    | UsageUpdated
    | Compacting
    | Compacted
    | Titled
    | NotesRecalled
    | NoteKept
    | CoreChanged
    | Notice
    | TurnFinished
)


PermitChoice = Literal["yes", "session", "edits", "always", "stop", "no"]
"""`yes`: once; `session`: the offered rule holds until the process ends; `edits`: the session
changes to the mode `edit`; `always`: saves the rule for the folder; `stop`: no, and the turn ends;
`no`: no, and the agent continues without it.
"""


class Permit(msgspec.Struct, frozen=True):
    """The user's answer to a permission question."""

    choice: PermitChoice
    comment: str = ""
    """A comment that is sent to the model with the answer: the reason, or what to pay attention to.
    """


class Reply(msgspec.Struct, frozen=True):
    """The user's answer to a question of the agent; empty if it was dismissed."""

    answers: tuple[str, ...] = ()


UserAnswer = Permit | Reply
Emit = Callable[[Event], None]
"""Receives the events of a turn at the time when they happen."""
