"""Claude Code's session files: JSON lines that form a tree by `uuid` and `parentUuid`.

A file only grows, and is told in its order: an entry that hangs on an earlier place than the last one, with words of
the user in between, is a rewind. Sub-agents' entries (`isSidechain`) are other conversations and stay out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ouro.importers.builder import TranscriptBuilder, foreign_display
from ouro.importers.json_values import (
    ForeignSession,
    count,
    folder,
    instant,
    json_lines,
    picture,
    picture_from_url,
    session_id_for,
    shortened,
    word,
)
from ouro.memory.backend import CompactionTrigger, SessionHeader
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage

SUB_AGENTS = "messages of sub-agents"
_WITHOUT_WORDS = {
    "agent-color", "agent-name", "agent-setting", "ai-title", "attachment", "content-replacement", "custom-title",
    "file-history-delta", "file-history-snapshot", "last-prompt", "mode", "permission-mode", "pr-link", "progress",
    "queue-operation", "started", "result", "summary", "system", "tag", "task-summary", "worktree-state",
}  # fmt: skip
"""Kinds of entries that are no messages; a kind that is not here is counted as left out."""
_COMMAND = re.compile(r"\s*<command-(?:name|message)>")
_COMMAND_NAME = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_COMMAND_ARGS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_BASH_INPUT = re.compile(r"\s*<bash-input>(.*?)</bash-input>\s*\Z", re.DOTALL)
_MACHINE_TEXT = re.compile(
    r"\s*(?:<(?:local-command-|bash-std|system-reminder|task-notification|user-memory-input)|Caveat: |\[Request interr)"
)


def read_claude_code(path: Path) -> ForeignSession:
    """The session in a file of Claude Code.

    Raises:
        SessionError: the file cannot be read.
    """
    left_out: Counter[str] = Counter()
    builder = _RecordBuilder(left_out)
    for entry in json_lines(path, left_out):
        builder.take(entry)
    return builder.finish(path)


class _RecordBuilder:
    """Converts the entries of a file to records, one by one."""

    def __init__(self, left_out: Counter[str]) -> None:
        self._left_out = left_out
        self._builder = TranscriptBuilder()
        self._places: dict[str, int] = {}
        """The number of the message that an entry is, or hangs on."""
        self._prompts: list[int] = []
        self._calls: dict[str, ToolCall] = {}
        self._last_answer = ("", 0)
        """The provider's id of the answer that is being told, and its number here."""
        self._project = self._branch = self._created = self._session_id = ""
        self._given_title = self._found_title = ""
        self._summaries: dict[str, str] = {}
        self._boundary: Mapping[str, Any] | None = None

    def take(self, entry: dict[str, Any]) -> None:
        kind = entry.get("type")
        self._take_title(entry)
        if entry.get("isSidechain") is True:
            self._left_out[SUB_AGENTS] += kind in ("user", "assistant")
            return
        self._take_surroundings(entry)
        number = 0
        if kind in ("user", "assistant") and isinstance(entry.get("message"), dict):
            number = self._take_message(entry, entry["message"])
        elif kind == "attachment":
            number = self._take_attachment(entry)
        elif kind == "system" and entry.get("subtype") == "compact_boundary":
            metadata = entry.get("compactMetadata")
            self._boundary = metadata if isinstance(metadata, dict) else {}
        elif kind not in _WITHOUT_WORDS and kind not in ("user", "assistant"):
            self._left_out[f"`{word(kind, 40) or 'nameless'}` entries"] += 1
        if isinstance(uuid := entry.get("uuid"), str):
            self._places[uuid] = number or self._place_of(entry)

    def finish(self, path: Path) -> ForeignSession:
        original = self._session_id or path.stem
        # A file also has summaries of other sessions: its own refer to an entry in it.
        summaries = [text for leaf, text in self._summaries.items() if leaf in self._places]
        self._builder.entitle(self._given_title or self._found_title or (summaries[-1] if summaries else ""))
        origin = {"from": "claude-code", "id": word(original), "file": str(path)}
        header = SessionHeader(
            session_id_for("claude-code", original),
            self._project,
            self._builder.model,
            self._created or instant(0),
            origin={**origin, "branch": self._branch} if self._branch else origin,
        )
        return ForeignSession(header, self._builder.finish(), +self._left_out)

    def _take_title(self, entry: Mapping[str, Any]) -> None:
        """The user's own title wins over a model's, and each over the one before it."""
        self._given_title = word(entry.get("customTitle")) or self._given_title
        found = word(entry.get("aiTitle"))
        self._found_title = found or self._found_title
        if entry.get("type") == "summary":
            self._summaries[str(entry.get("leafUuid"))] = word(entry.get("summary"))

    def _take_surroundings(self, entry: Mapping[str, Any]) -> None:
        self._session_id = self._session_id or word(entry.get("sessionId"))
        self._project = self._project or folder(entry.get("cwd"))
        self._branch = word(entry.get("gitBranch")) or self._branch
        self._created = self._created or instant(entry.get("timestamp"))

    def _place_of(self, entry: Mapping[str, Any]) -> int:
        """The parent message of an entry, or the last message if it is unknown."""
        line = self._builder.line
        return self._places.get(str(entry.get("parentUuid")), line[-1] if line else 0)

    def _take_message(self, entry: Mapping[str, Any], message: Mapping[str, Any]) -> int:
        at = instant(entry.get("timestamp"))
        if entry.get("type") == "assistant":
            return self._take_answer(entry, message, at)
        parts, replies = self._user_parts(entry, message.get("content"))
        if entry.get("isCompactSummary") is True:
            self._compact("\n\n".join(part.text for part in parts if isinstance(part, Text | Context)), at)
            return 0
        number = 0
        if replies:
            number = self._builder.add(Message("tool", tuple(replies)), at)
        if parts:
            is_prompt = any(isinstance(part, Text | Image) for part in parts)
            if is_prompt and not replies:
                self._rewind(entry, at)
            number = self._builder.add(Message("user", tuple(parts)), at)
            if is_prompt:
                self._prompts.append(number)
        return number

    def _rewind(self, entry: Mapping[str, Any], at: str) -> None:
        """Rewind if the parent of a prompt is not the last message."""
        parent = entry.get("parentUuid")
        if "parentUuid" not in entry or (parent is not None and parent not in self._places):
            return  # damaged, or in another file: continue from the last message
        to = 0 if parent is None else self._places[parent]
        if any(number > to for number in self._prompts):
            self._prompts = [number for number in self._prompts if number <= to]
            self._builder.rewind(to, at)

    def _compact(self, summary: str, at: str) -> None:
        metadata, self._boundary = self._boundary or {}, None
        trigger: CompactionTrigger = "manual" if metadata.get("trigger") == "manual" else "auto"
        tokens = (count(metadata.get("preTokens")), count(metadata.get("postTokens")))
        self._builder.compact(summary, at, trigger, tokens, self._preserved(metadata.get("preservedSegment")))

    def _preserved(self, segment: Any) -> list[int]:
        if not isinstance(segment, dict):
            return []
        first, last = (self._places.get(str(segment.get(key)), 0) for key in ("headUuid", "tailUuid"))
        return [number for number in self._builder.line if 0 < first <= number <= last]

    def _take_answer(self, entry: Mapping[str, Any], message: Mapping[str, Any], at: str) -> int:
        parts = list(_answer_parts(message.get("content")))
        self._calls.update({part.id: part for part in parts if isinstance(part, ToolCall)})
        usage = _usage(message.get("usage"), entry.get("costUSD"))
        answer_id = word(message.get("id"))
        before, number = self._last_answer
        if answer_id and answer_id == before and number in self._builder.line:
            # One answer has several entries, one per part, each with the usage so far.
            self._builder.extend(number, parts)
            self._builder.change(number, replace(self._builder.message(number), usage=usage))
            return self._builder.line[-1]
        model = word(message.get("model"), 120)
        is_own = model == "<synthetic>" or entry.get("isApiErrorMessage") is True
        named = "" if is_own or not model else model if "/" in model else f"anthropic/{model}"
        # Messages of the program in the model's place (errors) are for the user: never sent to a model.
        number = self._builder.add(Message("assistant", tuple(parts), None if is_own else usage, named, is_own), at)
        self._last_answer = (answer_id, number)
        return number

    def _user_parts(self, entry: Mapping[str, Any], content: Any) -> tuple[list[Part], list[ToolReply]]:
        parts: list[Part] = []
        replies: list[ToolReply] = []
        for block in _blocks(content):
            kind = block.get("type")
            if kind == "tool_result":
                replies.append(self._reply(block))
            elif kind == "text" and isinstance(text := block.get("text"), str) and text.strip():
                parts.append(Context(shortened(text)) if entry.get("isMeta") is True else _user_part(shortened(text)))
            elif kind == "image":
                parts.append(_image(block))
            elif kind == "document":
                parts.append(Text("[a document that is not kept]"))
        return parts, replies

    def _reply(self, block: Mapping[str, Any]) -> ToolReply:
        call_id = word(block.get("tool_use_id"))
        call = self._calls.get(call_id, ToolCall(call_id, "unknown", {}))
        found = [
            _image(item) if item.get("type") == "image" else Text(str(item.get("text") or ""))
            for item in _blocks(block.get("content"))
        ]
        text = shortened("\n".join(item.text for item in found if isinstance(item, Text)))
        images = tuple(item for item in found if isinstance(item, Image))
        failed = block.get("is_error") is True
        return ToolReply(call_id, call.name, text, failed, images, foreign_display(call, text))

    def _take_attachment(self, entry: Mapping[str, Any]) -> int:
        """Import a message that the user sent during a turn."""
        attachment = entry.get("attachment")
        if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
            return 0
        parts, _ = self._user_parts({}, attachment.get("prompt"))
        if not parts or attachment.get("commandMode", "prompt") != "prompt":
            return 0
        number = self._builder.add(Message("user", tuple(parts)), instant(entry.get("timestamp")))
        self._prompts.append(number)
        return number


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [item for item in content if isinstance(item, dict)] if isinstance(content, list) else []


