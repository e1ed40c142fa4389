"""The steps of a very small model: requests that ask one thing at a time, and calls that need no
model.

A model of 1.5 billion parameters writes a file well when it is asked for that file alone, and badly
as a string in a JSON object. After a long session it repeats the command that failed. So it only
names the file to change; a separate request asks for the new text, from which the `edit` is made.
After a failed command a request asks which file has the fault; after the change the command is run
again. All steps are ordinary tool calls; the next step follows from the messages.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec
from msgspec.structs import replace

from ouro.llm.model import ToolSpec
from ouro.llm.remembered_lines import quote_lines
from ouro.messages import Message, Part, ToolCall, ToolReply
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import cut_middle

CHANGE = ToolSpec(
    "change",
    "Change a file that exists: you are asked for its new text next.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
_TO_CHANGE, _CHANGED, _FAULT, _AGAIN = "tochange_", "changed_", "fault_", "again_"
"""Prefixes of the ids of calls that are steps."""
_NOT_OFFERED = {"subagent", "todo", "shell_output", "shell_kill"}
"""A very small model uses these tools to delay the task."""
_NEEDED = {"read", "edit", "write", "glob", "shell"}
_MAX_FAILURES = 3
"""After so many failed commands in a turn no more steps are asked."""
_MAX_FILES = 40
_MAX_LINES = 400
_MAX_TASK, _MAX_OUTPUT = 2_000, 3_000
"""Maximum characters of the task and of the output in a request."""
_WANTS_CHANGE = late_pattern(
    r"\b(?:mend|fix|repair|correct|solve|debug|make|change|implement|improve|get"
    r" .{0,40}\b(?:work|pass)\w*)\b",
    re.IGNORECASE,
)
_FAILED = late_pattern(r"^\[exit code (?!12[67]\b)\d", re.MULTILINE)
"""The command ran and failed. Do not match 126 and 127: the command itself was wrong."""
_MISSING = late_pattern(r"does not exist\b")
_TEST = late_pattern(
    r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)(?:test_|conftest)|[._-](?:test|spec)s?\.\w+$",
    re.IGNORECASE,
)
_ELIDED = late_pattern(
    r"\W*(?:\.\.\.|…|(?:the )?rest of|(?:existing|remaining|other) (?:code|\w+ unchanged))",
    re.IGNORECASE,
)
"""Matches a placeholder line for lines that the model left out."""
_MIN_LEFT = 0.5
"""An answer with a smaller share of the lines is not the whole file."""
_LINE = late_pattern(r"\d+\t(.*)")
_FENCE = late_pattern(r"^```[^\n`]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class StepRequest(msgspec.Struct, frozen=True):
    """A request about one step. `call` makes the tool call from the answer; None: the answer cannot
    be used.
    """

    text: str
    schema: Mapping[str, Any]
    """Empty: free text."""
    call: Callable[[str], ToolCall | None]


def next_step(
    messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> ToolCall | StepRequest | None:
    """The next step of the turn: a call that needs no model, a separate request, or None: ask for
    the next tool.
    """
    turn = _Turn.of(messages)
    if turn is None or not {tool.name for tool in tools} >= _NEEDED:
        return None
    call, reply = turn.last
    if call.id.startswith(_TO_CHANGE):
        path = str(call.arguments["path"])
        return turn.ask_for_text(path, reply, quote_lines(messages, f"{path}\n{turn.task}"))
    if call.id.startswith(_FAULT) and not reply.failed:
        return turn.ask_for_file(reply.text.splitlines())
    if call.id.startswith(_CHANGED) and not reply.failed and turn.failure:
        return ToolCall(_step_id(_AGAIN), "shell", turn.failure[0].arguments)
    if call.name == "shell" and turn.wants_repair:
        return ToolCall(_step_id(_FAULT), "glob", {"pattern": "**"})
    return None


def small_tools(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The tools for a very small model: `change` instead of `edit`, unless `change` has just
    failed.
    """
    turn = _Turn.of(messages)
    offered = [tool for tool in tools if tool.name not in _NOT_OFFERED]
    if not {tool.name for tool in tools} >= _NEEDED or (
        turn and turn.last[0].id.startswith(_TO_CHANGE)
    ):
        return offered
    return [CHANGE if tool.name == "edit" else tool for tool in offered]


