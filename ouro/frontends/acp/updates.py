"""EventUpdates: the events of a session as updates of the protocol."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from acp import helpers
from acp import schema as acp

from ouro import events
from ouro.display import CommandOutput, Diff, Display, Plain, Todo
from ouro.events import Event
from ouro.frontends.event_lines import notice_of, retry_line
from ouro.messages import ToolCall, Usage
from ouro.utils.ouro_paths import expand_home
from ouro.utils.text import clean, code_block, one_line

Update = Any
"""Any of the models that `session/update` can contain."""
TOOL_KINDS: dict[str, acp.ToolKind] = {
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "notebook_edit": "edit",
    "apply_patch": "edit",
    "glob": "search",
    "grep": "search",
    "memory_search": "search",
    "tool_search": "search",
    "web_fetch": "fetch",
    "web_search": "fetch",
    "lsp": "search",
    "shell": "execute",
    "shell_output": "execute",
    "shell_kill": "execute",
    "shell_input": "execute",
    "todo": "think",
}
_TODO_STATES: dict[str, acp.PlanEntryStatus] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "done": "completed",
}
_MAX_TITLE = 200
"""Characters of the title of a call. Editors show one line of it."""
_MAX_OUTPUT = 10_000
"""Characters of running output in each update, for clients that cannot show a terminal."""


class EventUpdates:
    """Makes the updates of one session."""

    def __init__(
        self, cwd: Path, terminals: Mapping[str, str], *, has_terminals: bool = False
    ) -> None:
        """Make the updates of a session.

        Args:
            terminals: the terminal of the editor in which each call runs its command, by the id of
                the call. A call whose command ouro runs itself is not in here.
            has_terminals: whether the editor can show output in a terminal without running the
                command (`_meta.terminal_output`, as Zed does).
        """
        self._cwd = cwd
        self._terminals = terminals
        self._has_terminals = has_terminals
        self._open_calls: dict[str, str] = {}
        """The calls that were sent to the editor and have no result yet, by their ids, each with its
        output so far.
        """

    def updates_of(self, event: Event) -> Iterator[Update]:
        """The updates for an event. Events that only a screen needs have none."""
        match event:
            case events.TextDelta(text):
                yield helpers.update_agent_message_text(text)
            case events.ThinkingDelta(text):
                yield helpers.update_agent_thought_text(text)
            case events.ToolStarted():
                yield self._start_update(event)
            case events.ToolRunning(call_id):
                yield helpers.update_tool_call(call_id, status="in_progress")
            case events.ToolProgress():
                yield self._progress_update(event)
            case events.ToolFinished():
                yield self._end_update(event)
            case events.SubagentProgress():
                line = (
                    f"{event.id} ({event.state}): {event.activity or event.task}\n{event.figures}"
                )
                yield helpers.update_tool_call(event.call_id, content=[_text_content(clean(line))])
            case events.TodosChanged(todos):
                yield plan_update(todos)
            case events.UsageUpdated():
                yield _context_update(event)
            case events.Titled(title):
                yield acp.SessionInfoUpdate(session_update="session_info_update", title=title)
            case events.NotesRecalled() | events.TurnFinished():
                pass
            case events.Retrying():
                reason = retry_line(event, event.wait)
                yield notice(f"{reason} What the answer had so far does not count.")
            case _:
                if event_notice := notice_of(event):
                    yield notice(event_notice[0])

    def end_open_calls(self) -> Iterator[Update]:
        """The updates at the end of a turn for calls that will get no result, because the turn was
        interrupted. Without these updates an editor would show for ever that the calls wait or run.
        """
        for call_id in self._open_calls:
            yield helpers.update_tool_call(call_id, status="failed")
        self.forget_open_calls()

    def forget_open_calls(self) -> None:
        """Forget the calls without a result. Then `replay`, which sends the session again, also sends
        the beginning of these calls again.
        """
        self._open_calls.clear()

    def replay(self, event: Event) -> Iterator[Update]:
        """The updates for an event of a saved session. Unlike the updates of live events, they
        include the user's messages.
        """
        if not isinstance(event, events.Prompted):
            yield from self.updates_of(event)
            return
        if event.text:
            yield helpers.update_user_message_text(event.text)
        for image in event.images:
            picture = helpers.image_block(base64.b64encode(image.data).decode(), image.media_type)
            yield helpers.update_user_message(picture)

    def permission_call(
        self, call: ToolCall, title: str, display: Display | None = None
    ) -> acp.ToolCallUpdate:
        """The tool call of a permission question, with what it would do. Editors show one line of a
        title, so one with more lines is also in the content, whole.
        """
        short_title, whole_title = split_title(title)
        content = [*whole_title, *(self._content(display) if display else [])]
        return acp.ToolCallUpdate(
            tool_call_id=call.id,
            title=short_title,
            kind=TOOL_KINDS.get(call.name, "other"),
            status="pending",
            content=content or None,
            locations=self._locations(call, display),
            raw_input=dict(call.arguments),
        )

    def _start_update(self, event: events.ToolStarted) -> Update:
        """The update that begins a call. If it was sent already, the update changes the title, places
        and arguments of the call.
        """
        call = event.call
        title, arguments = split_title(event.title)[0], dict(call.arguments)
        locations = self._locations(call)
        if call.id in self._open_calls:  # a hook changed its arguments
            return helpers.update_tool_call(
                call.id, title=title, locations=locations, raw_input=arguments
            )
        self._open_calls[call.id] = ""
        content: list[Any] | None = None
        meta: dict[str, Any] | None = None
        if self._has_terminals and call.name == "shell":
            content = [acp.TerminalToolCallContent(type="terminal", terminal_id=call.id)]
            meta = _terminal_meta(call.id, "info", cwd=str(self._cwd))
        return acp.ToolCallStart(
            session_update="tool_call",
            tool_call_id=call.id,
            title=title,
            kind=TOOL_KINDS.get(call.name, "other"),
            status="pending",
            content=content,
            locations=locations,
            raw_input=arguments,
            field_meta=meta,
        )

    def _progress_update(self, event: events.ToolProgress) -> Update:
        """The update for new output of a call. If the command runs in a terminal of the editor, the
        update names this terminal. Otherwise an editor that can show terminals gets the new output, and
        any other editor the last `_MAX_OUTPUT` characters of the whole output.
        """
        if event.call_id in self._terminals:
            return helpers.update_tool_call(event.call_id, content=self._terminal_of(event.call_id))
        if self._has_terminals:
            meta = _terminal_meta(event.call_id, "output", data=event.text)
            return _meta_update(event.call_id, meta)
        output = self._open_calls.get(event.call_id, "") + event.text
        output = output[-_MAX_OUTPUT:]
        self._open_calls[event.call_id] = output
        return helpers.update_tool_call(event.call_id, content=[_text_content(code_block(output))])

    def _end_update(self, event: events.ToolFinished) -> Update:
        """The update with the result of a call, which is not open any more. If the editor has shown the
        output of the command in a terminal, the update has only the status and the exit code.
        """
        self._open_calls.pop(event.call_id, None)
        status: acp.ToolCallStatus = "failed" if event.failed else "completed"
        body = event.display.body
        if self._has_terminals and event.name == "shell" and isinstance(body, CommandOutput):
            meta = _terminal_meta(event.call_id, "exit", exit_code=body.exit_code, signal=None)
            return _meta_update(event.call_id, meta, status=status)
        content = self._terminal_of(event.call_id) or self._content(event.display)
        locations = self._locations(call=None, display=event.display)
        return helpers.update_tool_call(
            event.call_id, status=status, content=content, locations=locations
        )

    def _terminal_of(self, call_id: str) -> list[Any]:
        """The editor's terminal of a call, as content; empty if it has none."""
        terminal_id = self._terminals.get(call_id)
        if not terminal_id:
            return []
        return [acp.TerminalToolCallContent(type="terminal", terminal_id=terminal_id)]

    def _content(self, display: Display) -> list[Any]:
        """What a call shows: diffs, the output of a command, a text, or its summary."""
        match display.body:
            case Diff(changes):
                content = []
                for change in changes:
                    absolute_path = self._absolute(change.moved_to or change.path)
                    content.append(
                        helpers.tool_diff_content(absolute_path, change.after or "", change.before)
                    )
                return content
            case CommandOutput(command, output, exit_code):
                # Without an exit code it has not run yet: a question shows the command.
                without_output = command if exit_code is None else "(no output)"
                return [_text_content(code_block(output or without_output))]
            case Plain(text, language):
                return [_text_content(code_block(text, language))]
            case _:
                return [_text_content(clean(display.summary))]

    def _locations(
        self, call: ToolCall | None, display: Display | None = None
    ) -> list[acp.ToolCallLocation] | None:
        """The places in files that a call is about. They are the changed files if `display` has a
        diff, otherwise the file that the arguments of the call name. None if there are none.
        """
        if display is not None and isinstance(display.body, Diff):
            return [
                acp.ToolCallLocation(
                    path=self._absolute(change.moved_to or change.path), line=_first_change(change)
                )
                for change in display.body.changes
            ]
        if call is None or call.name not in TOOL_KINDS:
            return None
        path = call.arguments.get("path")
        if not isinstance(path, str) or not path:
            return None
        offset = call.arguments.get("offset") if call.name == "read" else None
        line = offset if isinstance(offset, int) else None
        return [acp.ToolCallLocation(path=self._absolute(path), line=line)]

    def _absolute(self, path: str) -> str:
        return os.path.normpath(self._cwd / expand_home(path.replace("\0", "\ufffd")))


