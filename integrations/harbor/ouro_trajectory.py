"""What `ouro -p --output stream-json` printed, as a trajectory in Harbor's format (ATIF)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

SCHEMA = "ATIF-v1.6"
_MAX_OUTPUT = 20_000
"""Characters of one tool result: a trajectory is read by people and by models."""


def read_events(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The events; a line that was cut when the container ended is left out."""
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def result_of(events: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The last result; empty if ouro was ended before it printed one."""
    results = [event for event in events if event.get("type") == "result"]
    return results[-1] if results else {}


def trajectory(events: list[dict[str, Any]], version: str) -> dict[str, Any] | None:
    """The trajectory as JSON; None if the session had not begun."""
    session = next((event for event in events if event.get("type") == "session"), None)
    steps = _steps(events)
    if session is None or not steps:
        return None
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    found: dict[str, Any] = {
        "schema_version": SCHEMA,
        "session_id": session["session_id"],
        "agent": {"name": "ouro", "version": version, "model_name": session.get("model") or None},
        "steps": numbered,
    }
    usage = result_of(events).get("usage") or {}
    if usage:
        totals = {f"total_{name}": value for name, value in _metrics(usage).items()}
        found["final_metrics"] = {**totals, "total_steps": len(numbered)}
    return found


def _steps(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for event in events:
        match event.get("type"):
            case "prompted":
                steps.append({"source": "user", "message": event.get("text", "")})
            case "replied":
                steps.append(_reply(event))
            case "tool_finished":
                _add_result(steps, event)
    return steps


def _reply(event: Mapping[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": event.get("text", "")}
    if event.get("model"):
        step["model_name"] = event["model"]
    if event.get("thinking"):
        step["reasoning_content"] = event["thinking"]
    calls = [_call(call) for call in event.get("calls") or ()]
    if calls:
        step["tool_calls"] = calls
    if event.get("usage"):
        step["metrics"] = _metrics(event["usage"])
    return step


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    return {
        "tool_call_id": str(call.get("id")),
        "function_name": str(call.get("name")),
        "arguments": arguments if isinstance(arguments, dict) else {"malformed": arguments},
    }


def _add_result(steps: list[dict[str, Any]], event: Mapping[str, Any]) -> None:
    """Add a tool result to the step that called the tool; a subagent's call has none."""
    for step in reversed(steps):
        ids = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        if event.get("call_id") in ids:
            observation = step.setdefault("observation", {"results": []})
            text = _text(event.get("display") or {})
            observation["results"].append({"source_call_id": event["call_id"], "content": text})
            return


def _text(display: Mapping[str, Any]) -> str:
    body = display.get("body") or {}
    parts = [str(display.get("summary") or "")]
    parts.append(str(body.get("output") or body.get("text") or ""))
    changed = [change.get("path") for change in body.get("changes") or ()]
    parts += [str(path) for path in changed]
    return "\n".join(part for part in parts if part)[:_MAX_OUTPUT]


def _metrics(usage: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "prompt_tokens": "input",
        "completion_tokens": "output",
        "cached_tokens": "cached",
        "cost_usd": "cost",
    }
    found = {name: usage.get(own) for name, own in names.items()}
    return {name: value for name, value in found.items() if value is not None}
