"""Sessions in the formats of Claude Code and Codex, in the folders where these programs find and
continue them.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import msgspec

from ouro.memory.backend import LoadedSession, MessageRecord, SessionHeader, WholeSession, timestamp
from ouro.memory.transcript import Transcript
from ouro.messages import Image, Message, Text, Thinking, ToolCall, ToolReply, Usage
from ouro.utils.agent_homes import claude_home, claude_project_name, codex_home
from ouro.utils.lenient_json import dump_json

Agent = Literal["claude", "codex"]
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that these programs do not accept in the id of a call."""
_NO_MESSAGE = 0
"""The number of an entry that is no message of the session; these are counted from 1."""
_CODEX_SANDBOX = {"mode": "workspace-write", "type": "workspace-write"}


class AgentSession(msgspec.Struct, frozen=True):
    """A session as another program stores it."""

    path: Path
    """The path at which the program looks for it."""
    lines: tuple[str, ...]
    command: str
    """The command that continues it there."""


def session_for_agent(whole: WholeSession, agent: Agent) -> AgentSession:
    """The current branch of a session as another agent stores it. The messages that a compaction
    covers are followed by its summary, with which the agent continues.

    Left out are what the user dropped, what ouro adds to messages, and thinking of other models.
    Blocks on the disk, and holds the session in memory.
    """
    transcript = Transcript.of(LoadedSession(whole.header, tuple(whole.records())))
    header = whole.header
    # Each state gets another file, so that a copy that was continued there is not overwritten.
    session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"ouro:{header.id}:{transcript.last_at}"))
    write_lines = _claude_lines if agent == "claude" else _codex_lines
    entries = [
        entry for entry in transcript.entries if str(entry.number) not in transcript.dropped_items
    ]
    lines = tuple(
        # A lone surrogate cannot be written as UTF-8.
        dump_json(line).encode("utf-8", "replace").decode() + "\n"
        for line in write_lines(session_id, transcript, entries, header)
    )
    if agent == "claude":
        folder = claude_home() / "projects" / claude_project_name(header.project)
        path = folder / f"{session_id}.jsonl"
        return AgentSession(path, lines, f"claude --resume {session_id}")
    last_at = transcript.last_at or timestamp()  # such as 2026-11-29T10:20:30
    day_folder = last_at[:10].replace("-", "/")
    name = f"rollout-{last_at[:19].replace(':', '-')}-{session_id}.jsonl"
    path = codex_home() / "sessions" / day_folder / name
    return AgentSession(path, lines, f"codex resume {session_id}")


