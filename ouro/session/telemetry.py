"""Telemetry: what turns do, as records for a process that exports them with OpenTelemetry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ouro import events
from ouro.events import Event
from ouro.messages import Message, Usage
from ouro.utils.log import log

WORKER = ("-P", "-m", "ouro.session.telemetry_worker")
MAX_WAITING = 1_000_000
"""Bytes that wait for the process; later records are dropped."""
MAX_TEXT = 10_000
Attributes = dict[str, Any]


class TelemetryExport:
    """The process that exports. It is started for the first record, and ends by itself after the
    pipe is closed: neither a turn nor the end of ouro waits for it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting = b""
        """What the pipe has not taken yet."""
        self._has_failed = False

    def send(self, record: Mapping[str, Any]) -> None:
        """Write a record to the pipe, as far as it can be done without waiting. What the pipe does
        not take is written with a later record; if too much waits, because the process does not
        read, the record is dropped. After an error nothing is sent any more.
        """
        if self._has_failed:
            return
        data = json.dumps(record, ensure_ascii=True).encode() + b"\n"
        if len(self._waiting) + len(data) <= MAX_WAITING:
            self._waiting += data
        try:
            with suppress(BlockingIOError):
                written_bytes = os.write(self._open_pipe(), self._waiting)
                self._waiting = self._waiting[written_bytes:]
        except OSError as error:
            log.warning("telemetry: %s", error)
            self._has_failed = True

    def close(self) -> None:
        """Write what still waits, as far as the pipe takes it, and end the process by closing its
        input.
        """
        if self._process is None or self._process.stdin is None:
            return
        with suppress(OSError):
            os.write(self._process.stdin.fileno(), self._waiting)
        with suppress(OSError):
            self._process.stdin.close()

    def _open_pipe(self) -> int:
        """The descriptor of the pipe to the process, which is started if it does not run yet.
        Raises OSError.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, *WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(self._environment),
                bufsize=0,
                start_new_session=True,  # Ctrl+C is for ouro
            )
            if self._process.stdin is not None:
                os.set_blocking(self._process.stdin.fileno(), False)
        if self._process.stdin is None:
            raise OSError("it has no pipe")
        return self._process.stdin.fileno()


class Telemetry:
    """The events of turns as spans and counts, in the terms of OpenTelemetry's GenAI conventions.

    Args:
        session_id: returns the id of the session; called when a turn begins.
        mask: removes secrets from texts; None if no texts are sent.
    """

    def __init__(
        self,
        export: TelemetryExport,
        session_id: Callable[[], str],
        mask: Callable[[str], str] | None = None,
    ) -> None:
        self._export = export
        self._session_id = session_id
        self._mask = mask
        self._is_open = False
        """Whether a turn has begun and not ended."""
        self._model_asked_at = 0
        """When the model was asked last, in nanoseconds: the time of what it answers, which is the
        prompt, the result of a tool, or the end of a compaction. It is the start of the span of its
        answer.
        """
        self._tools: dict[str, tuple[int, Attributes]] = {}
        """The start and the attributes of each running tool call, by its id."""

    def add(self, event: Event) -> None:
        """Send the records that follow from an event of a turn. The first event after a turn has
        ended begins the next one.
        """
        now = time.time_ns()
        if not self._is_open and not isinstance(event, events.TurnFinished):
            self._begin_turn(now)
        match event:
            case events.Prompted(text):
                self._model_asked_at = now
                self._send(
                    "note", now, self._message_attributes("gen_ai.input.messages", "user", text)
                )
            case events.Replied(message):
                self._end_call(message, now)
            case events.ToolStarted(call):
                attributes = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
                if self._mask:  # texts are sent
                    arguments = json.dumps(dict(call.arguments), default=str)
                    attributes["gen_ai.tool.call.arguments"] = self._mask_text(arguments)
                self._tools[call.id] = now, attributes
            case events.ToolFinished():
                self._end_tool(event, now)
            case events.Compacted():
                self._model_asked_at = now
            case events.TurnFinished(outcome):
                self._end_turn(outcome, now)
            case _:
                pass

    def close(self) -> None:
        self._export.close()

    def _begin_turn(self, now: int) -> None:
        """Send the beginning of a turn; `now` is in nanoseconds, as in all records."""
        self._is_open, self._model_asked_at = True, now
        self._tools.clear()
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "ouro",
            "gen_ai.conversation.id": self._session_id(),
        }
        self._send("begin", now, attributes, name="invoke_agent ouro")

    def _end_turn(self, outcome: str, now: int) -> None:
        """Send the end of the turn, if one has begun."""
        if not self._is_open:
            return
        self._is_open = False
        error = {} if outcome == "answered" else {"error.type": outcome}
        self._send("end", now, {"ouro.outcome": outcome, **error})

    def _end_call(self, message: Message, now: int) -> None:
        """Send the span of a model call, which began when the model was asked last."""
        # Of `openrouter/vendor/model` the first word is the provider, the last one the model.
        provider, _, model = message.model.rpartition("/")
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider.partition("/")[0],
            "gen_ai.request.model": model,
        }
        attributes |= _usage_attributes(message.usage)
        attributes |= self._message_attributes("gen_ai.output.messages", "assistant", message.text)
        self._send(
            "span", now, attributes, name=f"chat {model}", start=self._model_asked_at, client=True
        )
        self._model_asked_at = now

    def _end_tool(self, event: events.ToolFinished, now: int) -> None:
        """Send the span of a tool call. One whose start was not seen begins and ends now."""
        unseen_start = (now, {"gen_ai.tool.name": event.name})
        start, start_attributes = self._tools.pop(event.call_id, unseen_start)
        attributes = {"gen_ai.operation.name": "execute_tool", **start_attributes}
        if event.failed:
            attributes["error.type"] = "tool_error"
        self._send("span", now, attributes, name=f"execute_tool {event.name}", start=start)
        self._model_asked_at = now

    def _message_attributes(self, name: str, role: str, text: str) -> Attributes:
        """The attribute with a message, as OpenTelemetry's conventions for models write it; empty
        if no texts are sent.
        """
        if self._mask is None:
            return {}
        parts = [{"type": "text", "content": self._mask_text(text)}]
        return {name: json.dumps([{"role": role, "parts": parts}])}

    def _mask_text(self, text: str) -> str:
        """The beginning of a text without secrets; empty if no texts are sent."""
        return self._mask(text)[:MAX_TEXT] if self._mask else ""

    def _send(self, kind: str, now: int, attributes: Attributes, **fields: Any) -> None:
        self._export.send({"kind": kind, "time": now, "attributes": attributes, **fields})


def _usage_attributes(usage: Usage | None) -> Attributes:
    """Tokens and cost as attributes; empty if they are not known."""
    if usage is None:
        return {}
    counts: Attributes = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_written,
    }
    return counts if usage.cost is None else {**counts, "ouro.cost": usage.cost}
