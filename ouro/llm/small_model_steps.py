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
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.llm.model import ToolSpec
from ouro.llm.small_model_memory import quote_lines
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
_READ_TO_CHANGE = "tochange_"
"""The prefix of the id of a `read` whose file is to be changed."""
_CHANGE_MADE = "changed_"
"""The prefix of the id of an `edit` or `write` that makes a change."""
_LIST_FOR_FAULT = "fault_"
"""The prefix of the id of a `glob`: in one of its files is the fault."""
_RUN_AGAIN = "again_"
"""The prefix of the id of a `shell` that runs the failed command again."""
_HIDDEN_TOOLS = {"subagent", "todo", "shell_output", "shell_kill"}
"""Tools that are not offered: a very small model uses them to delay the task."""
_NEEDED_TOOLS = {"read", "edit", "write", "glob", "shell"}
"""The tools of which steps are made."""
_MAX_FAILURES = 3
"""After this number of failed commands in a turn no more steps are asked."""
_MAX_FILES = 40
"""Maximum files among which the model chooses."""
_MAX_LINES = 400
"""Maximum lines of a file that the model writes again."""
_MAX_TASK = 2_000
"""Maximum characters of the task in a request."""
_MAX_OUTPUT = 3_000
"""Maximum characters of the output of a command in a request."""
_WANTS_CHANGE = late_pattern(
    r"\b(?:mend|fix|repair|correct|solve|debug|make|change|implement|improve|get"
    r" .{0,40}\b(?:work|pass)\w*)\b",
    re.IGNORECASE,
)
"""Matches a task in English that asks for a change: `fix`, `make it work`. The model is asked about
any other task, which may be in another language.
"""
_FAILED_EXIT = late_pattern(r"^\[exit code (?!12[67]\b)\d", re.MULTILINE)
"""Matches the exit code of a command that ran and failed; not 126 and 127: then the command itself
was wrong.
"""
_FILE_MISSING = late_pattern(r"does not exist\b")
"""Matches the error of `read` for a file that does not exist."""
_TEST_FILE = late_pattern(
    r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)(?:test_|conftest)|[._-](?:test|spec)s?\.\w+$",
    re.IGNORECASE,
)
"""Matches the path of a test: `tests/test_cart.py`, `cart.spec.ts`."""
_PLACEHOLDER_LINE = late_pattern(
    r"\W*(?:\.\.\.|…|(?:the )?rest of|(?:existing|remaining|other) (?:code|\w+ unchanged))",
    re.IGNORECASE,
)
"""Matches a line that stands for lines which the model left out: `# ... rest of the code`."""
_MIN_SHARE = 0.5
"""An answer with a smaller share of the lines is not the whole file."""
_NUMBERED_LINE = late_pattern(r"\d+\t(.*)")
"""Matches a line of a result of `read`: its number, a tab and the text."""
_CODE_BLOCK = late_pattern(r"^```[^\n`]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""Matches a fenced block of code."""


class StepRequest(msgspec.Struct, frozen=True):
    """A request to the model about one step."""

    text: str
    schema: Mapping[str, Any]
    """The JSON schema of the answer; empty: free text."""
    call: Callable[[str], ToolCall | None]
    """Makes the tool call from the answer; None: the answer cannot be used."""


def next_step(
    messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> ToolCall | StepRequest | None:
    """The next step of the turn: a call that needs no model, or a separate request. None: the model
    must be asked for the next tool.

    After a command failed, these steps follow each other: the question whether the user wants a
    change; a list of the files; the question which file has the fault; a `read` of that file; the
    question for its new text; the change; another run of the command. The id of a call shows which
    of these steps it was.
    """
    turn = _Turn.at_end_of(messages)
    has_needed_tools = {tool.name for tool in tools} >= _NEEDED_TOOLS
    if turn is None or not has_needed_tools:
        return None
    call, reply = turn.last
    if call.id.startswith(_READ_TO_CHANGE):
        path = str(call.arguments["path"])
        return turn.ask_for_text(path, reply, quote_lines(messages, f"{path}\n{turn.task}"))
    if call.id.startswith(_LIST_FOR_FAULT) and not reply.failed:
        return turn.ask_for_file(reply.text.splitlines())
    if call.id.startswith(_CHANGE_MADE) and not reply.failed and turn.failure:
        return ToolCall(_step_id(_RUN_AGAIN), "shell", turn.failure.call.arguments)
    if call.name == "shell" and turn.may_be_repaired:
        is_clear = _WANTS_CHANGE.search(turn.task) is not None
        return _list_for_fault() if is_clear else turn.ask_for_aim()
    return None


def small_tools(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The tools for a very small model: without those that it uses to delay the task, and with `change`
    instead of `edit`, unless `change` has just failed.
    """
    turn = _Turn.at_end_of(messages)
    offered = [tool for tool in tools if tool.name not in _HIDDEN_TOOLS]
    has_needed_tools = {tool.name for tool in tools} >= _NEEDED_TOOLS
    # After the `read` of a file to change comes a request for its new text. If the model is to
    # choose a tool instead, then this request was not possible.
    has_change_failed = turn is not None and turn.last.call.id.startswith(_READ_TO_CHANGE)
    if not has_needed_tools or has_change_failed:
        return offered
    return [CHANGE if tool.name == "edit" else tool for tool in offered]


def begin_change(call: ToolCall, messages: Sequence[Message]) -> ToolCall:
    """The call that is run instead of the call that the model chose. A change, and a `write` over a
    file that was read in this turn, begins with a `read` of the file. Any other call is returned
    unchanged.
    """
    turn, path = _Turn.at_end_of(messages), call.arguments.get("path")
    overwrites = call.name == "write" and turn is not None and path in turn.files_read
    if call.name == "change" or overwrites:
        return ToolCall(_step_id(_READ_TO_CHANGE), "read", {"path": path})
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
    """Whether a message has only a step on the way to a change: one call, or its result."""
    ids = [call.id for call in message.tool_calls]
    ids += [reply.call_id for reply in message.parts_of(ToolReply)]
    return len(ids) == 1 and ids[0].startswith((_READ_TO_CHANGE, _LIST_FOR_FAULT))


def _as_change(part: Part) -> Part:
    """The part; a step that made a change, or its result, as the call of `change`."""
    if isinstance(part, ToolCall) and part.id.startswith(_CHANGE_MADE):
        return replace(part, name="change", arguments={"path": part.arguments.get("path", "")})
    if isinstance(part, ToolReply) and part.call_id.startswith(_CHANGE_MADE):
        return replace(part, name="change")
    return part


class _DoneCall(NamedTuple):
    """A call with its result."""

    call: ToolCall
    reply: ToolReply


class _Turn(msgspec.Struct, frozen=True):
    """A turn of a very small model, from the message of the user on."""

    task: str
    """The words of the user."""
    done: list[_DoneCall]
    """The calls that have a result."""

    @classmethod
    def at_end_of(cls, messages: Sequence[Message]) -> _Turn | None:
        """The turn at the end of the messages; None if the last one is not the result of one call."""
        user_indexes = [index for index, message in enumerate(messages) if message.role == "user"]
        start = user_indexes[-1] if user_indexes else 0
        calls: dict[str, ToolCall] = {}
        replies: list[ToolReply] = []
        for message in messages[start:]:
            calls |= {call.id: call for call in message.tool_calls}
            replies += message.parts_of(ToolReply)
        done = [
            _DoneCall(calls[reply.call_id], reply) for reply in replies if reply.call_id in calls
        ]
        if not done or messages[-1].role != "tool" or len(messages[-1].parts_of(ToolReply)) != 1:
            return None
        return cls(messages[start].text, done)

    @property
    def last(self) -> _DoneCall:
        """The last call, with its result."""
        return self.done[-1]

    @property
    def failure(self) -> _DoneCall | None:
        """The last command and its result, if it ran and failed; else None."""
        commands = [done for done in self.done if done.call.name == "shell"]
        if not commands:
            return None
        reply = commands[-1].reply
        has_failed = reply.failed and _FAILED_EXIT.search(reply.text)
        return commands[-1] if has_failed else None

    @property
    def files_read(self) -> set[str]:
        """The paths of the files that were read."""
        return {
            str(call.arguments.get("path"))
            for call, reply in self.done
            if call.name == "read" and not reply.failed
        }

    @property
    def may_be_repaired(self) -> bool:
        """Whether the last command failed, but not more than _MAX_FAILURES did in this turn."""
        failed_commands = [
            call for call, reply in self.done if call.name == "shell" and reply.failed
        ]
        return self.failure is not None and len(failed_commands) <= _MAX_FAILURES

    def ask_for_aim(self) -> StepRequest:
        """The request that asks whether the user wants a change. If so, the call from its answer
        lists the files. If the user only wants an answer, there is no call.
        """
        schema = {
            "type": "object",
            "properties": {"wants": {"enum": ["change", "answer"]}},
            "required": ["wants"],
            "additionalProperties": False,
        }
        request = (
            f"The task: {cut_middle(self.task, _MAX_TASK)}\n\nDoes the task ask to change a file,"
            ' or only for an answer? Answer with JSON: {"wants": "change"} or {"wants": "answer"}.'
        )

        def read_aim(answer: str) -> ToolCall | None:
            """The call that lists the files; None if the user wants an answer."""
            return _list_for_fault() if _read_field(answer, "wants") == "change" else None

        return StepRequest(request, schema, read_aim)

    def ask_for_file(self, files: Sequence[str]) -> StepRequest | None:
        """The request that asks which of the files has the fault; the call from its answer reads
        this file. Tests that the user did not name are not among the choices. None if there are no
        choices.
        """
        assert self.failure is not None
        candidates = [name for name in files if self._may_have_fault(name)]
        if not candidates:
            return None
        # If there are too many, prefer those whose stem is in the output or the task.
        context = f"{self.failure.reply.text}\n{self.task}"
        candidates.sort(key=lambda name: PurePosixPath(name).stem not in context)
        choices = candidates[:_MAX_FILES]
        schema = {
            "type": "object",
            "properties": {"path": {"enum": [*choices, "none"]}},
            "required": ["path"],
            "additionalProperties": False,
        }
        file_list = "\n".join(sorted(choices))
        request = (
            f"The task: {cut_middle(self.task, _MAX_TASK)}\n{self._quote_failure()}\nThe"
            f' files:\n{file_list}\n\nWhich file must be changed? Answer with JSON: {{"path": "…"}};'
            ' "none" if it is none of them.'
        )

        def read_chosen_file(answer: str) -> ToolCall | None:
            """The call that reads the chosen file; None if the answer chooses none."""
            path = _read_field(answer, "path")
            if path not in choices:
                return None
            return ToolCall(_step_id(_READ_TO_CHANGE), "read", {"path": path})

        return StepRequest(request, schema, read_chosen_file)

    def _may_have_fault(self, name: str) -> bool:
        """Whether a line of the list of files is a file to choose: not a remark in brackets, and
        not a test, unless the user named it.
        """
        if name.startswith("["):
            return False
        return not _TEST_FILE.search(name) or PurePosixPath(name).name in self.task

    def ask_for_text(self, path: str, reply: ToolReply, remembered: str = "") -> StepRequest | None:
        """The request for the new text of a file; the call from its answer changes the file. None
        if the file cannot be changed in this way.

        Args:
            reply: the result of `read` for the file, which need not exist.
            remembered: the lines of memory for the request; may be empty.
        """
        if reply.failed and not _FILE_MISSING.search(reply.text):
            return None  # it was refused, or cannot be read
        old = [] if reply.failed else _read_lines(reply.text)
        if old is None or len(old) > _MAX_LINES:
            return None
        if any(line.startswith("```") for line in old):
            return None  # it would end the block of code in the answer
        if reply.failed:
            verb, present = "Write", f"{path} does not exist yet."
        else:
            text = "\n".join(old)
            verb = "Mend" if self.failure else "Change"
            present = f"{path}:\n```\n{text}\n```"
        task = cut_middle(self.task, _MAX_TASK)
        request = (
            f"The task: {task}\n{remembered}{self._quote_failure()}\n{present}\n\n"
            f"{verb} {path}. Answer with the whole new file."
        )
        return StepRequest(request, schema={}, call=lambda answer: _make_change(path, old, answer))

    def _quote_failure(self) -> str:
        """The failed command and its output; empty if the last command did not fail."""
        if self.failure is None:
            return ""
        call, reply = self.failure
        return (
            "\nOutput of"
            f" `{call.arguments.get('command', '')}`:\n{cut_middle(reply.text, _MAX_OUTPUT)}\n"
        )


def _list_for_fault() -> ToolCall:
    """The call that lists the files, of which one has the fault."""
    return ToolCall(_step_id(_LIST_FOR_FAULT), "glob", {"pattern": "**"})


def _read_field(answer: str, name: str) -> Any:
    """A field of the JSON object that is the answer; None if it is no object, or has no such field."""
    try:
        return json.loads(answer).get(name)
    except (ValueError, AttributeError, RecursionError):
        return None


def _read_lines(text: str) -> list[str] | None:
    """The lines of a file, without their numbers, from the result of `read`; None if that has a line
    without a number, because it is not the whole file, or not text.
    """
    if text == "[The file is empty.]":
        return []
    lines: list[str] = []
    for line in text.split("\n"):
        match = _NUMBERED_LINE.fullmatch(line)
        if match is None:
            return None
        lines.append(match[1])
    return lines


def _make_change(path: str, old: list[str], answer: str) -> ToolCall | None:
    """The call that gives a file the text of the code block in an answer. None if there is no block, or
    it changes nothing, or it is not the whole file.

    Args:
        old: the lines of the file; empty if it does not exist or is empty.
    """
    block = _CODE_BLOCK.search(answer)
    if block is None:
        return None
    new = block[1].removesuffix("\n").split("\n")
    if not old:
        content = "\n".join(new) + "\n"
        return ToolCall(_step_id(_CHANGE_MADE), "write", {"path": path, "content": content})
    has_placeholder = any(_PLACEHOLDER_LINE.match(line) for line in new if line not in old)
    if old == new or len(new) < len(old) * _MIN_SHARE or has_placeholder:
        return None
    before, after = _find_change(old, new)
    edits = [{"old_text": before, "new_text": after}]
    return ToolCall(_step_id(_CHANGE_MADE), "edit", {"path": path, "edits": edits})


def _find_change(old: list[str], new: list[str]) -> tuple[str, str]:
    """The old and the new lines from the first that differs to the last. More lines around them are
    added, one on each side at a time, until `edit` can use them: the old lines must occur only once
    in the file, and the new lines must not be empty. At the latest these are all lines.
    """
    shorter = min(len(old), len(new))
    same_at_start = 0
    while same_at_start < shorter and old[same_at_start] == new[same_at_start]:
        same_at_start += 1
    same_at_end = 0
    while same_at_end < shorter - same_at_start and old[-1 - same_at_end] == new[-1 - same_at_end]:
        same_at_end += 1
    while True:
        before = "\n".join(old[same_at_start : len(old) - same_at_end])
        after = "\n".join(new[same_at_start : len(new) - same_at_end])
        is_unique = before.strip() and "\n".join(old).count(before) == 1
        has_new_lines = len(new) - same_at_end > same_at_start
        is_whole_file = same_at_start == 0 and same_at_end == 0
        if is_whole_file or (is_unique and has_new_lines):
            return before, after
        same_at_start = max(0, same_at_start - 1)
        same_at_end = max(0, same_at_end - 1)


def is_step(call: ToolCall) -> bool:
    """Whether ouro made this call from the answer to a request about one step. Such a request holds
    nothing else of the session. The prefix of the id is the mark of these calls.
    """
    return call.id.startswith((_READ_TO_CHANGE, _CHANGE_MADE, _LIST_FOR_FAULT, _RUN_AGAIN))


def _step_id(prefix: str) -> str:
    """A new id for a call that is a step, with the prefix that says which one."""
    return f"{prefix}{uuid.uuid4().hex[:20]}"
