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

from ouro.importers.builder import (
    ForeignSession,
    TranscriptBuilder,
    count_of,
    cut_text,
    decode_image,
    image_from_url,
    json_lines,
    parse_time,
    project_folder,
    short_text,
)
from ouro.memory.backend import CompactionTrigger
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.lenient_json import dictionaries, dictionary, string

SUB_AGENTS = "messages of sub-agents"
_WITHOUT_WORDS = {
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
_COMMAND = re.compile(r"\s*<command-(?:name|message)>")
_COMMAND_NAME = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_COMMAND_ARGS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_BASH_INPUT = re.compile(r"\s*<bash-input>(.*?)</bash-input>\s*\Z", re.DOTALL)
_MACHINE_TEXT = re.compile(
    r"\s*(?:<(?:local-command-|bash-std|system-reminder|task-notification|user-memory-input)|Caveat:"
    r" |\[Request interr)"
)


def read_claude_code(path: Path) -> ForeignSession:
    """The session in a file of Claude Code. Raises SessionError."""
    reader = _EntryReader()
    for entry in json_lines(path, reader.builder.left_out):
        reader.take(entry)
    return reader.finish(path)


class _EntryReader:
    def __init__(self) -> None:
        self.builder = TranscriptBuilder()
        self._places: dict[str, int] = {}
        """Entry -> the number of its message, or of the message that it belongs to."""
        self._last_answer = ("", 0)
        """The provider's id of the last answer, and its number here."""
        self._session_id = self._given_title = self._found_title = ""
        self._summaries: dict[str, str] = {}
        self._boundary: Mapping[str, Any] = {}

    def take(self, entry: dict[str, Any]) -> None:
        kind, builder = short_text(entry.get("type")), self.builder
        # The user's own title wins over a model's title, and a later one over an earlier one.
        self._given_title = short_text(entry.get("customTitle")) or self._given_title
        self._found_title = short_text(entry.get("aiTitle")) or self._found_title
        if kind == "summary":
            self._summaries[str(entry.get("leafUuid"))] = short_text(entry.get("summary"))
        if entry.get("isSidechain") is True:
            builder.left_out[SUB_AGENTS] += kind in ("user", "assistant")
            return
        self._session_id = self._session_id or short_text(entry.get("sessionId"))
        builder.project = builder.project or project_folder(entry.get("cwd"))
        builder.git_branch = short_text(entry.get("gitBranch")) or builder.git_branch
        builder.created = builder.created or parse_time(entry.get("timestamp"))
        number = self._take_kind(kind, entry)
        if isinstance(uuid := entry.get("uuid"), str):
            last = builder.branch[-1] if builder.branch else 0
            self._places[uuid] = number or self._places.get(str(entry.get("parentUuid")), last)

    def _take_kind(self, kind: str, entry: dict[str, Any]) -> int:
        """Take what an entry of this kind holds; returns the number of its message, or 0."""
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
            self._boundary = dictionary(entry.get("compactMetadata"))
        elif kind not in _WITHOUT_WORDS:
            self.builder.left_out[f"`{short_text(kind, 40) or 'nameless'}` entries"] += 1
        return 0

    def _take_attachment(self, attachment: Mapping[str, Any], at: str) -> int:
        is_command = attachment.get("type") == "queued_command"
        if not is_command or attachment.get("commandMode", "prompt") != "prompt":
            return 0
        parts = list(_user_parts(attachment.get("prompt")))
        return self.builder.add_prompt(parts, at) if parts else 0

    def finish(self, path: Path) -> ForeignSession:
        # A file also has summaries of other sessions; its own summary refers to an entry in the
        # file.
        summaries = [text for leaf, text in self._summaries.items() if leaf in self._places]
        self.builder.set_title(
            self._given_title or self._found_title or (summaries[-1] if summaries else "")
        )
        return self.builder.finish("claude-code", self._session_id or path.stem, path)

    def _take_user(self, entry: Mapping[str, Any], message: Mapping[str, Any], at: str) -> int:
        """Add the tool results and the prompt of an entry; returns the number of the last message,
        0 without one.
        """
        parts = list(_user_parts(message.get("content"), is_context=entry.get("isMeta") is True))
        if entry.get("isCompactSummary") is True:
            self._take_summary(parts, at)
            return 0
        blocks = _blocks(message.get("content"))
        results = [block for block in blocks if block.get("type") == "tool_result"]
        number = 0
        if results:
            number = self.builder.add(Message("tool", tuple(map(self._reply, results))), at)
        if any(isinstance(part, Text | Image) for part in parts):
            if not results:
                self._return_to(entry.get("parentUuid", ""), at)
            return self.builder.add_prompt(parts, at)
        if parts:
            return self.builder.add(Message("user", tuple(parts)), at)
        return number

    def _take_summary(self, parts: Sequence[Part], at: str) -> None:
        """A compaction: its summary is a message of the user."""
        metadata, self._boundary = self._boundary, {}
        trigger: CompactionTrigger = "manual" if metadata.get("trigger") == "manual" else "auto"
        tokens = (count_of(metadata.get("preTokens")), count_of(metadata.get("postTokens")))
        kept: list[int] = []
        if isinstance(segment := metadata.get("preservedSegment"), dict):
            first = self._places.get(str(segment.get("headUuid")), 0)
            last = self._places.get(str(segment.get("tailUuid")), 0)
            kept = [number for number in self.builder.branch if 0 < first <= number <= last]
        summary = "\n\n".join(part.text for part in parts if isinstance(part, Text | Context))
        self.builder.compact(summary, at, trigger, tokens, kept)

    def _return_to(self, parent: object, at: str) -> None:
        """Rewind, if prompts came after the parent of a new prompt."""
        # A parent that is damaged or in another file: the session continues from the last message.
        to = 0 if parent is None else self._places.get(str(parent))
        if to is not None and any(prompt > to for prompt in self.builder.prompts):
            self.builder.rewind(to, at)

    def _take_answer(self, entry: Mapping[str, Any], message: Mapping[str, Any], at: str) -> int:
        """Add an answer, or a part to the answer before it; returns its number."""
        builder, parts = self.builder, tuple(_answer_parts(message.get("content")))
        usage = _usage(message.get("usage"), entry.get("costUSD"))
        answer_id = short_text(message.get("id"))
        before, number = self._last_answer
        if answer_id and answer_id == before and number in builder.branch:
            # One answer has several entries, one per part, each with the usage so far.
            builder.extend(number, parts)
            builder.replace_message(number, replace(builder.message(number), usage=usage))
            return builder.branch[-1]
        model = short_text(message.get("model"), 120)
        is_own = model == "<synthetic>" or entry.get("isApiErrorMessage") is True
        named = "" if is_own or not model else model if "/" in model else f"anthropic/{model}"
        # Messages that the program writes as the model (errors) are for the user, and never sent to
        # a model.
        number = builder.add(
            Message("assistant", parts, None if is_own else usage, named, is_own), at
        )
        self._last_answer = (answer_id, number)
        return number

    def _reply(self, block: Mapping[str, Any]) -> ToolReply:
        """A tool result, with its texts joined and its images."""
        found = [
            _image(item) if item.get("type") == "image" else Text(str(item.get("text") or ""))
            for item in _blocks(block.get("content"))
        ]
        text = cut_text("\n".join(item.text for item in found if isinstance(item, Text)))
        images = tuple(item for item in found if isinstance(item, Image))
        failed = block.get("is_error") is True
        return self.builder.reply(
            short_text(block.get("tool_use_id")), text, failed=failed, images=images
        )


def _blocks(content: Any) -> list[dict[str, Any]]:
    return (
        [{"type": "text", "text": content}] if isinstance(content, str) else dictionaries(content)
    )


def _user_parts(content: Any, *, is_context: bool = False) -> Iterable[Part]:
    """The parts of a user's message. Documents are named, not kept."""
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
    """What the user typed: commands and shell lines as they were typed, texts of the program as
    context.
    """
    if _COMMAND.match(text) and (name := _COMMAND_NAME.search(text)):
        arguments = _COMMAND_ARGS.search(text)
        return Text(f"{name[1].strip()} {arguments[1].strip() if arguments else ''}".strip())
    if line := _BASH_INPUT.match(text):
        return Text(f"I ran this in a shell:\n\n$ {line[1].strip()}")
    return Context(text) if _MACHINE_TEXT.match(text) else Text(text)


def _answer_parts(content: Any) -> Iterable[Part]:
    """The parts of an answer. Blocks of unknown types are left out."""
    for block in _blocks(content):
        match block:
            case {"type": "text", "text": str(text)} if text.strip():
                yield Text(cut_text(text))
            case {"type": "thinking", "thinking": str(text)}:
                yield Thinking(cut_text(text), string(block.get("signature")))
            case {"type": "redacted_thinking", "data": str(data)}:
                yield Thinking("", data, redacted=True)
            case {"type": "tool_use", "name": str(name)}:
                yield ToolCall(
                    short_text(block.get("id")), short_text(name), dictionary(block.get("input"))
                )
            case _:
                pass


def _image(block: Mapping[str, Any]) -> Image | Text:
    """An image, or a text in its place if it is not in the file."""
    source = dictionary(block.get("source"))
    if not source:
        return Text("[a picture that is not kept]")
    if source.get("type") == "url":
        return image_from_url(source.get("url"))
    return decode_image(source.get("media_type"), source.get("data"))


def _usage(usage: Any, cost: Any) -> Usage | None:
    """The usage of an answer; None if the entry has none."""
    if not isinstance(usage, dict):
        return None
    cached, written = (
        count_of(usage.get("cache_read_input_tokens")),
        count_of(usage.get("cache_creation_input_tokens")),
    )
    price = (
        float(cost)
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e6
        else None
    )
    read = count_of(usage.get("input_tokens")) + cached + written
    return Usage(read, cached, written, count_of(usage.get("output_tokens")), price)