def begin_change(call: ToolCall, messages: Sequence[Message]) -> ToolCall:
    """The call to run for the call that the model chose: a change begins with reading the file."""
    turn, path = _Turn.of(messages), call.arguments.get("path")
    if call.name == "change" or (call.name == "write" and turn and path in turn.read):
        return ToolCall(_step_id(_TO_CHANGE), "read", {"path": path})
    return call


def hide_steps(messages: Sequence[Message]) -> list[Message]:
    """The messages with one call of `change` instead of the steps that led to it.

    A very small model would repeat calls that it did not choose.
    """
    return [
        replace(message, parts=tuple(map(_as_change, message.parts)))
        for message in messages
        if not _is_hidden(message)
    ]


def _is_hidden(message: Message) -> bool:
    """Whether a message is only a step on the way to a change: one call, or its result."""
    ids = [call.id for call in message.tool_calls]
    ids += [reply.call_id for reply in message.parts_of(ToolReply)]
    return len(ids) == 1 and ids[0].startswith((_TO_CHANGE, _FAULT))


def _as_change(part: Part) -> Part:
    """The step that made a change as the call of `change`, and its result; other parts unchanged."""
    if isinstance(part, ToolCall) and part.id.startswith(_CHANGED):
        return replace(part, name="change", arguments={"path": part.arguments.get("path", "")})
    if isinstance(part, ToolReply) and part.call_id.startswith(_CHANGED):
        return replace(part, name="change")
    return part


class _Turn(msgspec.Struct, frozen=True):
    task: str
    """The words of the user."""
    done: list[tuple[ToolCall, ToolReply]]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> _Turn | None:
        """The turn whose last message is the result of one call; None for any other turn."""
        users = [at for at, message in enumerate(messages) if message.role == "user"]
        start = users[-1] if users else 0
        calls: dict[str, ToolCall] = {}
        replies: list[ToolReply] = []
        for message in messages[start:]:
            calls |= {call.id: call for call in message.tool_calls}
            replies += message.parts_of(ToolReply)
        done = [(calls[reply.call_id], reply) for reply in replies if reply.call_id in calls]
        if not done or messages[-1].role != "tool" or len(messages[-1].parts_of(ToolReply)) != 1:
            return None
        return cls(messages[start].text, done)

    @property
    def last(self) -> tuple[ToolCall, ToolReply]:
        return self.done[-1]

    @property
    def failure(self) -> tuple[ToolCall, ToolReply] | None:
        """The last command, if it ran and failed."""
        commands = [(call, reply) for call, reply in self.done if call.name == "shell"]
        if not commands:
            return None
        call, reply = commands[-1]
        has_failed = reply.failed and _FAILED.search(reply.text)
        return (call, reply) if has_failed else None

    @property
    def read(self) -> set[str]:
        """The files that were read."""
        return {
            str(call.arguments.get("path"))
            for call, reply in self.done
            if call.name == "read" and not reply.failed
        }

    @property
    def wants_repair(self) -> bool:
        """Whether the user asked for a change, and the last command failed but not too many."""
        failures = sum(call.name == "shell" and reply.failed for call, reply in self.done)
        return bool(self.failure and failures <= _MAX_FAILURES and _WANTS_CHANGE.search(self.task))

    def ask_for_file(self, files: Sequence[str]) -> StepRequest | None:
        """Ask which file has the fault. Tests that the user did not name are not among the choices."""
        assert self.failure is not None
        output = self.failure[1].text
        possible = [
            name
            for name in files
            if not name.startswith("[")
            and (not _TEST.search(name) or PurePosixPath(name).name in self.task)
        ]
        if not possible:
            return None
        # If there are too many, prefer those whose stem is in the output or the task.
        named = f"{output}\n{self.task}"
        shown = sorted(possible, key=lambda name: PurePosixPath(name).stem not in named)[
            :_MAX_FILES
        ]
        schema = {
            "type": "object",
            "properties": {"path": {"enum": [*shown, "none"]}},
            "required": ["path"],
        }
        listed = "\n".join(sorted(shown))
        asked = (
            f"The task: {cut_middle(self.task, _MAX_TASK)}\n{self._quote_failure()}\nThe"
            f' files:\n{listed}\n\nWhich file must be changed? Answer with JSON: {{"path": "…"}};'
            ' "none" if it is none of them.'
        )

        def read_chosen_file(answer: str) -> ToolCall | None:
            try:
                path = json.loads(answer).get("path")
            except (ValueError, AttributeError, RecursionError):
                return None
            return ToolCall(_step_id(_TO_CHANGE), "read", {"path": path}) if path in shown else None

        return StepRequest(asked, {**schema, "additionalProperties": False}, read_chosen_file)

    def ask_for_text(self, path: str, reply: ToolReply, told: str = "") -> StepRequest | None:
        """Ask for the new text of a file, given what `read` returned; None: the file cannot be
        changed this way.
        """
        if reply.failed and not _MISSING.search(reply.text):
            return None  # it was refused, or cannot be read
        old = [] if reply.failed else _read_lines(reply.text)
        if old is None or len(old) > _MAX_LINES or any(line.startswith("```") for line in old):
            return None
        text = "\n".join(old)
        now = f"{path} does not exist yet." if reply.failed else f"{path}:\n```\n{text}\n```"
        verb = "Mend" if self.failure else "Change"
        if reply.failed:
            verb = "Write"
        asked = (
            f"The task: {cut_middle(self.task, _MAX_TASK)}\n{told}{self._quote_failure()}\n{now}\n\n"
            f"{verb} {path}. Answer with the whole new file."
        )
        return StepRequest(asked, {}, lambda answer: _make_change(path, old, answer))

    def _quote_failure(self) -> str:
        """The failed command and its output; empty if the last command did not fail."""
        if self.failure is None:
            return ""
        call, reply = self.failure
        return (
            "\nOutput of"
            f" `{call.arguments.get('command', '')}`:\n{cut_middle(reply.text, _MAX_OUTPUT)}\n"
        )


