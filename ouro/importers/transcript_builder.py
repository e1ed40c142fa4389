"""TranscriptBuilder: makes the records of a session from the messages of another program."""

from __future__ import annotations

import itertools
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain, Todo, Todos, TodoState
from ouro.importers.foreign_values import parse_time, short_text
from ouro.memory.backend import (
    CompactionRecord,
    CompactionTrigger,
    MessageRecord,
    ModelRecord,
    Record,
    RewindRecord,
    SessionHeader,
    TitleRecord,
)
from ouro.memory.transcript import make_title
from ouro.messages import Image, Message, Part, ToolCall, ToolReply
from ouro.utils.lenient_json import dictionaries

Program = Literal["claude-code", "codex", "ouro-old", "json"]
PROGRAM_NAMES: Mapping[str, str] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "ouro-old": "an older ouro",
    "json": "an export",
}
_LOWER_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_NAMESPACE = uuid.UUID("6f75726f-0000-5000-8000-696d706f7274")
"""The namespace of the session ids that are derived from foreign ids."""


class ForeignSession(msgspec.Struct, frozen=True):
    """A session of another program as records of ouro."""

    header: SessionHeader
    records: tuple[Record, ...]
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What was not imported -> how often: `lines that cannot be read`, `messages of sub-agents`."""


def is_session_id(text: str) -> bool:
    """Whether a text has the form of a session id of ouro."""
    return _LOWER_UUID.fullmatch(text) is not None


def session_id_for(program: Program, original: str) -> str:
    """The id in ouro of a session of another program: the original id in lower case if it is a
    UUID, else an id derived from it, which is always the same.
    """
    if is_session_id(original.lower()):
        return original.lower()
    # uuid5 accepts no surrogates, which a damaged id may have.
    name = f"{program}:{original}".encode("utf-8", "replace").decode()
    return str(uuid.uuid5(_ID_NAMESPACE, name))


_TODO_STATES: Mapping[str, TodoState] = {
    "completed": "done",
    "done": "done",
    "in_progress": "in_progress",
}
"""The state of an item in other programs -> in ouro; any other state is pending."""


class TranscriptBuilder:
    """Makes the records of a session from the messages of another program, in their order.

    If the input only grows at its end, the records only grow at their end, too: a later import adds
    records. Most methods take `at`, a time in the format of records; empty: that of the message
    before.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.project = self.git_branch = self.created = ""
        self.left_out: Counter[str] = Counter()
        """What was not imported -> how often."""
        self.last_at = ""
        """The time of the last record."""
        self.branch: list[int] = []
        """The numbers of the messages on the current branch."""
        self.prompts: list[int] = []
        """The numbers of these messages that the user wrote."""
        self.calls: dict[str, ToolCall] = {}
        """The tool calls that were added, by id."""
        self._record_index: dict[int, int] = {}
        """The number of a message -> its index in `records`."""
        self._numbers = itertools.count(1)
        self._first_model = self._model = self._title = ""

    def add(self, message: Message, at: str) -> int:
        """Add a message at the end of the branch; returns its number. If its model is another one than
        before, a record of the new model is added first.
        """
        if message.model and message.model != self._model:
            self._model = message.model
            if not self._first_model:
                self._first_model = message.model  # it is in the header of the session
            elif self.records:
                self.records.append(ModelRecord(message.model, self._time(at)))
        self._add_calls(message.parts)
        number = next(self._numbers)
        self._record_index[number] = len(self.records)
        self.records.append(MessageRecord(number, self._time(at), message))
        self.branch.append(number)
        return number

    def add_prompt(self, parts: Sequence[Part], at: str) -> int:
        """Add a message that the user wrote; returns its number."""
        number = self.add(Message("user", tuple(parts)), at)
        self.prompts.append(number)
        return number

    def message(self, number: int) -> Message:
        """The message with this number."""
        record = self.records[self._record_index[number]]
        assert isinstance(record, MessageRecord)
        return record.message

    def replace_message(self, number: int, message: Message) -> None:
        index = self._record_index[number]
        self.records[index] = replace(self.records[index], message=message)

    def extend(self, number: int, parts: Sequence[Part]) -> None:
        """Add parts to the message with this number."""
        message = self.message(number)
        self._add_calls(parts)
        self.replace_message(number, replace(message, parts=(*message.parts, *parts)))

    def make_reply(
        self,
        call_id: str,
        text: str,
        *,
        name: str = "unknown",
        failed: bool = False,
        images: tuple[Image, ...] = (),
        exit_code: int | None = None,
    ) -> ToolReply:
        """Make a tool result, with a display made from its call. `name`: the tool, if no call with this
        id was added.
        """
        call = self.calls.get(call_id, ToolCall(call_id, name, arguments={}))
        display = display_for(call, text, exit_code)
        return ToolReply(call_id, call.name, text, failed=failed, images=images, display=display)

    def rewind(self, to: int, at: str) -> None:
        """Continue the session after the message with the number `to`; 0: from its start."""
        self.branch = [number for number in self.branch if number <= to]
        self.prompts = [number for number in self.prompts if number <= to]
        self.records.append(RewindRecord(to, self._time(at)))

    def compact(
        self,
        summary: str,
        at: str,
        trigger: CompactionTrigger = "auto",
        tokens: tuple[int, int] = (0, 0),
        kept: Sequence[int] = (),
    ) -> None:
        """Replace the messages of the branch with a summary, except those whose numbers are in `kept`.
        Nothing happens if there are no messages or the summary is empty.
        """
        if not self.branch or not summary.strip():
            return
        record = CompactionRecord(
            number=next(self._numbers),
            at=self._time(at),
            covers=(self.branch[0], self.branch[-1]),
            kept=tuple(number for number in kept if number in self._record_index),
            summary=summary,
            trigger=trigger,
            tokens=tokens,
        )
        self.records.append(record)

    def set_title(self, title: str) -> None:
        """Set the title of the session. The last title that is not empty counts."""
        self._title = make_title(title) or self._title

    def finish(self, program: Program, original: str, path: Path) -> ForeignSession:
        """The session, with its title as the last record. Without a title it gets one from the
        first text of the user.

        `original`: the id of the session in the other program.
        """
        time_of_first = self.records[0].at if self.records else ""
        created = self.created or time_of_first or parse_time(value=0)
        origin = {"from": program, "id": short_text(original), "file": str(path)}
        if self.git_branch:
            origin["branch"] = self.git_branch
        header = SessionHeader(
            id=session_id_for(program, original),
            project=self.project,
            model=self._first_model,
            created_at=created,
            origin=origin,
        )
        if title := self._title or self._default_title():
            self.records.append(TitleRecord(title, self.last_at))
        left_out = {what: count for what, count in self.left_out.items() if count}
        return ForeignSession(header, tuple(self.records), left_out)

    def _default_title(self) -> str:
        """A title from the first text of the user that is not a command. If all are commands, from the
        first; empty if there is none.
        """
        first_title = ""
        for record in self.records:
            if not isinstance(record, MessageRecord) or record.message.role != "user":
                continue
            title = make_title(record.message.text)
            if title and not title.startswith("/"):
                return title
            first_title = first_title or title
        return first_title

    def _add_calls(self, parts: Sequence[Part]) -> None:
        self.calls.update({part.id: part for part in parts if isinstance(part, ToolCall)})

    def _time(self, at: str) -> str:
        """The time of a record: `at`, which is kept for later records; if it is empty, the last time."""
        self.last_at = at or self.last_at
        return self.last_at


