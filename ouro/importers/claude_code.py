"""Claude Code's session files: JSON lines that form a tree by `uuid` and `parentUuid`.

A file only grows, and is read in its order: a prompt of the user whose parent is not the last
message is a rewind. Entries of subagents (`isSidechain`) belong to other transcripts and are left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ouro.importers.foreign_values import (
    count_of,
    cut_text,
    decode_image,
    image_from_url,
    json_lines,
    parse_time,
    project_folder,
    short_text,
)
from ouro.importers.transcript_builder import (
    ForeignSession,
    TranscriptBuilder,
)
from ouro.memory.backend import CompactionTrigger
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.lenient_json import dictionaries, dictionary, string

SUB_AGENTS = "messages of sub-agents"
"""What `left_out` calls them."""
_KINDS_WITHOUT_MESSAGE = {
    "agent-color",
    "agent-name",
    "agent-setting",
    "ai-title",
    "attachment",
    "content-replacement",
    "custom-title",
    "file-history-delta",
    "file-history-snapshot",
    "last-prompt",
    "mode",
    "permission-mode",
    "pr-link",
    "progress",
    "queue-operation",
    "started",
    "result",
    "summary",
    "system",
    "tag",
    "task-summary",
    "worktree-state",
}
"""Kinds of entries that are not messages; other unknown kinds are counted as left out."""
_COMMAND_START = re.compile(r"\s*<command-(?:name|message)>")
"""Matches a message that Claude Code wrote for a typed command."""
_COMMAND_NAME = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_COMMAND_ARGS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_BASH_INPUT = re.compile(r"\s*<bash-input>(.*?)</bash-input>\s*\Z", re.DOTALL)
"""Matches a message for a line that the user ran in a shell."""
_MACHINE_TEXT = re.compile(
    r"\s*(?:<(?:local-command-|bash-std|system-reminder|task-notification|user-memory-input)|Caveat:"
    r" |\[Request interr)"
)
"""Matches a message of the user that the program wrote."""


def read_claude_code(path: Path) -> ForeignSession:
    """The session in a file of Claude Code. Raises SessionError."""
    reader = _EntryReader()
    for entry in json_lines(path, reader.builder.left_out):
        reader.add_entry(entry)
    return reader.finish(path)


class _EntryReader:
    """Takes the entries of a file in their order, and makes a session of them."""

    def __init__(self) -> None:
        self.builder = TranscriptBuilder()
        self._number_of_entry: dict[str, int] = {}
        """The `uuid` of an entry -> the number of its message, or of the message that it belongs to."""
        self._last_answer = ("", 0)
        """The provider's id of the last answer, and its number here."""
        self._session_id = self._user_title = self._model_title = ""
        self._summaries: dict[str, str] = {}
        """The `uuid` of the last entry of a session -> the summary of the session."""
        self._compaction_metadata: Mapping[str, Any] = {}
        """What the file says about the compaction whose summary follows."""

    def add_entry(self, entry: dict[str, Any]) -> None:
        """Take one entry: its titles, its facts about the session, and its message. Of an entry of a
        subagent only the titles are taken.
        """
        kind, builder = short_text(entry.get("type")), self.builder
        # The user's own title wins over a model's title, and a later one over an earlier one.
        self._user_title = short_text(entry.get("customTitle")) or self._user_title
        self._model_title = short_text(entry.get("aiTitle")) or self._model_title
        if kind == "summary":
            self._summaries[str(entry.get("leafUuid"))] = short_text(entry.get("summary"))
        if entry.get("isSidechain") is True:
            if kind in ("user", "assistant"):
                builder.left_out[SUB_AGENTS] += 1
            return
        self._session_id = self._session_id or short_text(entry.get("sessionId"))
        builder.project = builder.project or project_folder(entry.get("cwd"))
        builder.git_branch = short_text(entry.get("gitBranch")) or builder.git_branch
        builder.created = builder.created or parse_time(entry.get("timestamp"))
        number = self._take_kind(kind, entry)
        if isinstance(uuid := entry.get("uuid"), str):
            # The parent of a later prompt may be an entry without a message. It stands for the
            # message of its own parent.
            if not number:
                last = builder.branch[-1] if builder.branch else 0
                number = self._number_of_entry.get(str(entry.get("parentUuid")), last)
            self._number_of_entry[uuid] = number

    def _take_kind(self, kind: str, entry: dict[str, Any]) -> int:
        """Take the content of an entry of this kind. Returns the number of its message; 0 if it has
        none.
        """
        at = parse_time(entry.get("timestamp"))
        if kind in ("user", "assistant"):
            message = entry.get("message")
            if not isinstance(message, dict):
                return 0
            take = self._take_answer if kind == "assistant" else self._take_user
            return take(entry, message, at)
        if kind == "attachment":  # it may be a message that the user sent during a turn
            return self._take_attachment(dictionary(entry.get("attachment")), at)
        if kind == "system" and entry.get("subtype") == "compact_boundary":
            self._compaction_metadata = dictionary(entry.get("compactMetadata"))
        elif kind not in _KINDS_WITHOUT_MESSAGE:
            self.builder.left_out[f"`{short_text(kind, 40) or 'nameless'}` entries"] += 1
        return 0

    def _take_attachment(self, attachment: Mapping[str, Any], at: str) -> int:
        """Add a prompt that the user sent during a turn. Returns its number; 0 for other
        attachments.
        """
        is_command = attachment.get("type") == "queued_command"
        if not is_command or attachment.get("commandMode", "prompt") != "prompt":
            return 0
        parts = list(_user_parts(attachment.get("prompt")))
        return self.builder.add_prompt(parts, at) if parts else 0

    def finish(self, path: Path) -> ForeignSession:
        """The session with all entries that were taken. Its title is the user's, otherwise a model's,
        otherwise the last summary of this session.

        `path`: the file, whose name is the id of the session if no entry has one.
        """
        # A file also has summaries of other sessions; its own refers to an entry in the file.
        own_summaries = [
            text for uuid, text in self._summaries.items() if uuid in self._number_of_entry
        ]
        last_summary = own_summaries[-1] if own_summaries else ""
        self.builder.set_title(self._user_title or self._model_title or last_summary)
        return self.builder.finish("claude-code", self._session_id or path.stem, path)

    def _take_user(self, entry: Mapping[str, Any], message: Mapping[str, Any], at: str) -> int:
        """Add the tool results of an entry as one message, and its prompt as the next. Text that the
        program added by itself is a message, but no prompt. A summary of a compaction is added as a
        compaction. Returns the number of the last message; 0 for none.
        """
        parts = list(_user_parts(message.get("content"), is_context=entry.get("isMeta") is True))
        if entry.get("isCompactSummary") is True:
            self._take_summary(parts, at)
            return 0
        blocks = _blocks(message.get("content"))
        results = [block for block in blocks if block.get("type") == "tool_result"]
        number = 0
        if results:
            number = self.builder.add(Message("tool", tuple(map(self._tool_result, results))), at)
        if any(isinstance(part, Text | Image) for part in parts):
            if not results:  # a prompt with results continues the turn
                self._rewind_to_parent(entry.get("parentUuid", ""), at)
            return self.builder.add_prompt(parts, at)
        if parts:
            return self.builder.add(Message("user", tuple(parts)), at)
        return number

    def _take_summary(self, parts: Sequence[Part], at: str) -> None:
        """Add a compaction, whose summary is a message of the user in the file. The boundary, an entry
        before it, says what started the compaction, and which messages are kept.
        """
        metadata, self._compaction_metadata = self._compaction_metadata, {}
        trigger: CompactionTrigger = "manual" if metadata.get("trigger") == "manual" else "auto"
        tokens = (count_of(metadata.get("preTokens")), count_of(metadata.get("postTokens")))
        kept: list[int] = []
        if isinstance(segment := metadata.get("preservedSegment"), dict):
            first = self._number_of_entry.get(str(segment.get("headUuid")), 0)
            last = self._number_of_entry.get(str(segment.get("tailUuid")), 0)
            kept = [number for number in self.builder.branch if 0 < first <= number <= last]
        summary = "\n\n".join(part.text for part in parts if isinstance(part, Text | Context))
        self.builder.compact(summary, at, trigger, tokens, kept)

    def _rewind_to_parent(self, parent: object, at: str) -> None:
        """Rewind to the parent of a new prompt, if there are prompts after it. A parent of None is the
        start of the session.
        """
        # If the parent is damaged or in another file, the session continues from the last message.
        to = 0 if parent is None else self._number_of_entry.get(str(parent))
        if to is not None and any(prompt > to for prompt in self.builder.prompts):
            self.builder.rewind(to, at)

    def _take_answer(self, entry: Mapping[str, Any], message: Mapping[str, Any], at: str) -> int:
        """Add an answer; or, if the entry continues the last answer, add its parts to that. Returns the
        number of the message that the entry stands for in a rewind.
        """
        builder, parts = self.builder, tuple(_answer_parts(message.get("content")))
        usage = _usage(message.get("usage"), entry.get("costUSD"))
        answer_id = short_text(message.get("id"))
        last_id, number = self._last_answer
        if answer_id and answer_id == last_id and number in builder.branch:
            # One answer has several entries, one per part, each with the usage so far.
            builder.extend(number, parts)
            builder.replace_message(number, replace(builder.message(number), usage=usage))
            # Results of the answer's first calls may be after it already; a rewind keeps them.
            return builder.branch[-1]
        model = short_text(message.get("model"), 120)
        # Errors that the program writes as the model are for the user, and never sent to a model.
        is_from_program = model == "<synthetic>" or entry.get("isApiErrorMessage") is True
        if is_from_program:
            answer = Message("assistant", parts, cut=True)
        else:
            name = f"anthropic/{model}" if model and "/" not in model else model
            answer = Message("assistant", parts, usage, model=name)
        number = builder.add(answer, at)
        self._last_answer = (answer_id, number)
        return number

    def _tool_result(self, block: Mapping[str, Any]) -> ToolReply:
        """A tool result, with its texts joined and its images."""
        parts = [
            _image(item) if item.get("type") == "image" else Text(str(item.get("text") or ""))
            for item in _blocks(block.get("content"))
        ]
        text = cut_text("\n".join(part.text for part in parts if isinstance(part, Text)))
        images = tuple(part for part in parts if isinstance(part, Image))
        failed = block.get("is_error") is True
        return self.builder.make_reply(
            short_text(block.get("tool_use_id")), text, failed=failed, images=images
        )


