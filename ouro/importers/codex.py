"""Codex's rollout files: JSON lines, each `{timestamp, type, payload}`; the oldest files have only
payloads.

The items of an answer (thinking, text, calls) come one by one; consecutive items are one message.
Events repeat the items for a screen, so only what no item has is read from events: usage, rewinds,
titles.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ouro.importers.builder import (
    ForeignSession,
    TranscriptBuilder,
    add_milliseconds,
    count_of,
    cut_text,
    image_from_url,
    json_lines,
    parse_call,
    parse_time,
    project_folder,
    short_text,
    texts_and_images,
)
from ouro.messages import Image, Message, Part, Text, Thinking, ToolCall, Usage
from ouro.utils.lenient_json import dictionaries, dictionary

_SURROUNDINGS = re.compile(
    r"\s*<(?:user_instructions|environment_context|permissions"
    r" instructions|collaboration_mode|skills_instructions"
    r"|apps_instructions|plugins_instructions|turn_aborted|subagent_notification|INSTRUCTIONS)"
    r"|\s*# AGENTS\.md instructions|\s*<skill>|\s*</?image\b[^>]*>\s*\Z"
)
"""Text that the program added before the user's text, about its own sandbox and tools."""
_SHELL_LINE = re.compile(r"\s*<user_shell_command>\s*<command>(.*?)</command>(.*)\Z", re.DOTALL)
_ITEMS = {
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "web_search_call",
    "tool_search_call",
    "tool_search_output",
}
_WITHOUT_WORDS = {
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "compaction_trigger",
}
_EXIT_CODE = re.compile(r"(?:Exit code: |Process exited with code )(\d{1,3})\b")


def read_codex(path: Path) -> ForeignSession:
    """The session in a rollout file. Raises SessionError."""
    # Some versions wrote messages only as events, so the file is read twice.
    speakers = {_speaker(line) for line in json_lines(path, Counter())}
    reader = _LineReader({"user", "assistant"} - speakers)
    for line in json_lines(path, reader.builder.left_out):
        reader.take(line)
    return reader.finish(path)


def _speaker(line: Mapping[str, Any]) -> str:
    """The speaker of an item line: `user`, `assistant`, or empty."""
    item = _item(line)
    if item.get("type") != "message":
        return ""
    texts = [
        value.text for value in texts_and_images(item.get("content")) if isinstance(value, Text)
    ]
    return str(item.get("role")) if any(not _SURROUNDINGS.match(text) for text in texts) else ""


