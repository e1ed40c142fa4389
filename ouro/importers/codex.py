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

from ouro.importers.foreign_values import (
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
from ouro.importers.transcript_builder import (
    ForeignSession,
    TranscriptBuilder,
)
from ouro.messages import Image, Message, Part, Text, Thinking, ToolCall, Usage
from ouro.utils.lenient_json import dictionaries, dictionary

_ADDED_BY_PROGRAM = re.compile(
    r"\s*<(?:user_instructions|environment_context|permissions"
    r" instructions|collaboration_mode|skills_instructions"
    r"|apps_instructions|plugins_instructions|turn_aborted|subagent_notification|INSTRUCTIONS)"
    r"|\s*# AGENTS\.md instructions|\s*<skill>|\s*</?image\b[^>]*>\s*\Z"
)
"""Matches a text that the program added before the user's text, about its own sandbox and tools."""
_SHELL_LINE = re.compile(
    r"\s*<user_shell_command>\s*<command>(?P<line>.*?)</command>(?P<output>.*)\Z", re.DOTALL
)
"""Matches a line that the user ran in a shell, with its output."""
_ITEM_TYPES = {
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
"""Types of items that are read."""
_IGNORED_TYPES = {
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "compaction_trigger",
}
"""Types of items without text for users."""
_EXIT_CODE = re.compile(r"(?:Exit code: |Process exited with code )(\d{1,3})\b")
"""Matches the exit code at the start of the output of a command."""


def read_codex(path: Path) -> ForeignSession:
    """The session in a rollout file. Raises SessionError."""
    # Some versions wrote the messages of a role only as events: the first reading finds which.
    roles_with_items = {_speaker(line) for line in json_lines(path, Counter())}
    reader = _LineReader({"user", "assistant"} - roles_with_items)
    for line in json_lines(path, reader.builder.left_out):
        reader.add_line(line)
    return reader.finish(path)


def _speaker(line: Mapping[str, Any]) -> str:
    """The role of the message in a line, such as `user` or `assistant`. Empty if the line has no
    message, or a message with only text that the program added.
    """
    item = _item(line)
    if item.get("type") != "message":
        return ""
    texts = [part.text for part in texts_and_images(item.get("content")) if isinstance(part, Text)]
    has_own_text = any(not _ADDED_BY_PROGRAM.match(text) for text in texts)
    return str(item.get("role")) if has_own_text else ""


def _item(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item of the Responses API in a line; empty if it has none."""
    if line.get("type") == "response_item":
        return dictionary(line.get("payload"))
    # In the oldest files the line is the item.
    is_item = "payload" not in line and short_text(line.get("type")) in _ITEM_TYPES | _IGNORED_TYPES
    return line if is_item else {}


class _LineReader:
    """Takes the lines of a file in their order, and makes a session of them.

    Args:
        roles_from_events: the roles whose messages are only in events.
    """

    def __init__(self, roles_from_events: set[str]) -> None:
        self.builder = TranscriptBuilder()
        self._roles_from_events = roles_from_events
        """The roles whose messages are only in events. For other roles the file also has items, so
        their events are skipped.
        """
        self._answer = 0
        """The number of the message to which further items of the model are added; 0: none."""
        self._last_answer = 0
        """The number of the message that a reported usage belongs to; 0: none."""
        self._header: Mapping[str, Any] = {}
        self._model = self._provider = self._at = ""
        self._last_total: Any = None
        """The total of tokens that was reported last."""
        self._records_before = 0
        """The number of records before this line."""

    def add_line(self, line: dict[str, Any]) -> None:
        """Add what one line of the file has to the session: an item of the model, an event of the
        program, or the header. A line of an unknown kind is only counted.
        """
        builder = self.builder
        # The lines of the oldest layout have no times. After a line that added a message the time
        # advances by one millisecond, which keeps the order.
        has_added_record = len(builder.records) > self._records_before
        pause = 1 if has_added_record else 0
        self._at = parse_time(line.get("timestamp")) or add_milliseconds(self._at, pause)
        self._records_before = len(builder.records)
        payload, kind = line.get("payload"), line.get("type")
        if item := _item(line):
            self._take_item(item)
        elif isinstance(payload, dict):
            self._take_payload(kind, payload)
        elif "id" in line and "timestamp" in line and "type" not in line:
            self._take_header(line)  # of the oldest layout
        elif "record_type" not in line:
            # The oldest layout saves the state of the program in lines with a `record_type`.
            builder.left_out["lines of an unknown kind"] += 1

    def _take_payload(self, kind: Any, payload: dict[str, Any]) -> None:
        """Take the payload of a line that is not an item of the model: the header, the context of a
        turn, an event or a compaction. Unknown kinds are counted as left out.
        """
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
                # An empty summary is one that was encrypted for the provider.
                if isinstance(summary, str) and summary.strip():
                    self._answer = 0
                    builder.compact(summary, self._at)
            case _:
                builder.left_out[f"`{short_text(kind, 40) or 'nameless'}` lines"] += 1

    def finish(self, path: Path) -> ForeignSession:
        """The session with all lines that were taken. Without a header, the name of the file is its id."""
        self.builder.git_branch = short_text(dictionary(self._header.get("git")).get("branch"))
        self.builder.created = parse_time(self._header.get("timestamp"))
        return self.builder.finish("codex", short_text(self._header.get("id")) or path.stem, path)

    def _take_header(self, payload: Mapping[str, Any]) -> None:
        """Take the header of the session, once."""
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
                self._add_to_answer(_read_call(item))
            case "web_search_call" | "tool_search_call":
                # The provider ran it, so its results are not in the file.
                call_id = short_text(item.get("call_id")) or f"search_{len(self.builder.calls) + 1}"
                name = str(item["type"]).removesuffix("_call")
                self._add_to_answer(ToolCall(call_id, name, dictionary(item.get("action"))))
                self._add_result(
                    call_id, "(the provider looked this up; what it found was not kept)"
                )
            case "function_call_output" | "custom_tool_call_output":
                self._take_output(item)
            case kind if kind not in _IGNORED_TYPES and kind != "tool_search_output":
                self.builder.left_out[f"`{short_text(kind, 40) or 'nameless'}` items"] += 1

    def _take_thoughts(self, item: Mapping[str, Any]) -> None:
        """Add the thoughts of the model, if they are not encrypted."""
        pieces = [*dictionaries(item.get("summary")), *dictionaries(item.get("content"))]
        texts = [piece.get("text") for piece in pieces]
        thoughts = [text for text in texts if isinstance(text, str) and text.strip()]
        if thoughts:
            self._add_to_answer(Thinking(cut_text("\n\n".join(thoughts))))

    def _take_output(self, item: Mapping[str, Any]) -> None:
        """Add the result of a tool call, with the exit code that its text names."""
        text, images, failed = _read_output(item.get("output"))
        match = _EXIT_CODE.search(text[:400])
        exit_code = int(match[1]) if match else None
        call_id = short_text(item.get("call_id"))
        self._add_result(call_id, text, failed=failed, images=images, exit_code=exit_code)

    def _take_message(self, item: Mapping[str, Any]) -> None:
        """Add a message of the model, or a prompt without the texts that the program added. Messages of
        other roles are left out.
        """
        parts = texts_and_images(item.get("content"))
        if item.get("role") == "assistant":
            self._add_to_answer(*parts)
        elif item.get("role") == "user":
            self._take_user([part for part in parts if not _is_from_program(part)])

    def _take_user(self, parts: Sequence[Part]) -> None:
        """Add a prompt. A line that the user ran in a shell becomes a text with its output. Nothing is
        added for an empty prompt.
        """
        prompt: list[Part] = []
        for part in parts:
            if isinstance(part, Text) and (match := _SHELL_LINE.match(part.text)):
                line = match["line"].strip()
                output = re.sub(r"</?(?:result|user_shell_command)>", "", match["output"]).strip()
                prompt.append(Text(f"I ran this in a shell:\n\n$ {line}\n{output}".strip()))
            else:
                prompt.append(part)
        if prompt:
            self._answer = 0
            self.builder.add_prompt(prompt, self._at)

    def _add_to_answer(self, *parts: Part) -> None:
        """Add parts to the answer of the model; begin an answer if there is none."""
        if not parts:
            return
        if self._answer:
            self.builder.extend(self._answer, parts)
            return
        model = self._model
        if model and "/" not in model:
            model = f"{self._provider or 'openai'}/{model}"
        message = Message("assistant", parts, model=model)
        self._answer = self._last_answer = self.builder.add(message, self._at)

    def _add_result(self, call_id: str, text: str, **details: Any) -> None:
        """Add a tool result, which ends the answer. `details` are arguments of `make_reply`."""
        self._answer = 0
        reply = self.builder.make_reply(call_id, text, **details)
        self.builder.add(Message("tool", (reply,)), self._at)

    def _take_event(self, event: Mapping[str, Any]) -> None:
        """Take an event with the usage, a rewind, the title, or a message that has no item. Other events
        repeat items, and are not read.
        """
        match event.get("type"):
            case "token_count":
                self._count_tokens(dictionary(event.get("info")))
            case "thread_rolled_back":
                turns, prompts = count_of(event.get("num_turns")), self.builder.prompts
                if turns and prompts:  # the last `turns` were undone; there may be fewer here
                    self._answer = 0
                    first_undone = prompts[-min(turns, len(prompts))]
                    branch = self.builder.branch
                    remaining = [number for number in branch if number < first_undone]
                    self.builder.rewind(max(remaining, default=0), self._at)
            case "thread_name_updated":
                self.builder.set_title(short_text(event.get("thread_name")))
            case ("user_message" | "agent_message") as kind:
                self._take_message_event(kind, event)

    def _count_tokens(self, info: Mapping[str, Any]) -> None:
        """Add the usage of a request to that of the last answer. The same request may be reported
        several times; a report with the total of the one before is not added again.
        """
        total = info.get("total_token_usage")
        if not info or not self._last_answer or total == self._last_total:
            return
        self._last_total = total
        if isinstance(request := info.get("last_token_usage"), dict):
            request_usage = Usage(
                input=count_of(request.get("input_tokens")),
                cached=count_of(request.get("cached_input_tokens")),
                output=count_of(request.get("output_tokens")),
            )
            message = self.builder.message(self._last_answer)
            usage = (message.usage or Usage()) + request_usage
            self.builder.replace_message(self._last_answer, replace(message, usage=usage))

    def _take_message_event(self, kind: str, event: Mapping[str, Any]) -> None:
        """Add a message from its event, if the file has no items for this role."""
        role = "user" if kind == "user_message" else "assistant"
        text = event.get("message")
        if role not in self._roles_from_events or not isinstance(text, str):
            return
        if role == "assistant":
            self._add_to_answer(Text(cut_text(text)))
            return
        images = event.get("images")
        pictures = map(image_from_url, images) if isinstance(images, list) else ()
        self._take_user([Text(cut_text(text)), *pictures])


def _is_from_program(part: Part) -> bool:
    """Whether a part is text that the program added to the user's text."""
    return isinstance(part, Text) and _ADDED_BY_PROGRAM.match(part.text) is not None


def _read_call(item: Mapping[str, Any]) -> ToolCall:
    """A tool call from an item of any of the three types that Codex has."""
    call_id = short_text(item.get("call_id")) or short_text(item.get("id"))
    if item.get("type") == "local_shell_call":
        return ToolCall(call_id, "local_shell", dictionary(item.get("action")))
    name = short_text(item.get("name")) or "unknown"
    if item.get("type") == "custom_tool_call":
        return ToolCall(call_id, name, {"input": str(item.get("input") or "")})
    return parse_call(call_id, name, item.get("arguments"))


def _read_output(output: Any) -> tuple[str, tuple[Image, ...], bool]:
    """The text of a tool result, its images, and whether it failed. `output` is a text, a list of blocks
    or an object around one of them, by the version of Codex.
    """
    if isinstance(output, dict):
        text, images, failed = _read_output(output.get("content", output.get("output")))
        return text, images, failed or output.get("success") is False
    if isinstance(output, list):
        parts = texts_and_images(output)
        images = tuple(part for part in parts if isinstance(part, Image))
        return "\n".join(part.text for part in parts if isinstance(part, Text)), images, False
    text = output if isinstance(output, str) else ""
    older_output = _parse_older_output(text)
    if older_output is None:
        return cut_text(text), (), False
    exit_code = dictionary(older_output.get("metadata")).get("exit_code")
    return cut_text(older_output["output"]), (), isinstance(exit_code, int) and exit_code != 0


def _parse_older_output(text: str) -> Mapping[str, Any] | None:
    """The object `{"output": …, "metadata": …}` of older versions; None for any other text."""
    if not text.startswith('{"output":'):
        return None
    try:
        output = json.loads(text)
    except (ValueError, RecursionError):
        return None
    has_text = isinstance(output, dict) and isinstance(output.get("output"), str)
    return output if has_text else None
