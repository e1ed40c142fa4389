"""Events as plain data, for JSON lines; the names are stable and documented in docs/headless.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, assert_never

from msgspec.structs import asdict

from ouro.display import Body, CommandOutput, Diff, Display, FileChange, Picture, Plain, Question, Todo, Todos
from ouro.events import (
    Compacted,
    Compacting,
    CoreChanged,
    Event,
    NoteKept,
    NotesRecalled,
    PermissionAsked,
    Prompted,
    QuestionAsked,
    QuestionClosed,
    Replied,
    Retrying,
    Said,
    TextDelta,
    ThinkingDelta,
    Titled,
    TodosChanged,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    UsageUpdated,
)
from ouro.messages import Image, Message, Thinking, ToolCall, Usage

Data = dict[str, Any]


def event_to_json(event: Event) -> Data:
    """The event as a JSON object; `type` is its name, in small letters with underscores."""
    match event:
        case Prompted():
            return _typed("prompted", text=event.text, images=[_image(image) for image in event.images])
        case TextDelta():
            return _typed("text_delta", text=event.text)
        case ThinkingDelta():
            return _typed("thinking_delta", text=event.text)
        case Replied():
            return _typed("replied", **_message(event.message))
        case ToolStarted():
            return _typed("tool_started", call=_call(event.call), title=event.title)
        case ToolProgress():
            return _typed("tool_progress", call_id=event.call_id, text=event.text)
        case ToolFinished():
            return _tool_finished(event)
        case PermissionAsked():
            return _permission_asked(event)
        case QuestionAsked():
            return _typed("question_asked", question_id=event.question_id, question=_question(event.question))
        case QuestionClosed():
            return _typed("question_closed", question_id=event.question_id)
        case TodosChanged():
            return _typed("todos_changed", todos=[_todo(todo) for todo in event.todos])
        case Retrying():
            return _typed("retrying", reason=event.reason, attempt=event.attempt, wait=event.wait, model=event.model)
        case UsageUpdated():
            usage = usage_to_json(event.session)
            return _typed("usage_updated", session=usage, context=event.context, window=event.window)
        case Compacting():
            return _typed("compacting", written=event.written, part=event.part, parts=event.parts)
        case Compacted():
            spent = usage_to_json(event.usage) if event.usage else None
            return _typed("compacted", **asdict(event) | {"usage": spent})
        case Titled():
            return _typed("titled", title=event.title)
        case NotesRecalled():
            items = [asdict(item) for item in event.items]
            return _typed("notes_recalled", items=items, way=event.way, milliseconds=round(event.milliseconds, 1))
        case NoteKept():
            return _typed("note_kept", **asdict(event))
        case CoreChanged():
            return _typed("core_changed", **asdict(event) | {"display": _display(event.display)})
        case Said():
            return _typed("said", text=event.text, level=event.level)
        case TurnFinished():
            return _typed("turn_finished", outcome=event.outcome, detail=event.detail)
        case _:
            assert_never(event)


def usage_to_json(usage: Usage) -> Data:
    """Tokens and dollars; `cost` is null where the price is not known."""
    return {
        "input": usage.input,
        "cached": usage.cached,
        "cache_written": usage.cache_written,
        "output": usage.output,
        "cost": usage.cost,
    }


def json_line(data: Mapping[str, Any]) -> str:
    """One line of JSON in ASCII: no text in it can break the line or reach a terminal."""
    return json.dumps(data, default=str, separators=(",", ":")) + "\n"


def _typed(name: str, /, **fields: Any) -> Data:
    return {"type": name, **fields}


def _tool_finished(event: ToolFinished) -> Data:
    return _typed(
        "tool_finished",
        call_id=event.call_id,
        name=event.name,
        display=_display(event.display),
        failed=event.failed,
        seconds=round(event.seconds, 3),
    )


def _permission_asked(event: PermissionAsked) -> Data:
    return _typed(
        "permission_asked",
        question_id=event.question_id,
        call=_call(event.call),
        title=event.title,
        display=_display(event.display),
        reason=event.reason,
        rule=event.rule,
    )


def _message(message: Message) -> Data:
    thinking = "\n\n".join(part.text for part in message.parts_of(Thinking) if part.text)
    return {
        "text": message.text,
        "thinking": thinking,
        "calls": [_call(call) for call in message.tool_calls],
        "usage": usage_to_json(message.usage) if message.usage else None,
        "model": message.model,
        "cut": message.cut,
    }


def _call(call: ToolCall) -> Data:
    data: Data = {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}
    return {**data, "malformed": call.malformed} if call.malformed else data


def _image(image: Image) -> Data:
    return {"name": image.name, "media_type": image.media_type, "bytes": len(image.data)}


def _question(question: Question) -> Data:
    return {
        "text": question.text,
        "choices": list(question.choices),
        "several": question.several,
        "details": question.details,
    }


def _todo(todo: Todo) -> Data:
    return {"text": todo.text, "state": todo.state}


def _display(display: Display) -> Data:
    return {"summary": display.summary, "body": _body(display.body) if display.body else None}


def _body(body: Body) -> Data:
    match body:
        case Plain():
            return {"kind": "plain", "text": body.text, "language": body.language}
        case Diff():
            return {"kind": "diff", "changes": [_change(change) for change in body.changes]}
        case CommandOutput():
            fields = {"command": body.command, "output": body.output, "exit_code": body.exit_code}
            return {"kind": "command", **fields}
        case Picture():
            return {"kind": "picture", "name": body.name, "media_type": body.media_type, "bytes": body.bytes}
        case Todos():
            return {"kind": "todos", "items": [_todo(todo) for todo in body.items]}
        case _:
            assert_never(body)


def _change(change: FileChange) -> Data:
    return {
        "path": change.path,
        "before": change.before,
        "after": change.after,
        "moved_to": change.moved_to,
    }