def _item(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The response item or message of a line, or empty."""
    if line.get("type") == "response_item":
        return dictionary(line.get("payload"))
    return (
        line
        if "payload" not in line and short_text(line.get("type")) in _ITEMS | _WITHOUT_WORDS
        else {}
    )


class _LineReader:
    def __init__(self, from_events: set[str]) -> None:
        self.builder = TranscriptBuilder()
        self._from_events = from_events
        self._answer = 0
        """The number of the message to which further items of the model are added; 0: none."""
        self._last_answer = 0
        self._header: Mapping[str, Any] = {}
        self._model = self._provider = self._at = ""
        self._counted: Any = None
        self._written = 0
        """The number of records before this line."""

    def take(self, line: dict[str, Any]) -> None:
        builder = self.builder
        # The oldest layout has no times: one millisecond between messages keeps their order.
        self._at = parse_time(line.get("timestamp")) or add_milliseconds(
            self._at, len(builder.records) > self._written
        )
        self._written = len(builder.records)
        payload, kind = line.get("payload"), line.get("type")
        if item := _item(line):
            self._take_item(item)
        elif isinstance(payload, dict):
            self._take_payload(kind, payload)
        elif "id" in line and "timestamp" in line and "type" not in line:
            self._take_header(line)
        elif "record_type" not in line:
            builder.left_out["lines of an unknown kind"] += 1

    def _take_payload(self, kind: Any, payload: dict[str, Any]) -> None:
        """Take a line that is not an item of the model."""
        builder = self.builder
        match kind:
            case "session_meta":
                self._take_header(payload)
            case "turn_context":
                self._model = short_text(payload.get("model"), 120) or self._model
                builder.project = builder.project or project_folder(payload.get("cwd"))
            case "event_msg":
                self._take_event(payload)
            case "compacted":
                summary = payload.get("message")
                # Otherwise it is encrypted for the provider.
                if isinstance(summary, str) and summary.strip():
                    self._answer = 0
                    builder.compact(summary, self._at)
            case _:
                builder.left_out[f"`{short_text(kind, 40) or 'nameless'}` lines"] += 1

    def finish(self, path: Path) -> ForeignSession:
        self.builder.git_branch = short_text(dictionary(self._header.get("git")).get("branch"))
        self.builder.created = parse_time(self._header.get("timestamp"))
        return self.builder.finish("codex", short_text(self._header.get("id")) or path.stem, path)

    def _take_header(self, payload: Mapping[str, Any]) -> None:
        if not self._header:  # a copy of another session also has the header of that session
            self._header = payload
            self._at = parse_time(payload.get("timestamp"), self._at)
            self.builder.project = project_folder(payload.get("cwd"))
            self._provider = short_text(payload.get("model_provider"), 60)

    def _take_item(self, item: Mapping[str, Any]) -> None:
        """Add an item of the Responses API. Unknown types are counted as left out."""
        match short_text(item.get("type")):
            case "message":
                self._take_message(item)
            case "reasoning":
                self._take_thoughts(item)
            case "function_call" | "custom_tool_call" | "local_shell_call":
                self._add_to_answer(_call(item))
            case "web_search_call" | "tool_search_call":
                # The provider ran it, so its results are not in the file.
                call_id = short_text(item.get("call_id")) or f"search_{len(self.builder.calls) + 1}"
                name = str(item["type"]).removesuffix("_call")
                self._add_to_answer(ToolCall(call_id, name, dictionary(item.get("action"))))
                self._reply(call_id, "(the provider looked this up; what it found was not kept)")
            case "function_call_output" | "custom_tool_call_output":
                self._take_output(item)
            case kind if kind not in _WITHOUT_WORDS and kind != "tool_search_output":
                self.builder.left_out[f"`{short_text(kind, 40) or 'nameless'}` items"] += 1

    def _take_thoughts(self, item: Mapping[str, Any]) -> None:
        pieces = [*dictionaries(item.get("summary")), *dictionaries(item.get("content"))]
        texts = [piece.get("text") for piece in pieces]
        thoughts = [text for text in texts if isinstance(text, str) and text.strip()]
        if thoughts:
            self._add_to_answer(Thinking(cut_text("\n\n".join(thoughts))))

    def _take_output(self, item: Mapping[str, Any]) -> None:
        text, images, failed = _output(item.get("output"))
        found = _EXIT_CODE.search(text[:400])
        code = int(found[1]) if found else None
        call_id = short_text(item.get("call_id"))
        self._reply(call_id, text, failed=failed, images=images, exit_code=code)

    def _take_message(self, item: Mapping[str, Any]) -> None:
        parts = texts_and_images(item.get("content"))
        if item.get("role") == "assistant":
            self._add_to_answer(*parts)
        elif item.get("role") == "user":
            self._take_user([part for part in parts if not _is_of_surroundings(part)])

    def _take_user(self, parts: Sequence[Part]) -> None:
        """Add a prompt; what the user ran in a shell becomes a text."""
        said: list[Part] = []
        for part in parts:
            if isinstance(part, Text) and (found := _SHELL_LINE.match(part.text)):
                output = re.sub(r"</?(?:result|user_shell_command)>", "", found[2]).strip()
                said.append(
                    Text(f"I ran this in a shell:\n\n$ {found[1].strip()}\n{output}".strip())
                )
            else:
                said.append(part)
        if said:
            self._answer = 0
            self.builder.add_prompt(said, self._at)

    def _add_to_answer(self, *parts: Part) -> None:
        """Add parts to the answer of the turn, which begins with the first ones."""
        if not parts:
            return
        if self._answer:
            self.builder.extend(self._answer, parts)
            return
        model = self._model
        if model and "/" not in model:
            model = f"{self._provider or 'openai'}/{model}"
        self._answer = self._last_answer = self.builder.add(
            Message("assistant", parts, None, model), self._at
        )

    def _reply(self, call_id: str, text: str, **details: Any) -> None:
        self._answer = 0
        self.builder.add(Message("tool", (self.builder.reply(call_id, text, **details),)), self._at)

    def _take_event(self, event: Mapping[str, Any]) -> None:
        """Take the usage, a rewind, the title, or what was said in the oldest files."""
        match event.get("type"):
            case "token_count":
                self._count_tokens(dictionary(event.get("info")))
            case "thread_rolled_back":
                turns, prompts = count_of(event.get("num_turns")), self.builder.prompts
                if turns and prompts:
                    self._answer = 0
                    first = prompts[-turns:][0]
                    before = [number for number in self.builder.branch if number < first]
                    self.builder.rewind(max(before, default=0), self._at)
            case "thread_name_updated":
                self.builder.set_title(short_text(event.get("thread_name")))
            case ("user_message" | "agent_message") as kind:
                self._take_words(kind, event)

    def _count_tokens(self, info: Mapping[str, Any]) -> None:
        """Add the usage of a request to the last answer, once: the same total is reported several
        times.
        """
        total = info.get("total_token_usage")
        if not info or not self._last_answer or total == self._counted:
            return
        self._counted = total
        if isinstance(last := info.get("last_token_usage"), dict):
            names = ("input_tokens", "cached_input_tokens", "", "output_tokens")
            message = self.builder.message(self._last_answer)
            new = Usage(*(count_of(last.get(name)) for name in names))
            usage = (message.usage or Usage()) + new
            self.builder.replace_message(self._last_answer, replace(message, usage=usage))

    def _take_words(self, kind: str, event: Mapping[str, Any]) -> None:
        """Take a message from its event, in a file that has no item for it."""
        role, text = "user" if kind == "user_message" else "assistant", event.get("message")
        if role not in self._from_events or not isinstance(text, str):
            return
        if role == "assistant":
            self._add_to_answer(Text(cut_text(text)))
            return
        images = event.get("images")
        pictures = map(image_from_url, images) if isinstance(images, list) else ()
        self._take_user([Text(cut_text(text)), *pictures])


def _is_of_surroundings(part: Part) -> bool:
    return isinstance(part, Text) and _SURROUNDINGS.match(part.text) is not None


def _call(item: Mapping[str, Any]) -> ToolCall:
    """A tool call, of each of the three types that Codex has."""
    call_id = short_text(item.get("call_id")) or short_text(item.get("id"))
    if item.get("type") == "local_shell_call":
        return ToolCall(call_id, "local_shell", dictionary(item.get("action")))
    name = short_text(item.get("name")) or "unknown"
    if item.get("type") == "custom_tool_call":
        return ToolCall(call_id, name, {"input": str(item.get("input") or "")})
    return parse_call(call_id, name, item.get("arguments"))


def _output(output: Any) -> tuple[str, tuple[Image, ...], bool]:
    """The text of a tool result, its images, and whether it failed."""
    if isinstance(output, dict):
        text, images, failed = _output(output.get("content", output.get("output")))
        return text, images, failed or output.get("success") is False
    if isinstance(output, list):
        parts = texts_and_images(output)
        images = tuple(part for part in parts if isinstance(part, Image))
        return "\n".join(part.text for part in parts if isinstance(part, Text)), images, False
    text = output if isinstance(output, str) else ""
    inner = _parse_older_output(text)
    if inner is None:
        return cut_text(text), (), False
    code = dictionary(inner.get("metadata")).get("exit_code")
    return cut_text(inner["output"]), (), isinstance(code, int) and code != 0


def _parse_older_output(text: str) -> Mapping[str, Any] | None:
    """The object `{"output": …, "metadata": …}` of older versions; None for any other text."""
    if not text.startswith('{"output":'):
        return None
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return None
    has_text = isinstance(inner, dict) and isinstance(inner.get("output"), str)
    return inner if has_text else None
