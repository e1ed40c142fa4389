"""Codex's rollout files: JSON lines, each `{timestamp, type, payload}`; the oldest ones hold the payloads bare.

The items of an answer (thinking, words, calls) stand one by one; those in a row are one message of ours. The events
beside them say the same again for a screen, so only what no item says is taken from them: usage, rewinds, titles.
"""

from __future__ import annotations

import json
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
    picture_from_url,
    session_id_for,
    shifted,
    shortened,
    word,
)
from ouro.memory.backend import SessionHeader
from ouro.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolReply, Usage

_SURROUNDINGS = re.compile(
    r"\s*<(?:user_instructions|environment_context|permissions instructions|collaboration_mode|skills_instructions"
    r"|apps_instructions|plugins_instructions|turn_aborted|subagent_notification|INSTRUCTIONS)"
    r"|\s*# AGENTS\.md instructions"
)
"""What the program put before the user's words: it speaks of another program's sandbox and tools."""
_SHELL_LINE = re.compile(r"\s*<user_shell_command>\s*<command>(.*?)</command>(.*)\Z", re.DOTALL)
_ITEMS = {
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "local_shell_call", "web_search_call", "tool_search_call", "tool_search_output",
}  # fmt: skip
_WITHOUT_WORDS = {"ghost_snapshot", "compaction", "compaction_summary", "context_compaction", "compaction_trigger"}
_EXIT_CODE = re.compile(r"(?:Exit code: |Process exited with code )(\d{1,3})\b")


def read_codex(path: Path) -> ForeignSession:
    """The session in a rollout file.

    Raises:
        SessionError: the file cannot be read.
    """
    left_out: Counter[str] = Counter()
    # Some versions wrote messages only as events, so the file is read twice.
    spoken = {_speaker(line) for line in json_lines(path, Counter())}
    builder = _RecordBuilder(left_out, {"user", "assistant"} - spoken)
    for line in json_lines(path, left_out):
        builder.take(line)
    return builder.finish(path)


def _speaker(line: Mapping[str, Any]) -> str:
    """The speaker of an item line: `user`, `assistant`, or empty."""
    item = _item(line)
    if item.get("type") != "message":
        return ""
    texts = [value.text for value in _contents(item.get("content")) if isinstance(value, Text)]
    return str(item.get("role")) if any(not _SURROUNDINGS.match(text) for text in texts) else ""


