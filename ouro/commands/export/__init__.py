"""A saved session as Markdown, as HTML, and as JSON, which `ouro sessions import` can read again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ouro.commands.export.formats import HtmlFormat, MarkdownFormat, PromptEntry
from ouro.commands.render import date_and_time
from ouro.display import Body, CommandOutput, Diff, Plain, Todos
from ouro.errors import UsageError
from ouro.memory.backend import (
    CompactionRecord,
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
from ouro.memory.serialization import header_data, record_to_export
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.lenient_json import dump_json
from ouro.utils.text import clean, dollars, one_line, plural

Format = Literal["markdown", "html", "json"]
_FORMAT_OF_SUFFIX: Mapping[str, Format] = {
    **dict.fromkeys(("", ".md", ".markdown", ".txt"), "markdown"),
    ".html": "html",
    ".htm": "html",
    ".json": "json",
}
_EMPTY_MESSAGE = Message("user", parts=())
_EMBEDDABLE_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types of images that a document contains. SVG is not one of them: it can contain scripts."""


def format_of(path: Path) -> Format:
    """The format for the ending of a file; Markdown without one. Raises UsageError for another ending."""
    format_ = _FORMAT_OF_SUFFIX.get(path.suffix.lower())
    if format_ is None:
        raise UsageError(
            f"A session cannot be written as `{path.suffix}`.",
            "End the file in .md, .html or .json.",
        )
    return format_


def document(whole: WholeSession, to: Format) -> Iterator[str]:
    """Yields a session in a format, piece by piece. Blocks on the disk; memory use does not grow with
    the session.

    Raises:
        SessionError: the session cannot be read.
    """
    session_survey = survey(whole)
    if to == "json":
        return _as_json(whole, session_survey)
    form = HtmlFormat() if to == "html" else MarkdownFormat()
    return SessionDocument(whole, session_survey, form).write()


def last_answer(whole: WholeSession) -> str:
    """The text of the last answer on the current branch, as `/copy` copies it. Raises UsageError if
    there is none. Blocks on the disk.
    """
    branch = survey(whole).branch
    text = ""
    for record in whole.records():
        if not isinstance(record, MessageRecord) or record.number not in branch:
            continue
        if record.message.role == "assistant" and record.message.text.strip():
            text = record.message.text
    if not text:
        raise UsageError("There is no answer to export yet.")
    return text.strip("\n") + "\n"


def answer_document(whole: WholeSession, to: Format) -> Iterator[str]:
    """Yields the last answer; it is Markdown as the model wrote it. Raises UsageError for another
    format, or if there is no answer.
    """
    if to != "markdown":
        raise UsageError(f"The last answer is written as Markdown, not as {to}.")
    yield last_answer(whole)


def _as_json(whole: WholeSession, session_survey: Survey) -> Iterator[str]:
    """Yields a JSON document with every record on a line of its own, with its images."""
    head = {
        **header_data(whole.header),
        "title": session_survey.title,
        "messages": session_survey.messages,
    }
    fields = "".join(f"{_to_json(key)}: {_to_json(value)},\n" for key, value in head.items())
    yield f'{{\n{fields}"records": ['
    separator = "\n"
    for record in whole.records():
        yield separator + _to_json(_record_data(record, session_survey))
        separator = ",\n"
    yield "\n]\n}\n"


def _record_data(record: Record, session_survey: Survey) -> dict[str, Any]:
    """The record as data; a message that was rewound has `taken_back`."""
    data = record_to_export(record)
    if isinstance(record, MessageRecord) and record.number not in session_survey.branch:
        data["taken_back"] = True
    return data


def _to_json(value: Any) -> str:
    # A lone surrogate cannot be written as UTF-8, and not every JSON reader accepts its escape.
    return dump_json(value).encode("utf-8", "replace").decode()


class Survey(msgspec.Struct, frozen=True):
    """Facts about a session, collected before it is written."""

    title: str
    branch: frozenset[int]
    """The numbers of the messages on the current branch; all others were rewound."""
    prompts: tuple[PromptEntry, ...]
    """The messages of the user on the current branch."""
    usage: Usage
    last_at: str
    messages: int