def _context_update(event: events.UsageUpdated) -> Update:
    """The update with the use of the window and the cost of the session."""
    cost = event.session.cost
    price = acp.Cost(amount=cost, currency="USD") if cost is not None else None
    return acp.UsageUpdate(
        session_update="usage_update", used=event.context, size=event.window, cost=price
    )


def plan_update(todos: Sequence[Todo]) -> Update:
    """The update with the agent's todo list."""
    return helpers.update_plan(
        helpers.plan_entry(clean(todo.text), status=_TODO_STATES[todo.state]) for todo in todos
    )


def notice(text: str) -> Update:
    """A message from ouro itself, quoted to distinguish it from the text of the model."""
    quoted = "\n".join(f"> {line}" for line in clean(text).splitlines())
    return helpers.update_agent_message_text(f"\n\n{quoted}\n\n")


def prompt_usage(usage: Usage) -> acp.Usage | None:
    """The tokens of a prompt in the form of the protocol; None if they are not known, as of a prompt
    that was cancelled before the answer of the model had ended: a zero would be wrong.
    """
    if not (usage.input or usage.output):
        return None
    return acp.Usage(
        total_tokens=usage.input + usage.output,
        input_tokens=usage.input,
        output_tokens=usage.output,
        cached_read_tokens=usage.cached,
        cached_write_tokens=usage.cache_written,
    )