def _item(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The response item or message of a line, or None."""
    payload = line.get("payload")
    if line.get("type") == "response_item" and isinstance(payload, dict):
        return payload
    return line if "payload" not in line and line.get("type") in _ITEMS | _WITHOUT_WORDS else {}


class _RecordBuilder:
    """Converts the lines of a file to records, one by one."""

    def __init__(self, left_out: Counter[str], from_events: set[str]) -> None:
        self._left_out = left_out
        self._from_events = from_events
        self._builder = TranscriptBuilder()
        self._answer = 0
        """The number of the message that the items of the model still go to; 0: none is open."""
        self._last_answer = 0
        self._calls: dict[str, ToolCall] = {}
        self._prompts: list[int] = []
        self._header: Mapping[str, Any] = {}
        self._model = self._provider = self._project = self._at = ""
        self._counted: Any = None
        self._told = 0

    def take(self, line: dict[str, Any]) -> None:
        # The oldest layout has no times: a millisecond apart, messages keep their order.
        self._at = instant(line.get("timestamp")) or shifted(self._at, len(self._builder.records) > self._told)
        self._told = len(self._builder.records)
        payload = line.get("payload")
        if item := _item(line):
            self._take_item(item)
        elif not isinstance(payload, dict):
            self._take_bare(line)
        elif line.get("type") == "session_meta":
            self._take_header(payload)
        elif line.get("type") == "turn_context":
            self._model = word(payload.get("model"), 120) or self._model
            self._project = self._project or folder(payload.get("cwd"))
        elif line.get("type") == "event_msg":
            self._take_event(payload)
        elif line.get("type") == "compacted":
            self._compact(payload)
        else:
            self._left_out[f"`{word(line.get('type'), 40) or 'nameless'}` lines"] += 1

    def finish(self, path: Path) -> ForeignSession:
        original = word(self._header.get("id")) or path.stem
        git = self._header.get("git")
        origin = {"from": "codex", "id": original, "file": str(path)}
        if isinstance(git, dict) and (branch := word(git.get("branch"))):
            origin["branch"] = branch
        records = self._builder.finish()
        created = instant(self._header.get("timestamp")) or next((record.at for record in records), "") or instant(0)
        header = SessionHeader(
            session_id_for("codex", original), self._project, self._builder.model, created, origin=origin
        )
        return ForeignSession(header, records, +self._left_out)

    def _take_bare(self, line: Mapping[str, Any]) -> None:
        if "id" in line and "timestamp" in line and "type" not in line:
            self._take_header(line)
        elif "record_type" not in line:
            self._left_out["lines of an unknown kind"] += 1

    def _take_header(self, payload: Mapping[str, Any]) -> None:
        if not self._header:  # a copy of another session also has its header
            self._header = payload
            self._at = instant(payload.get("timestamp"), self._at)
            self._project = folder(payload.get("cwd"))
            self._provider = word(payload.get("model_provider"), 60)

    def _take_item(self, item: Mapping[str, Any]) -> None:
        match item.get("type"):
            case "message":
                self._take_message(item)
            case "reasoning":
                if text := _thought(item):
                    self._answered(Thinking(text))
            case "function_call" | "custom_tool_call" | "local_shell_call":
                self._answered(_call(item))
            case "web_search_call" | "tool_search_call":
                self._take_search(item)
            case "function_call_output" | "custom_tool_call_output":
                self._take_output(item)
            case kind if kind not in _WITHOUT_WORDS and kind != "tool_search_output":
                self._left_out[f"`{word(kind, 40) or 'nameless'}` items"] += 1

    def _take_message(self, item: Mapping[str, Any]) -> None:
        parts = _contents(item.get("content"))
        if item.get("role") == "assistant":
            self._answered(*parts)
        elif item.get("role") == "user":
            kept = [part for part in parts if not (isinstance(part, Text) and _SURROUNDINGS.match(part.text))]
            self._take_user(kept)

    def _take_user(self, parts: Iterable[Part]) -> None:
        said = tuple(_shell_line(part) for part in parts)
        if said:
            self._answer = 0
            self._prompts.append(self._builder.add(Message("user", said), self._at))

    def _answered(self, *parts: Part) -> None:
        self._calls.update({part.id: part for part in parts if isinstance(part, ToolCall)})
        if not parts:
            return
        if self._answer:
            self._builder.extend(self._answer, parts)
            return
        model = self._model if "/" in self._model or not self._model else f"{self._provider or 'openai'}/{self._model}"
        self._answer = self._last_answer = self._builder.add(Message("assistant", parts, None, model), self._at)

    def _take_search(self, item: Mapping[str, Any]) -> None:
        """Import a search that the provider ran: its results are not in the file."""
        action = item.get("action")
        call_id = word(item.get("call_id")) or f"search_{len(self._calls) + 1}"
        call = ToolCall(call_id, str(item["type"]).removesuffix("_call"), action if isinstance(action, dict) else {})
        self._answered(call)
        self._reply(ToolReply(call.id, call.name, "(the provider looked this up; what it found was not kept)"))

    def _take_output(self, item: Mapping[str, Any]) -> None:
        call = self._calls.get(word(item.get("call_id")), ToolCall(word(item.get("call_id")), "unknown", {}))
        text, images, failed = _output(item.get("output"))
        code = _EXIT_CODE.search(text[:400])
        display = foreign_display(call, text, int(code[1]) if code else None)
        self._reply(ToolReply(call.id, call.name, text, failed, images, display))

    def _reply(self, reply: ToolReply) -> None:
        self._answer = 0
        self._builder.add(Message("tool", (reply,)), self._at)

    def _take_event(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "token_count":
                self._take_usage(event.get("info"))
            case "thread_rolled_back":
                self._rewind(count(event.get("num_turns")))
            case "thread_name_updated":
                self._builder.entitle(word(event.get("thread_name")))
            case "user_message" if "user" in self._from_events and isinstance(event.get("message"), str):
                self._take_user([Text(shortened(event["message"])), *map(picture_from_url, _list(event.get("images")))])
            case "agent_message" if "assistant" in self._from_events and isinstance(event.get("message"), str):
                self._answered(Text(shortened(event["message"])))

    def _take_usage(self, info: Any) -> None:
        if not isinstance(info, dict) or not self._last_answer or info.get("total_token_usage") == self._counted:
            return
        self._counted = info.get("total_token_usage")
        last = info.get("last_token_usage")
        if isinstance(last, dict):
            used = Usage(
                count(last.get("input_tokens")), count(last.get("cached_input_tokens")), 0,
                count(last.get("output_tokens")),
            )  # fmt: skip
            message = self._builder.message(self._last_answer)
            usage = used if message.usage is None else message.usage + used
            self._builder.change(self._last_answer, replace(message, usage=usage))

    def _rewind(self, turns: int) -> None:
        gone = self._prompts[-turns:] if turns else []
        if gone:
            self._prompts = self._prompts[: -len(gone)]
            self._answer = 0
            self._builder.rewind(max((item for item in self._builder.line if item < gone[0]), default=0), self._at)

    def _compact(self, payload: Mapping[str, Any]) -> None:
        summary = payload.get("message")
        if isinstance(summary, str) and summary.strip():  # else it is encrypted for the provider: kept unchanged
            self._answer = 0
            self._builder.compact(summary, self._at)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _contents(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [Text(shortened(content))] if content.strip() else []
    parts: list[Part] = []
    for item in _list(content):
        match item:
            case {"text": str(text)} if text.strip():
                parts.append(Text(shortened(text)))
            case {"type": "input_image", "image_url": url}:
                parts.append(picture_from_url(url))
            case _:
                pass
    return parts


def _shell_line(part: Part) -> Part:
    found = _SHELL_LINE.match(part.text) if isinstance(part, Text) else None
    return Text(f"I ran this in a shell:\n\n$ {found[1].strip()}\n{_without_tags(found[2])}".strip()) if found else part


def _without_tags(text: str) -> str:
    return re.sub(r"</?(?:result|user_shell_command)>", "", text).strip()


def _thought(item: Mapping[str, Any]) -> str:
    pieces = [*_list(item.get("summary")), *_list(item.get("content"))]
    texts = [item.get("text") for item in pieces if isinstance(item, dict)]
    return shortened("\n\n".join(text for text in texts if isinstance(text, str) and text.strip()))


def _call(item: Mapping[str, Any]) -> ToolCall:
    call_id = word(item.get("call_id")) or word(item.get("id"))
    if item.get("type") == "local_shell_call":
        action = item.get("action")
        return ToolCall(call_id, "local_shell", action if isinstance(action, dict) else {})
    name = word(item.get("name")) or "unknown"
    if item.get("type") == "custom_tool_call":
        return ToolCall(call_id, name, {"input": str(item.get("input") or "")})
    given = item.get("arguments")
    try:
        arguments = json.loads(given or "{}") if isinstance(given, str | None) else given
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(call_id, name, arguments)
    return ToolCall(call_id, name, {}, malformed=shortened(str(given)))


def _output(output: Any) -> tuple[str, tuple[Image, ...], bool]:
    """The text of a tool's output, its images, and whether it failed."""
    if isinstance(output, dict):
        text, images, failed = _output(output.get("content", output.get("output")))
        return text, images, failed or output.get("success") is False
    if isinstance(output, list):
        parts = _contents(output)
        images = tuple(part for part in parts if isinstance(part, Image))
        return "\n".join(part.text for part in parts if isinstance(part, Text)), images, False
    text = output if isinstance(output, str) else ""
    if text.startswith('{"output":'):
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict) and isinstance(inner.get("output"), str):
            metadata = inner.get("metadata")
            code = metadata.get("exit_code") if isinstance(metadata, dict) else None
            return shortened(inner["output"]), (), isinstance(code, int) and code != 0
    return shortened(text), (), False