def survey(whole: WholeSession) -> Survey:
    """Read a session once, to collect the facts that a document begins with. The texts of messages are
    not kept in memory: the transcript, which finds the current branch, gets empty messages.
    """
    transcript = Transcript()
    prompts: list[PromptEntry] = []
    message_count = 0
    for record in whole.records():
        if not isinstance(record, MessageRecord):
            transcript.add_record(record)
            continue
        message_count += 1
        message = record.message
        transcript.add_record(replace(record, message=replace(_EMPTY_MESSAGE, usage=message.usage)))
        first_words = _first_words(message.text)
        if not first_words and message.parts_of(Image):
            first_words = "[picture]"
        if message.role == "user" and first_words:
            prompts.append(PromptEntry(record.number, record.at, first_words))
    branch = frozenset(entry.number for entry in transcript.entries)
    branch_prompts = tuple(prompt for prompt in prompts if prompt.number in branch)
    return Survey(
        transcript.title,
        branch,
        branch_prompts,
        transcript.usage,
        transcript.last_at,
        messages=message_count,
    )


class SessionDocument:
    """Writes a session as a document, in the order of its records. A format writes each kind of text."""

    def __init__(
        self, whole: WholeSession, session_survey: Survey, form: HtmlFormat | MarkdownFormat
    ) -> None:
        self._whole = whole
        self._survey = session_survey
        self._form = form

    def write(self) -> Iterator[str]:
        """Yields the document: its head with facts and a list of the prompts, the messages, and its
        end.
        """
        known_facts = [(name, text) for name, text in self._facts() if text]
        yield self._form.head(self._survey.title, known_facts, self._survey.prompts)
        yield from map(self._form.piece, self.pieces())
        yield self._form.tail

    def _facts(self) -> list[tuple[str, str]]:
        """The names and texts of the facts in the head; the text of an unknown fact is empty."""
        header, usage, form = self._whole.header, self._survey.usage, self._form
        cost = dollars(usage.cost, "price unknown")
        usage_text = (
            f"{usage.input:,} tokens read ({usage.cached:,} from the cache), {usage.output:,}"
            f" written, {cost}"
        )
        return [
            ("Session", form.code(header.id)),
            ("Folder", form.code(header.project) if header.project else ""),
            ("Model", form.code(header.model) if header.model else ""),
            (
                "From",
                f"{date_and_time(header.created_at)} to {date_and_time(self._survey.last_at)}",
            ),
            ("Used", usage_text if usage.input or usage.output else ""),
            ("Taken over from", form.escape(header.origin.get("from", ""))),
        ]

    def pieces(self) -> Iterator[str]:
        """Yields the messages in the order of their records, and a mark for what happened between
        them. Messages that were rewound are between two borders.
        """
        open_calls: dict[str, ToolCall] = {}
        """The calls written so far whose result was not found yet, by their id."""
        in_rewound = False
        for record in self._whole.records():
            if isinstance(record, MessageRecord):
                is_rewound = record.number not in self._survey.branch
                if is_rewound != in_rewound:
                    yield from self._take_unanswered(open_calls)
                    yield self._form.rewound(begins=is_rewound)
                    in_rewound = is_rewound
                yield from self._message(record, open_calls)
                continue
            mark = _mark_text(record, self._survey.title)
            if mark:
                yield from self._take_unanswered(open_calls)
                yield self._form.mark(mark, date_and_time(record.at))
                if isinstance(record, CompactionRecord) and record.summary:
                    yield self._form.fold("Summary", self._form.words(record.summary))
        yield from self._take_unanswered(open_calls)
        if in_rewound:
            yield self._form.rewound(begins=False)

    def _message(self, record: MessageRecord, open_calls: dict[str, ToolCall]) -> Iterator[str]:
        """Yields the blocks of a message. A call is written with its result, in a later message: so
        calls are added to `open_calls`, and each result takes its call from there.
        """
        message = record.message
        if message.role == "tool":
            for reply in message.parts_of(ToolReply):
                unknown_call = ToolCall(reply.call_id, reply.name, arguments={})
                yield self._tool(open_calls.pop(reply.call_id, unknown_call), reply)
            return
        if message.role == "assistant" or message.text:  # no more results can follow
            yield from self._take_unanswered(open_calls)
        visible_parts = [part for part in message.parts if _has_content(part)]
        if visible_parts:
            speaker = _speaker(message, visible_parts)
            notes = [date_and_time(record.at), self._form.escape(message.model), _ending(message)]
            body = self._form.gap.join(
                self._part(part, by_user=speaker == "You") for part in visible_parts
            )
            yield self._form.message(speaker, record.number, " · ".join(filter(None, notes)), body)
        open_calls.update({call.id: call for call in message.tool_calls})

    def _part(self, part: Part, *, by_user: bool) -> str:
        """A part of a message in the format; `by_user` if the user has typed it. Empty for a tool
        call, which is written with its result.
        """
        match part:
            case Text(text):
                return self._form.user_text(text) if by_user else self._form.words(text)
            case Context(text):
                return self._form.fold("Added for the model", self._form.block(text))
            case Thinking(text):
                return self._form.fold("Thinking", self._form.block(text))
            case Image():
                return self._image(part)
            case _:
                return ""

    def _take_unanswered(self, open_calls: dict[str, ToolCall]) -> Iterator[str]:
        """Yields the blocks of the calls that got no result, and removes them from `open_calls`."""
        yield from (
            self._form.tool(_call_title(call), "not answered", "") for call in open_calls.values()
        )
        open_calls.clear()

    def _tool(self, call: ToolCall, reply: ToolReply) -> str:
        """A tool call with its result in the format."""
        display = reply.display
        summary = display.summary if display else reply.text.strip().partition("\n")[0][:120]
        body = body_text(display.body if display else Plain(reply.text), self._form)
        content = self._form.gap.join(filter(None, [body, *map(self._image, reply.images)]))
        return self._form.tool(_call_title(call), summary, content, failed=reply.failed)

    def _image(self, image: Image) -> str:
        """An image in the format; only its name and size if it is too large or of another type."""
        name = one_line(image.name, 120) or clean(image.media_type)
        if image.media_type in _EMBEDDABLE_IMAGES and 0 < len(image.data) <= self._form.max_picture:
            return self._form.picture(name, image)
        return self._form.no_picture(f"picture: {name}, {len(image.data):,} bytes")


