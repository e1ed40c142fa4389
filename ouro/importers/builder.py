"""TranscriptBuilder: builds the records of an imported session; and displays for other programs' tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain, Todo, Todos, TodoState
from ouro.memory.backend import (
    CompactionRecord,
    CompactionTrigger,
    MessageRecord,
    ModelRecord,
    Record,
    RewindRecord,
    TitleRecord,
)
from ouro.memory.transcript import title_of
from ouro.messages import Message, Part, ToolCall

_STATES: Mapping[str, TodoState] = {"completed": "done", "done": "done", "in_progress": "in_progress"}


def foreign_display(call: ToolCall, text: str, exit_code: int | None = None) -> Display | None:
    """The display of a tool result of another program; None: its text."""
    arguments = call.arguments
    first = text.strip().partition("\n")[0][:120]
    if changes := _changes(arguments):
        return Display(first or "changed", Diff(changes))
    if todos := _todos(arguments):
        return Display(f"{len(todos)} todos", Todos(todos))
    if patch := _patch(arguments):
        return Display(first or "patched", Plain(patch, "diff"))
    if command := _command(arguments):
        return Display(first or "no output", CommandOutput(command, text, exit_code))
    return None


def _changes(arguments: Mapping[str, Any]) -> tuple[FileChange, ...]:
    path = arguments.get("file_path")
    if not isinstance(path, str):
        return ()
    edits = arguments.get("edits")
    pairs = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else [arguments]
    found = [(item.get("old_string"), item.get("new_string")) for item in pairs]
    changes = [FileChange(path, old, new) for old, new in found if isinstance(old, str) and isinstance(new, str)]
    if not changes and isinstance(content := arguments.get("content"), str):
        changes = [FileChange(path, None, content)]
    return tuple(changes)


def _todos(arguments: Mapping[str, Any]) -> tuple[Todo, ...]:
    items = arguments.get("todos") or arguments.get("plan")
    if not isinstance(items, list):
        return ()
    found = [(item.get("content") or item.get("step"), item.get("status")) for item in items if isinstance(item, dict)]
    return tuple(Todo(text, _STATES.get(str(state), "pending")) for text, state in found if isinstance(text, str))


def _patch(arguments: Mapping[str, Any]) -> str:
    given = arguments.get("input")
    return given if isinstance(given, str) and given.lstrip().startswith("*** Begin Patch") else ""


def _command(arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, list) and all(isinstance(item, str) for item in command):
        is_shell = len(command) == 3 and command[1] in ("-lc", "-c")
        return str(command[2]) if is_shell else " ".join(command)
    return command if isinstance(command, str) else ""


class TranscriptBuilder:
    """Numbers messages. The same input with more at the end gives the same records with more at the end."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.model = ""
        """The first one that answered."""
        self.last_at = ""
        self.line: list[int] = []
        """The numbers of the messages that the conversation goes on from."""
        self._places: dict[int, int] = {}
        self._next = 1
        self._model_now = ""
        self._title = ""

    def add(self, message: Message, at: str) -> int:
        """Append a message; returns its number."""
        if message.model and message.model != self._model_now:
            self._note_model(message.model, at)
        number = self._take_number()
        self._places[number] = len(self.records)
        self.records.append(MessageRecord(number, self._time(at), message))
        self.line.append(number)
        return number

    def message(self, number: int) -> Message:
        record = self.records[self._places[number]]
        assert isinstance(record, MessageRecord)
        return record.message

    def change(self, number: int, message: Message) -> None:
        """Replace a message by a more complete one."""
        place = self._places[number]
        self.records[place] = replace(self.records[place], message=message)

    def extend(self, number: int, parts: Sequence[Part]) -> None:
        message = self.message(number)
        self.change(number, replace(message, parts=(*message.parts, *parts)))

    def rewind(self, to: int, at: str) -> None:
        """Continue the session after message `to`; 0: from its start."""
        while self.line and self.line[-1] > to:
            self.line.pop()
        self.records.append(RewindRecord(to, self._time(at)))

    def compact(
        self,
        summary: str,
        at: str,
        trigger: CompactionTrigger = "auto",
        tokens: tuple[int, int] = (0, 0),
        kept: Sequence[int] = (),
    ) -> None:
        if self.line and summary.strip():
            covers = (self.line[0], self.line[-1])
            still = tuple(number for number in kept if number in self._places)
            self.records.append(
                CompactionRecord(self._take_number(), self._time(at), covers, still, summary, trigger, tokens=tokens)
            )

    def entitle(self, title: str) -> None:
        """Set the title; the last one wins."""
        self._title = title_of(title) or self._title

    def finish(self) -> tuple[Record, ...]:
        """All records, the title last; the default title is the user's first words."""
        if title := self._title or self._first_words():
            self.records.append(TitleRecord(title, self.last_at))
        return tuple(self.records)

    def _first_words(self) -> str:
        said = (record.message for record in self.records if isinstance(record, MessageRecord))
        titles = [title for item in said if item.role == "user" and (title := title_of(item.text))]
        return next((title for title in titles if not title.startswith("/")), titles[0] if titles else "")

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def _time(self, at: str) -> str:
        self.last_at = at or self.last_at
        return self.last_at

    def _note_model(self, model: str, at: str) -> None:
        self._model_now = model
        if not self.model:
            self.model = model
        elif self.records:
            self.records.append(ModelRecord(model, self._time(at)))