class _ClaudeEntries:
    """Makes the entries of a file of Claude Code. Each names the id of the one before it."""

    def __init__(self, session_id: str, project: str) -> None:
        self._session_id = session_id
        self._project = project
        self._parent: str | None = None  # the id of the last entry

    def make(self, kind: str, number: int, at: str, **fields: Any) -> Mapping[str, Any]:
        """An entry for the message with this number, which is _NO_MESSAGE for an entry without a
        message. The next entry will refer to it as its parent.
        """
        parent = self._parent
        entry_id = str(uuid.uuid5(uuid.UUID(self._session_id), f"{number}:{kind}:{parent}"))
        self._parent = entry_id
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": self._project,
            "sessionId": self._session_id,
            "version": "2.0.0",
            "gitBranch": "",
            "type": kind,
            **fields,
            "uuid": entry_id,
            "timestamp": at,
        }

    def make_summary(self, summary: str, at: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a compaction: a mark without an entry before it, and the summary."""
        self._parent = None
        yield self.make(
            "system",
            _NO_MESSAGE,
            at,
            subtype="compact_boundary",
            content="Conversation compacted",
            compactMetadata={"trigger": "manual", "preTokens": 0},
        )
        yield self.make(
            "user",
            _NO_MESSAGE,
            at,
            message={"role": "user", "content": summary},
            isCompactSummary=True,
            isVisibleInTranscriptOnly=True,
        )


def _claude_lines(
    session_id: str, transcript: Transcript, messages: list[MessageRecord], header: SessionHeader
) -> Iterator[Mapping[str, Any]]:
    """Yields the lines of the file of Claude Code: the title, if there is one, and an entry for each
    message, without those of which nothing is left.
    """
    entries = _ClaudeEntries(session_id, header.project)
    if transcript.title:
        yield {"type": "custom-title", "customTitle": transcript.title, "sessionId": session_id}
    for item in _with_summary(transcript, messages):
        if isinstance(item, str):
            at = transcript.compaction.at if transcript.compaction else transcript.last_at
            yield from entries.make_summary(item, at)
            continue
        content = _claude_blocks(item.message.parts, item.message)
        if content:
            at = item.at or transcript.last_at
            if item.message.role == "assistant":
                data = _claude_answer(item.number, item.message, content)
                yield entries.make("assistant", item.number, at, message=data)
            else:
                data = {"role": "user", "content": content}
                yield entries.make("user", item.number, at, message=data)


def _claude_answer(
    number: int, message: Message, content: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """An answer as Claude Code saves it from the API."""
    usage = message.usage or Usage()
    return {
        "id": f"msg_ouro_{number}",
        "type": "message",
        "role": "assistant",
        "content": content,
        "model": message.model.removeprefix("anthropic/") or "<synthetic>",
        "stop_reason": "tool_use" if message.tool_calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input - usage.cached - usage.cache_written,
            "cache_read_input_tokens": usage.cached,
            "cache_creation_input_tokens": usage.cache_written,
            "output_tokens": usage.output,
        },
    }


def _claude_blocks(parts: Iterable[Any], message: Message) -> list[dict[str, Any]]:
    """Parts of a message as blocks of Anthropic's API, without those that are left out."""
    blocks = [_claude_block(part, message) for part in parts]
    return [block for block in blocks if block is not None]


def _claude_block(part: Any, message: Message) -> dict[str, Any] | None:
    """A part of a message as a block of Anthropic's API. None for a part that is left out: a blank
    text, thinking of other models, a call that was cut off, and what ouro added.
    """
    match part:
        case Text(text) if text.strip():
            return {"type": "text", "text": text}
        case Thinking(text, signature, redacted):
            if not signature or not message.model.startswith("anthropic/"):
                return None
            if redacted:
                return {"type": "redacted_thinking", "data": signature}
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Image(media_type, data):
            source = {
                "type": "base64",
                "media_type": media_type,
                "data": base64.b64encode(data).decode(),
            }
            return {"type": "image", "source": source}
        case ToolCall(call_id, name, arguments) if not message.cut:
            return {
                "type": "tool_use",
                "id": _valid_id(call_id),
                "name": name,
                "input": dict(arguments),
            }
        case ToolReply(call_id, text=text, failed=failed, images=images):
            content = _claude_blocks((Text(text), *images), message)
            result: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": _valid_id(call_id),
                "content": content if images else text,
            }
            if failed:
                result["is_error"] = True
            return result
        case _:
            return None


def _codex_lines(
    session_id: str, transcript: Transcript, entries: list[MessageRecord], header: SessionHeader
) -> Iterator[Mapping[str, Any]]:
    """Yields the lines of the file of Codex. A message is there twice: for the model as
    `response_item`, for the screen as `event_msg`. The time of a line is that of the message, or
    of the one before it.
    """
    at = entries[0].at if entries else transcript.last_at
    yield from _codex_head(session_id, at, transcript, header)
    for item in _with_summary(transcript, entries):
        if isinstance(item, str):
            # Without a history of its own, Codex also sends the latest of the messages that are
            # covered.
            history = [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": item}],
                }
            ]
            yield _codex_line(at, "compacted", {"message": item, "replacement_history": history})
            continue
        at = item.at or at
        for payload in _codex_items(item.message):
            yield _codex_line(at, "response_item", payload)
        message = item.message
        if message.role != "tool" and message.text:
            kind = "user_message" if message.role == "user" else "agent_message"
            yield _codex_line(at, "event_msg", {"type": kind, "message": message.text})