def body_text(body: Body | None, form: HtmlFormat | MarkdownFormat) -> str:
    """The body of a tool's display in the format `form`; empty if there is none."""
    match body:
        case Plain(text, "diff"):
            return form.diff(text.splitlines())
        case Plain(text, language) if text.strip():
            return form.block(text, language)
        case CommandOutput(command, output, exit_code):
            end = f"\n[exit code {exit_code}]" if exit_code else ""
            return form.block(f"$ {command}\n{output}{end}", "console")
        case Diff():
            return form.diff(body.lines())
        case Todos(items):
            return form.todos(items)
        case _:
            return ""


def _has_content(part: Part) -> bool:
    """Whether a part is written with its message: text that is not blank, or an image. Tool calls are
    written with their results.
    """
    if isinstance(part, Text | Context | Thinking):
        return bool(part.text.strip())
    return isinstance(part, Image)


def _speaker(message: Message, visible_parts: Sequence[Part]) -> str:
    """Who wrote a message: `ouro` or `You`; `Added for the model` if ouro has added all of it."""
    if message.role == "assistant":
        return "ouro"
    is_added = all(isinstance(part, Context) for part in visible_parts)
    return "Added for the model" if is_added else "You"


def _call_title(call: ToolCall) -> str:
    """The name of the tool, and its subject: the command if it is a list of words, else the first
    text among the arguments, else nothing.
    """
    command = call.arguments.get("command")
    if isinstance(command, list | tuple):
        subject = " ".join(map(str, command))
    else:
        texts = [value for value in call.arguments.values() if isinstance(value, str)]
        subject = texts[0] if texts else ""
    return _first_words(f"{call.name} {subject}")


def _first_words(text: str) -> str:
    return one_line(text[:360], 90)


def _ending(message: Message) -> str:
    """The reason why an answer is not complete; empty if it is."""
    if message.cut:
        return "stopped in the middle"
    match message.incomplete:
        case "length":
            return "cut at max_output"
        case "filtered":
            return "stopped by the provider's filter"
        case "":
            return ""


def _mark_text(record: Record, last_title: str) -> str:
    """A sentence about what a record between the messages did; empty if nothing is shown for it.

    Args:
        last_title: the title of the session, which the head of the document has already.
    """
    match record:
        case CompactionRecord(covers=(first, last), summary=summary, dropped=dropped):
            if not summary:
                return f"Compacted: {len(dropped)} old outputs were no longer sent."
            return (
                f"Compacted: from here on a summary was sent instead of messages {first} to {last}."
            )
        case DropRecord(items=items, restored=restored):
            effect = "restored to" if restored else "left out of"
            return f"{plural(len(items), 'item')} {effect} the request."
        case RewindRecord(to):
            return f"Went back to message {to}." if to else "Went back to the start."
        case ForkRecord(session, number):
            return f"Up to here a copy of session {session[:8]}, up to its message {number}."
        case ModelRecord(model):
            return f"From here on {model} answers."
        case TitleRecord(title) if title != last_title:
            return f"Called “{title}”."
        case RecalledRecord():
            return _recalled_text(record)
        case _:
            return ""


def _recalled_text(record: RecalledRecord) -> str:
    """A sentence about the notes that were sent; empty if there were none."""
    sent = [item for item in record.items if item.state == "loaded"]
    if not sent:
        return ""
    verb = "was" if len(sent) == 1 else "were"
    return f"{plural(len(sent), 'note')} {verb} recalled."
