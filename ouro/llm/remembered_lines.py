"""What a very small model remembers of the user: put beside the message, and kept to.

Such a model overlooks memory at the start of a long prompt. So the lines come with each message of
the user and with each request for one step, and a call that a line forbids by name is not made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ouro.messages import Context, Image, Message, Text, ToolCall, assistant, user
from ouro.utils.late_pattern import late_pattern
from ouro.utils.prohibitions import breaks_prohibition, forbidden_names
from ouro.utils.text import one_line

NOW = "Now I ask: "
"""Comes between what was told and the message."""
MAX_LINES = 12
"""Lines beside one message: with more of them a model of 1.5 billion parameters mixes them up."""
_MAX_LINE = 300
_LINE = late_pattern(r"^\| (?:\[mem_\w+\] \([^)\n]*\) )?(.*\S.*)$", re.MULTILINE)
"""A line of memory in the system prompt or a recalled note; the group is without id and source."""
_CHANGED = late_pattern(r'<memory-\w+ changed="')
_LIST_MARK = late_pattern(r"\s*(?:[-*+]|\d+[.)])\s+|#+\s+.*")
_WORD_START = late_pattern(r"\w{3,5}|[\u3040-\u30ff\u3400-\u9fff]{2}")
_REFUSED = "I did not do that"


def remembered_lines(messages: Sequence[Message]) -> list[str]:
    """What is remembered, as the messages show it: the core with its changes, and the notes that
    were recalled for the last message.
    """
    whole = "\n".join(message.text for message in messages if message.role == "system")
    found = dict.fromkeys(_memory_lines(whole))
    asked = [message for message in messages if message.role == "user"]
    for message in asked:
        for part in message.parts_of(Context):
            if _CHANGED.search(part.text):
                _apply_changes(found, part.text)
            elif message is asked[-1]:
                found.update(dict.fromkeys(_memory_lines(part.text)))
    return list(found)


def choose_lines(messages: Sequence[Message], subject: str) -> list[str]:
    """The lines to put beside a request about `subject`, in the order of memory: all if they are
    few, else what forbids something by name and what shares the most words with it.
    """
    lines = remembered_lines(messages)
    if len(lines) <= MAX_LINES:
        return lines
    words = set(_WORD_START.findall(subject.casefold()))
    ranked = sorted(
        range(len(lines)),
        key=lambda place: (
            -len(words & set(_WORD_START.findall(lines[place].casefold()))),
            not forbidden_names(lines[place]),
            place,
        ),
    )
    return [lines[place] for place in sorted(ranked[:MAX_LINES])]


def put_lines_beside(messages: Sequence[Message], closing: str) -> list[Message]:
    """The messages with what was told beside the last message of the user."""
    place = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    if place < 0:
        return list(messages)
    asked = messages[place]
    lines = choose_lines(messages, asked.text)
    if not lines:
        return list(messages)
    told = "\n".join(f"- {line}" for line in lines)
    text = f"I have told you before:\n{told}\n\n{NOW}{asked.text}\n\n{closing}"
    beside = replace(asked, parts=(*asked.parts_of(Context), Text(text), *asked.parts_of(Image)))
    return [*messages[:place], beside, *messages[place + 1 :]]


def quote_lines(messages: Sequence[Message], subject: str) -> str:
    """What was told, for a request about one step; empty if nothing was."""
    lines = choose_lines(messages, subject)
    return "\nKeep to this:\n" + "\n".join(f"- {line}" for line in lines) + "\n" if lines else ""


def broken_rule(call: ToolCall, messages: Sequence[Message]) -> str:
    """The remembered line that forbids a call by name; empty if none does.

    If the model has just said that this line forbids it, and the user has answered, the user knows
    the line and decides.
    """
    answers = [message.text for message in messages if message.role == "assistant"]
    last = answers[-1] if answers else ""
    for line in remembered_lines(messages):
        if breaks_prohibition(line, call.name, call.arguments):
            return "" if _REFUSED in last and line in last else line
    return ""


def ask_again(rule: str, call: ToolCall) -> list[Message]:
    """The messages that follow a forbidden call: the model chooses another one."""
    what = _describe_call(call)
    return [
        assistant(f"I want to run: {what}"),
        user(f"No. I have told you: {rule}\nDo the task in another way, or use `answer`."),
    ]


def refusal_text(rule: str, call: ToolCall) -> str:
    """The answer of a turn whose model insists on a forbidden call."""
    return f"{_REFUSED}: {_describe_call(call)}\nYou told me: {rule}\nShall I do it nevertheless?"


def _describe_call(call: ToolCall) -> str:
    """A call in one line: its tool and its command or file."""
    target = call.arguments.get("command") or call.arguments.get("path") or ""
    return one_line(f"{call.name} {target}", 200)


def _memory_lines(text: str) -> Iterator[str]:
    """The lines of memory in a text, without list marks."""
    for found in _LINE.finditer(text):
        mark = _LIST_MARK.match(found[1])
        line = found[1][mark.end() :].strip() if mark else found[1].strip()
        if line:
            yield line[:_MAX_LINE]


def _apply_changes(lines: dict[str, None], text: str) -> None:
    """Apply the changes of the core that a message sent: `-` before a line that is gone, `+` before
    a new one.
    """
    for found in _LINE.finditer(text):
        sign, line = found[1][:1], found[1][1:]
        mark = _LIST_MARK.match(line)
        line = (line[mark.end() :] if mark else line).strip()[:_MAX_LINE]
        if sign == "-":
            lines.pop(line, None)
        elif sign == "+" and line:
            lines[line] = None