def _codex_line(at: str, kind: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"timestamp": at, "type": kind, "payload": payload}


def _codex_head(
    session_id: str, at: str, transcript: Transcript, header: SessionHeader
) -> Iterator[Mapping[str, Any]]:
    """Yields the lines before the messages: the session, its model if it is one of OpenAI, and its
    title if there is one.
    """
    session = {
        "id": session_id,
        "timestamp": at,
        "cwd": header.project,
        "originator": "ouro",
        "cli_version": "0.0.0",
        "instructions": None,
        "source": "cli",
    }
    yield _codex_line(at, "session_meta", session)
    provider, _, name = (transcript.model or header.model).partition("/")
    if provider == "openai":  # otherwise Codex would ask its own provider for this model
        turn = {
            "cwd": header.project,
            "approval_policy": "on-request",
            "sandbox_policy": _CODEX_SANDBOX,
            "model": name,
            "summary": "auto",
        }
        yield _codex_line(at, "turn_context", turn)
    if transcript.title:
        title = {
            "type": "thread_name_updated",
            "thread_id": session_id,
            "thread_name": transcript.title,
        }
        yield _codex_line(at, "event_msg", title)


def _codex_items(message: Message) -> Iterator[dict[str, Any]]:
    """Yields a message as items of the Responses API: text and images, then calls and results."""
    kind = "output_text" if message.role == "assistant" else "input_text"
    content = _codex_blocks(message.parts, kind)
    if content:
        yield {"type": "message", "role": message.role, "content": content}
    for part in message.parts:
        match part:
            case ToolCall(call_id, name, arguments) if not message.cut:
                text = json.dumps(dict(arguments), ensure_ascii=False)
                yield {
                    "type": "function_call",
                    "name": name,
                    "arguments": text,
                    "call_id": _valid_id(call_id),
                }
            case ToolReply(call_id, text=text, images=images):
                blocks = _codex_blocks((Text(text), *images), kind)
                yield {
                    "type": "function_call_output",
                    "call_id": _valid_id(call_id),
                    "output": blocks if images else text,
                }


def _codex_blocks(parts: Iterable[Any], kind: str) -> list[dict[str, Any]]:
    """The texts and images among the parts as blocks of the Responses API."""
    blocks = [_codex_block(part, kind) for part in parts]
    return [block for block in blocks if block is not None]


def _codex_block(part: Any, kind: str) -> dict[str, Any] | None:
    """A text or an image as a block of the Responses API; None for other parts."""
    match part:
        case Text(text) if text.strip():
            return {"type": kind, "text": text}
        case Image(media_type, data):
            return {
                "type": "input_image",
                "image_url": f"data:{media_type};base64,{base64.b64encode(data).decode()}",
            }
        case _:
            return None


def _with_summary(
    transcript: Transcript, entries: list[MessageRecord]
) -> Iterator[MessageRecord | str]:
    """Yields the messages. After those that the compaction in force covers comes a string: its
    summary, and the messages that it keeps word for word.
    """
    compaction = transcript.compaction
    if compaction is None:
        yield from entries
        return
    _, last_covered = compaction.covers
    covered = list(takewhile(lambda entry: entry.number <= last_covered, entries))
    kept_texts = [
        entry.message.text for entry in transcript.entries if entry.number in compaction.kept
    ]
    quotes = [f"Said before, word for word:\n{text}" for text in kept_texts if text.strip()]
    yield from covered
    yield "\n\n".join([compaction.summary, *quotes])
    yield from entries[len(covered) :]


def _valid_id(call_id: str) -> str:
    """The id of a call, without characters that these programs do not accept."""
    return _NOT_IN_IDS.sub("_", call_id) or "call"