def _blocks(content: Any) -> list[dict[str, Any]]:
    """The content of a message as blocks; a text becomes one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return dictionaries(content)


def _user_parts(content: Any, *, is_context: bool = False) -> Iterable[Part]:
    """Yield the parts of a user's message. A document becomes a text that says so, and other blocks,
    such as tool results, are left out.

    `is_context`: whether the program wrote the texts for the model.
    """
    for block in _blocks(content):
        match block:
            case {"type": "text", "text": str(text)} if text.strip():
                yield Context(cut_text(text)) if is_context else _user_part(cut_text(text))
            case {"type": "image"}:
                yield _image(block)
            case {"type": "document"}:
                yield Text("[a document that is not kept]")
            case _:
                pass


def _user_part(text: str) -> Part:
    """A text in a message of the user as a part. A command and a shell line become what the user typed;
    a text that the program wrote becomes context.
    """
    if _COMMAND_START.match(text) and (name := _COMMAND_NAME.search(text)):
        arguments = _COMMAND_ARGS.search(text)
        return Text(f"{name[1].strip()} {arguments[1].strip() if arguments else ''}".strip())
    if line := _BASH_INPUT.match(text):
        return Text(f"I ran this in a shell:\n\n$ {line[1].strip()}")
    return Context(text) if _MACHINE_TEXT.match(text) else Text(text)


def _answer_parts(content: Any) -> Iterable[Part]:
    """Yield the parts of an answer. Blocks of unknown types are left out."""
    for block in _blocks(content):
        match block:
            case {"type": "text", "text": str(text)} if text.strip():
                yield Text(cut_text(text))
            case {"type": "thinking", "thinking": str(text)}:
                yield Thinking(cut_text(text), string(block.get("signature")))
            case {"type": "redacted_thinking", "data": str(data)}:
                yield Thinking(text="", signature=data, redacted=True)
            case {"type": "tool_use", "name": str(name)}:
                yield ToolCall(
                    short_text(block.get("id")), short_text(name), dictionary(block.get("input"))
                )
            case _:
                pass


def _image(block: Mapping[str, Any]) -> Image | Text:
    """An image; if the file does not have its bytes, or models do not accept it, a text that says so."""
    source = dictionary(block.get("source"))
    if not source:
        return Text("[a picture that is not kept]")
    if source.get("type") == "url":
        return image_from_url(source.get("url"))
    return decode_image(source.get("media_type"), source.get("data"))


def _usage(usage: Any, cost: Any) -> Usage | None:
    """The usage of an answer, with its cost in US dollars; None if the entry has none."""
    if not isinstance(usage, dict):
        return None
    cached = count_of(usage.get("cache_read_input_tokens"))
    cache_written = count_of(usage.get("cache_creation_input_tokens"))
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    return Usage(
        # Claude Code counts only tokens that are not from the cache.
        input=count_of(usage.get("input_tokens")) + cached + cache_written,
        cached=cached,
        cache_written=cache_written,
        output=count_of(usage.get("output_tokens")),
        cost=float(cost) if is_number and 0 <= cost < 1e6 else None,
    )
