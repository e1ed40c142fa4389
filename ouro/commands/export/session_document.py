"""SessionDocument: a saved session, message by message, for the formats that people read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from ouro.display import CommandOutput, Diff, Plain, Todo, Todos
from ouro.memory.backend import (
    CompactionRecord,
    CostRecord,
    DropRecord,
    ForkRecord,
    MessageRecord,
    ModelRecord,
    RecalledRecord,
    Record,
    RewindRecord,
    TitleRecord,
    WholeSession,
)
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.text import clean, dollars, one_line, plural

_NOTHING = Message("user", ())
_EMBEDDABLE = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Never SVG: it can hold scripts."""


class Survey(msgspec.Struct, frozen=True):
    """Facts about a session, collected before it is written out."""

    title: str
    branch: frozenset[int]
    """The numbers of the messages on the current branch; all others were rewound."""
    prompts: tuple[tuple[int, str, str], ...]
    """The user messages of the current branch: number, time and first words."""
    usage: Usage
    last_at: str
    messages: int


def survey(whole: WholeSession) -> Survey:
    """Read a session once; little of it stays in memory."""
    fold = Transcript()
    prompts = []
    count = 0
    for record in whole.records():
        if isinstance(record, MessageRecord):
            count += 1
            message = record.message
            words = _first_words(message.text) or ("[picture]" if message.parts_of(Image) else "")
            if message.role == "user" and words:
                prompts.append((record.number, record.at, words))
            fold.take(replace(record, message=replace(_NOTHING, usage=message.usage)))
        else:
            fold.take(record)
    branch = frozenset(entry.number for entry in fold.entries)
    on_branch = tuple(prompt for prompt in prompts if prompt[0] in branch)
    return Survey(fold.title, branch, on_branch, fold.usage, fold.last_at, count)


class SessionDocument(ABC):
    """The order of a document; a subclass says how its format writes each kind of text."""

    max_picture: ClassVar[int]
    """Bytes of an image that is embedded."""
    gap: ClassVar[str] = ""
    """Between the parts of a message or of a tool result."""

    def __init__(self, whole: WholeSession, found: Survey) -> None:
        self.whole = whole
        self.found = found

    def facts(self) -> list[tuple[str, str]]:
        """Names and values, in the format; a value may be empty."""
        header, usage = self.whole.header, self.found.usage
        cost = "price unknown" if usage.cost is None else dollars(usage.cost)
        used = f"{usage.input:,} tokens read ({usage.cached:,} from the cache), {usage.output:,} written, {cost}"
        return [
            ("Session", self.code(header.id)),
            ("Folder", self.code(header.project) if header.project else ""),
            ("Model", self.code(header.model) if header.model else ""),
            ("From", f"{date_and_time(header.created_at)} to {date_and_time(self.found.last_at)}"),
            ("Used", used if usage.input or usage.output else ""),
            ("Taken over from", self.escaped(header.origin.get("from", ""))),
        ]

    def pieces(self) -> Iterator[str]:
        """The messages, each tool call with its result, and what happened between them."""
        open_calls: dict[str, ToolCall] = {}
        is_rewound = False
        for record in self.whole.records():
            if isinstance(record, MessageRecord):
                if (record.number not in self.found.branch) != is_rewound:
                    yield from self._unanswered(open_calls)
                    is_rewound = not is_rewound
                    yield self.rewound(begins=is_rewound)
                yield from self._message(record, open_calls)
            elif text := _mark_text(record, self.found.title):
                yield from self._unanswered(open_calls)
                yield self.mark(text, date_and_time(record.at))
                if isinstance(record, CompactionRecord) and record.summary:
                    yield self.fold("Summary", self.words(record.summary))
        yield from self._unanswered(open_calls)
        if is_rewound:
            yield self.rewound(begins=False)

    def _message(self, record: MessageRecord, open_calls: dict[str, ToolCall]) -> Iterator[str]:
        message = record.message
        if message.role == "tool":
            for reply in message.parts_of(ToolReply):
                yield self._tool(open_calls.pop(reply.call_id, ToolCall(reply.call_id, reply.name, {})), reply)
            return
        if message.role == "assistant" or message.text:
            yield from self._unanswered(open_calls)
        shown = [part for part in message.parts if isinstance(part, Image) or _has_words(part)]
        if shown:
            who = "ouro" if message.role == "assistant" else "You"
            if who == "You" and all(isinstance(part, Context) for part in shown):
                who = "Added for the model"
            notes = [date_and_time(record.at), self.escaped(message.model), _ending(message)]
            body = self.gap.join(self._part(part, by_user=who == "You") for part in shown)
            yield self.message(who, record.number, " · ".join(filter(None, notes)), body)
        open_calls.update({call.id: call for call in message.tool_calls})

    def _part(self, part: Part, *, by_user: bool) -> str:
        match part:
            case Text(text):
                return self.typed(text) if by_user else self.words(text)
            case Context(text):
                return self.fold("Added for the model", self.block(text))
            case Thinking(text):
                return self.fold("Thinking", self.block(text))
            case Image():
                return self._image(part)
            case _:
                return ""

    def _unanswered(self, open_calls: dict[str, ToolCall]) -> Iterator[str]:
        yield from (self.tool(_call_title(call), "not answered", "") for call in open_calls.values())
        open_calls.clear()

    def _tool(self, call: ToolCall, reply: ToolReply) -> str:
        display = reply.display
        summary = display.summary if display else reply.text.strip().partition("\n")[0][:120]
        match display.body if display else Plain(reply.text):
            case Plain(text, "diff"):
                body = self.diff(text.splitlines())
            case Plain(text, language) if text.strip():
                body = self.block(text, language)
            case CommandOutput(command, output, exit_code):
                end = f"\n[exit code {exit_code}]" if exit_code else ""
                body = self.block(f"$ {command}\n{output}{end}", "console")
            case Diff() as diff:
                body = self.diff(diff.lines())
            case Todos(items):
                body = self.todos(items)
            case _:
                body = ""
        shown = self.gap.join(filter(None, [body, *map(self._image, reply.images)]))
        return self.tool(_call_title(call), summary, shown, failed=reply.failed)

    def _image(self, image: Image) -> str:
        name = one_line(image.name, 120) or clean(image.media_type)
        if image.media_type in _EMBEDDABLE and 0 < len(image.data) <= self.max_picture:
            return self.picture(name, image)
        return self.no_picture(f"picture: {name}, {len(image.data):,} bytes")

    @abstractmethod
    def code(self, text: str) -> str: ...

    @abstractmethod
    def escaped(self, text: str) -> str: ...

    @abstractmethod
    def typed(self, text: str) -> str:
        """What the user typed."""

    @abstractmethod
    def words(self, text: str) -> str:
        """Markdown of a model."""

    @abstractmethod
    def block(self, text: str, language: str = "") -> str:
        """Text shown verbatim."""

    @abstractmethod
    def diff(self, lines: list[str]) -> str: ...

    @abstractmethod
    def todos(self, todos: Iterable[Todo]) -> str: ...

    @abstractmethod
    def picture(self, name: str, image: Image) -> str: ...

    @abstractmethod
    def no_picture(self, text: str) -> str:
        """What stands for an image that is not embedded."""

    @abstractmethod
    def fold(self, title: str, body: str) -> str:
        """A body that is folded under a title."""

    @abstractmethod
    def message(self, who: str, number: int, notes: str, body: str) -> str: ...

    @abstractmethod
    def tool(self, title: str, summary: str, body: str, *, failed: bool = False) -> str:
        """A tool call, folded if there is a body."""

    @abstractmethod
    def mark(self, text: str, at: str) -> str:
        """An event between the messages."""

    @abstractmethod
    def rewound(self, *, begins: bool) -> str:
        """The border of messages that were rewound later."""