def _read_lines(text: str) -> list[str] | None:
    """The lines of a file, from the result of `read`; None if it is not the whole file, or not
    text.
    """
    if text == "[The file is empty.]":
        return []
    found = [_LINE.fullmatch(line) for line in text.split("\n")]
    return [match[1] for match in found if match] if all(found) else None


def _make_change(path: str, old: list[str], answer: str) -> ToolCall | None:
    """The call that gives a file the text of the code block in an answer; None if that is not the
    whole file.
    """
    block = _FENCE.search(answer)
    if block is None:
        return None
    new = block[1].removesuffix("\n").split("\n")
    if not old:
        return ToolCall(
            _step_id(_CHANGED), "write", {"path": path, "content": "\n".join(new) + "\n"}
        )
    is_elided = any(_ELIDED.match(line) for line in new if line not in old)
    if old == new or len(new) < len(old) * _MIN_LEFT or is_elided:
        return None
    before, after = _find_change(old, new)
    return ToolCall(
        _step_id(_CHANGED),
        "edit",
        {"path": path, "edits": [{"old_text": before, "new_text": after}]},
    )


def _find_change(old: list[str], new: list[str]) -> tuple[str, str]:
    """The lines from the first that differs to the last, and more until `edit` finds them once."""
    both = min(len(old), len(new))
    start = next((at for at in range(both) if old[at] != new[at]), both)
    same = next((at for at in range(both - start) if old[-1 - at] != new[-1 - at]), both - start)
    while True:
        before = "\n".join(old[start : len(old) - same])
        after = "\n".join(new[start : len(new) - same])
        is_unique = before.strip() and "\n".join(old).count(before) == 1
        is_whole = start == 0 and same == 0
        if is_whole or (is_unique and len(new) - same > start):
            return before, after
        start, same = max(0, start - 1), max(0, same - 1)


def is_step(call: ToolCall) -> bool:
    """Whether the call may come from a request about one step, which had nothing else of the
    session.
    """
    return call.id.startswith((_TO_CHANGE, _CHANGED, _FAULT, _AGAIN))


def _step_id(prefix: str) -> str:
    """A new id for a call that is a step, with the prefix that says which one."""
    return f"{prefix}{uuid.uuid4().hex[:20]}"