def display_for(call: ToolCall, text: str, exit_code: int | None = None) -> Display | None:
    """How the result of a call of another program is shown, by the arguments of the call: changed files,
    todos, a patch or a command. None if it is shown as its text.
    """
    arguments = call.arguments
    first_line = text.strip().partition("\n")[0][:120]
    if changes := _changes(arguments):
        return Display(first_line or "changed", Diff(changes))
    if todos := tuple(_todos(arguments)):
        return Display(f"{len(todos)} todos", Todos(todos))
    patch = arguments.get("input")
    if isinstance(patch, str) and patch.lstrip().startswith("*** Begin Patch"):
        return Display(first_line or "patched", Plain(patch, "diff"))
    if command := _command(arguments):
        return Display(first_line or "no output", CommandOutput(command, text, exit_code))
    return None


def _todos(arguments: Mapping[str, Any]) -> Iterator[Todo]:
    """Yield the items of the list that a call sets, in the arguments of Claude Code or Codex."""
    for item in dictionaries(arguments.get("todos") or arguments.get("plan")):
        step = item.get("content") or item.get("step")
        if isinstance(step, str):
            yield Todo(step, _TODO_STATES.get(str(item.get("status"))) or "pending")


def _command(arguments: Mapping[str, Any]) -> str:
    """The shell line of a call; empty if it has none. Of a shell with `-c`, only the line is returned."""
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return ""
    is_shell = len(command) == 3 and command[1] in ("-lc", "-c")
    return str(command[2]) if is_shell else " ".join(command)


def _changes(arguments: Mapping[str, Any]) -> tuple[FileChange, ...]:
    """The changes that a call of an edit tool made; empty if its arguments have none."""
    path = arguments.get("file_path")
    if not isinstance(path, str):
        return ()
    edits = arguments.get("edits")
    # A tool for one edit has its texts among the arguments themselves.
    all_edits = dictionaries(edits) if isinstance(edits, list) else [arguments]
    changes: list[FileChange] = []
    for edit in all_edits:
        old, new = edit.get("old_string"), edit.get("new_string")
        if isinstance(old, str) and isinstance(new, str):
            changes.append(FileChange(path, old, new))
    if not changes and isinstance(content := arguments.get("content"), str):
        changes = [FileChange(path, before=None, after=content)]  # a new file
    return tuple(changes)