def split_title(title: str) -> tuple[str, list[Any]]:
    """A title on one line, for an editor; and the whole text as content if that leaves some out."""
    whole_title = clean(title).strip()
    short_title = one_line(title, _MAX_TITLE)
    if short_title == whole_title:
        return short_title, []
    return short_title, [_text_content(code_block(whole_title))]


def _text_content(text: str) -> acp.ContentToolCallContent:
    return helpers.tool_content(helpers.text_block(text))


def _first_change(change: Any) -> int:
    """The number of the first line that a FileChange changes, counted from 1 in the whole file. The
    change itself may have only a part of a long file, which begins at `first_line`.
    """
    before, after = (change.before or "").splitlines(), (change.after or "").splitlines()
    equal_lines = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        equal_lines += 1
    first: int = change.first_line
    return first + equal_lines


def _terminal_meta(
    call_id: str, what: Literal["info", "output", "exit"], **fields: Any
) -> dict[str, Any]:
    """The `_meta` of an update for a terminal that only shows output. Such terminals are an
    extension that Zed has made.
    """
    return {f"terminal_{what}": {"terminal_id": call_id, **fields}}


def _meta_update(
    call_id: str, meta: dict[str, Any], status: acp.ToolCallStatus | None = None
) -> Update:
    """An update of a call that has only metadata, and its status if that is given."""
    return acp.ToolCallProgress(
        session_update="tool_call_update", tool_call_id=call_id, status=status, field_meta=meta
    )