def date_and_time(at: str) -> str:
    """A timestamp in local time; empty if it is not a timestamp."""
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""


def _call_title(call: ToolCall) -> str:
    values = [value for value in call.arguments.values() if isinstance(value, str)]
    command = call.arguments.get("command")
    if isinstance(command, list | tuple):
        values = [" ".join(map(str, command))]
    return _first_words(f"{call.name} {values[0] if values else ''}")


def _first_words(text: str) -> str:
    return one_line(text[:360], 90)


def _has_words(part: Part) -> bool:
    return isinstance(part, Text | Context | Thinking) and bool(part.text.strip())


def _ending(message: Message) -> str:
    """How an answer ended that is not complete."""
    if message.cut:
        return "stopped in the middle"
    return {"": "", "length": "cut at max_output", "filtered": "stopped by the provider's filter"}[message.incomplete]


def _mark_text(record: Record, last_title: str) -> str:
    match record:
        case CompactionRecord(covers=(first, last), summary=summary, dropped=dropped):
            if not summary:
                return f"Compacted: {len(dropped)} old outputs were no longer sent."
            return f"Compacted: in place of messages {first} to {last} a summary was sent from here on."
        case DropRecord(items=items, restored=restored):
            return f"{plural(len(items), 'item')} {'restored to' if restored else 'left out of'} the request."
        case RewindRecord(to):
            return f"Went back to message {to}." if to else "Went back to the start."
        case ForkRecord(session, number):
            return f"Up to here a copy of session {session[:8]}, up to its message {number}."
        case ModelRecord(model):
            return f"From here on {model} answers."
        case TitleRecord(title) if title != last_title:
            return f"Called “{title}”."
        case RecalledRecord(items=items) if loaded := sum(item.state == "loaded" for item in items):
            return f"{plural(loaded, 'note')} {'was' if loaded == 1 else 'were'} recalled."
        case CostRecord(purpose, _, model, usage):
            return f"In the background: {purpose} ({model}, {usage.input:,} + {usage.output:,} tokens)."
        case _:
            return ""
