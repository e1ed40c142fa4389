"""TranscriptBuilder: builds the records of an imported session; and displays for other programs' tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain, Todo, Todos, TodoState
from ouro.importers.json_values import (
    ForeignSession,
    Program,
    instant,
    picture_from_url,
    session_id_for,
    shortened,
    word,
)
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
from ouro.memory.transcript import title_of
from ouro.messages import Image, Message, Part, Text, ToolCall, ToolReply
from ouro.utils.json_types import dictionaries

_STATES: Mapping[str, TodoState] = {"completed": "done", "done": "done", "in_progress": "in_progress"}


class TranscriptBuilder:
    """Numbers messages. The same input with more at the end gives the same records with more at the end."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.project = self.branch = self.created = ""
        self.left_out: Counter[str] = Counter()
        """What was not taken over, and how often."""
        self.last_at = ""
        self.line: list[int] = []
        """The numbers of the messages that the conversation goes on from."""
        self.prompts: list[int] = []
        """Those of them that the user wrote."""
        self.calls: dict[str, ToolCall] = {}
        self._places: dict[int, int] = {}
        self._next = 1
        self._first_model = self._model = self._title = ""

    def add(self, message: Message, at: str) -> int:
        """Append a message; returns its number."""
        if message.model and message.model != self._model:
            self._model = message.model
            if not self._first_model:
                self._first_model = message.model
            elif self.records:
                self.records.append(ModelRecord(message.model, self._time(at)))
        self._note_calls(message.parts)
        number = self._take_number()
        self._places[number] = len(self.records)
        self.records.append(MessageRecord(number, self._time(at), message))
        self.line.append(number)
        return number

    def add_prompt(self, parts: Sequence[Part], at: str) -> int:
        """Append a message of the user; returns its number."""
        number = self.add(Message("user", tuple(parts)), at)
        self.prompts.append(number)
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
        self._note_calls(parts)
        self.change(number, replace(message, parts=(*message.parts, *parts)))

    def reply(
        self,
        call_id: str,
        text: str,
        *,
        name: str = "unknown",
        failed: bool = False,
        images: tuple[Image, ...] = (),
        exit_code: int | None = None,
    ) -> ToolReply:
        """The result of a call that was added, with a display."""
        call = self.calls.get(call_id, ToolCall(call_id, name, {}))
        return ToolReply(call_id, call.name, text, failed, images, foreign_display(call, text, exit_code))

    def rewind(self, to: int, at: str) -> None:
        """Continue the session after message `to`; 0: from its start."""
        self.line = [number for number in self.line if number <= to]
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
        if self.line and summary.strip():
            covers = (self.line[0], self.line[-1])
            still = tuple(number for number in kept if number in self._places)
            self.records.append(
                CompactionRecord(self._take_number(), self._time(at), covers, still, summary, trigger, tokens=tokens)
            )

    def entitle(self, title: str) -> None:
        """Set the title; the last one wins."""
        self._title = title_of(title) or self._title

    def finish(self, program: Program, original: str, path: Path) -> ForeignSession:
        """The session, with the title last. `original`: its id in the other program.

        The default title is the user's first text.
        """
        created = self.created or next((record.at for record in self.records), "") or instant(0)
        origin = {"from": program, "id": word(original), "file": str(path)}
        origin |= {"branch": self.branch} if self.branch else {}
        header = SessionHeader(
            session_id_for(program, original), self.project, self._first_model, created, origin=origin
        )
        messages = (record.message for record in self.records if isinstance(record, MessageRecord))
        titles = [title for item in messages if item.role == "user" and (title := title_of(item.text))]
        default = next((title for title in titles if not title.startswith("/")), titles[0] if titles else "")
        if title := self._title or default:
            self.records.append(TitleRecord(title, self.last_at))
        return ForeignSession(header, tuple(self.records), +self.left_out)

    def _note_calls(self, parts: Sequence[Part]) -> None:
        self.calls.update({part.id: part for part in parts if isinstance(part, ToolCall)})

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def _time(self, at: str) -> str:
        self.last_at = at or self.last_at
        return self.last_at


def text_and_images(content: Any) -> list[Text | Image]:
    """The texts and images of a message as OpenAI's API has them."""
    if isinstance(content, str):
        return [Text(shortened(content))] if content.strip() else []
    parts: list[Text | Image] = []
    for block in content if isinstance(content, list) else []:
        match block:
            case {"text": str(text)} if text.strip():
                parts.append(Text(shortened(text)))
            case {"image_url": {"url": url}} | {"image_url": url}:
                parts.append(picture_from_url(url))
            case _:
                pass
    return parts


def parsed_call(call_id: str, name: str, given: Any) -> ToolCall:
    """A call whose arguments are JSON text, or an object already."""
    try:
        arguments = json.loads(given or "{}") if isinstance(given, str | None) else given
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(call_id, name, arguments)
    return ToolCall(call_id, name, {}, malformed=shortened(str(given)))


def foreign_display(call: ToolCall, text: str, exit_code: int | None = None) -> Display | None:
    """The display of a tool result of another program; None: its text."""
    arguments = call.arguments
    first = text.strip().partition("\n")[0][:120]
    if changes := _changes(arguments):
        return Display(first or "changed", Diff(changes))
    if todos := _todos(arguments):
        return Display(f"{len(todos)} todos", Todos(todos))
    patch = arguments.get("input")
    if isinstance(patch, str) and patch.lstrip().startswith("*** Begin Patch"):
        return Display(first or "patched", Plain(patch, "diff"))
    if command := _command(arguments):
        return Display(first or "no output", CommandOutput(command, text, exit_code))
    return None


def _changes(arguments: Mapping[str, Any]) -> tuple[FileChange, ...]:
    path = arguments.get("file_path")
    if not isinstance(path, str):
        return ()
    edits = arguments.get("edits")
    pairs = dictionaries(edits) if isinstance(edits, list) else [arguments]
    found = [(item.get("old_string"), item.get("new_string")) for item in pairs]
    changes = [FileChange(path, old, new) for old, new in found if isinstance(old, str) and isinstance(new, str)]
    if not changes and isinstance(content := arguments.get("content"), str):
        changes = [FileChange(path, None, content)]
    return tuple(changes)


def _todos(arguments: Mapping[str, Any]) -> tuple[Todo, ...]:
    items = dictionaries(arguments.get("todos") or arguments.get("plan"))
    found = [(item.get("content") or item.get("step"), item.get("status")) for item in items]
    return tuple(Todo(text, _STATES.get(str(state), "pending")) for text, state in found if isinstance(text, str))


def _command(arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, list) and all(isinstance(item, str) for item in command):
        is_shell = len(command) == 3 and command[1] in ("-lc", "-c")
        return str(command[2]) if is_shell else " ".join(command)
    return command if isinstance(command, str) else ""