def _user_part(text: str) -> Part:
    """A user part: text, a typed command, or context that the program added."""
    if _COMMAND.match(text) and (name := _COMMAND_NAME.search(text)):
        arguments = _COMMAND_ARGS.search(text)
        return Text(f"{name[1].strip()} {arguments[1].strip() if arguments else ''}".strip())
    if line := _BASH_INPUT.match(text):
        return Text(f"I ran this in a shell:\n\n$ {line[1].strip()}")
    return Context(text) if _MACHINE_TEXT.match(text) else Text(text)


def _answer_parts(content: Any) -> Iterable[Part]:
    for block in _blocks(content):
        match block:
            case {"type": "text", "text": str(text)} if text.strip():
                yield Text(shortened(text))
            case {"type": "thinking", "thinking": str(text)}:
                signature = block.get("signature")
                yield Thinking(shortened(text), signature if isinstance(signature, str) else "")
            case {"type": "redacted_thinking", "data": str(data)}:
                yield Thinking("", data, redacted=True)
            case {"type": "tool_use", "name": str(name)}:
                arguments = block.get("input")
                yield ToolCall(word(block.get("id")), word(name), arguments if isinstance(arguments, dict) else {})
            case _:
                pass


def _image(block: Mapping[str, Any]) -> Image | Text:
    source = block.get("source")
    if not isinstance(source, dict):
        return Text("[a picture that is not kept]")
    if source.get("type") == "url":
        return picture_from_url(source.get("url"))
    return picture(source.get("media_type"), source.get("data"))


def _usage(usage: Any, cost: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    cached, written = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    price = float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e6 else None
    return Usage(
        count(usage.get("input_tokens")) + cached + written, cached, written, count(usage.get("output_tokens")), price
    )
