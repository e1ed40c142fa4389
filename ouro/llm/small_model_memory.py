"""The lines of memory for a very small model: they are put beside the message, and enforced.

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
"""The text between the lines and the message."""
MAX_LINES = 12
"""Lines beside one message: with more of them a model of 1.5 billion parameters mixes them up."""
_MAX_LINE = 300
"""Maximum characters of a line."""
_MEMORY_LINE = late_pattern(r"^\| (?:\[mem_\w+\] \([^)\n]*\) )?(.*\S.*)$", re.MULTILINE)
"""Matches a line of memory in the system prompt or in a recalled note; the group is without id and
source.
"""
_CORE_CHANGES = late_pattern(r'<memory-\w+ changed="')
"""Matches the start of a block that says how the core has changed."""
_LIST_MARK = late_pattern(r"\s*(?:[-*+]|\d+[.)])\s+|#+\s+.*")
"""Matches the mark of a list item, or a heading."""
_WORD_STEM = late_pattern(r"\w{3,5}|[\u3040-\u30ff\u3400-\u9fff]{2}")
"""Matches the first letters of a word, by which words are compared."""
_DECLINED = "I did not do that"
"""What the model says before the line that forbids a call."""


def remembered_lines(messages: Sequence[Message]) -> list[str]:
    """The lines of memory that hold now, in the order of memory: those of the core in the system
    prompt, changed as later messages say, and the notes that were recalled for the last message.
    """
    system_prompt = "\n".join(message.text for message in messages if message.role == "system")
    lines = dict.fromkeys(_memory_lines(system_prompt))
    user_messages = [message for message in messages if message.role == "user"]
    for message in user_messages:
        for part in message.parts_of(Context):
            if _CORE_CHANGES.search(part.text):
                _apply_changes(lines, part.text)
            elif message is user_messages[-1]:
                lines.update(dict.fromkeys(_memory_lines(part.text)))
    return list(lines)


def choose_lines(messages: Sequence[Message], subject: str) -> list[str]:
    """The lines to put beside a request about `subject`, at most MAX_LINES, in the order of memory.
    If there are more, they are those that share the most words with it; of equal ones those that
    forbid something come first.
    """
    lines = remembered_lines(messages)
    if len(lines) <= MAX_LINES:
        return lines
    subject_words = set(_WORD_STEM.findall(subject.casefold()))

    def rank(index: int) -> tuple[int, bool, int]:
        shared = subject_words & set(_WORD_STEM.findall(lines[index].casefold()))
        return -len(shared), not forbidden_names(lines[index]), index

    best = sorted(range(len(lines)), key=rank)[:MAX_LINES]
    return [lines[index] for index in sorted(best)]


def put_lines_beside(messages: Sequence[Message], closing: str) -> list[Message]:
    """The messages, in which the last message of the user has the lines of memory before its text, and
    `closing` after it. If there are no lines, nothing is added.
    """
    user_indexes = [index for index, message in enumerate(messages) if message.role == "user"]
    if not user_indexes:
        return list(messages)
    last = user_indexes[-1]
    message = messages[last]
    lines = choose_lines(messages, message.text)
    if not lines:
        return list(messages)
    quoted = "\n".join(f"- {line}" for line in lines)
    text = f"I have told you before:\n{quoted}\n\n{NOW}{message.text}\n\n{closing}"
    parts = (*message.parts_of(Context), Text(text), *message.parts_of(Image))
    return [*messages[:last], replace(message, parts=parts), *messages[last + 1 :]]


def quote_lines(messages: Sequence[Message], subject: str) -> str:
    """The lines of memory for a request about one step; empty if there are none."""
    lines = choose_lines(messages, subject)
    if not lines:
        return ""
    return "\nKeep to this:\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def find_forbidding_line(call: ToolCall, messages: Sequence[Message]) -> str:
    """The remembered line that forbids a call by name; empty if none does.

    It is also empty if the model has just said that this line forbids it, and the user has
    answered: the user knows the line then, and decides.
    """
    answers = [message.text for message in messages if message.role == "assistant"]
    last_answer = answers[-1] if answers else ""
    for line in remembered_lines(messages):
        if breaks_prohibition(line, call.name, call.arguments):
            was_declined = _DECLINED in last_answer and line in last_answer
            return "" if was_declined else line
    return ""


def ask_again(rule: str, call: ToolCall) -> list[Message]:
    """The messages that follow a forbidden call, so that the model chooses another one."""
    call_text = _describe_call(call)
    return [
        assistant(f"I want to run: {call_text}"),
        user(f"No. I have told you: {rule}\nDo the task in another way, or use `answer`."),
    ]


def refusal_text(rule: str, call: ToolCall) -> str:
    """The answer of a turn whose model insists on a forbidden call."""
    return f"{_DECLINED}: {_describe_call(call)}\nYou told me: {rule}\nShall I do it nevertheless?"


def _describe_call(call: ToolCall) -> str:
    """A call in one line: its tool and its command or file."""
    target = call.arguments.get("command") or call.arguments.get("path") or ""
    return one_line(f"{call.name} {target}", 200)


def _memory_lines(text: str) -> Iterator[str]:
    """Yield the lines of memory in a text, without list marks."""
    for match in _MEMORY_LINE.finditer(text):
        mark = _LIST_MARK.match(match[1])
        line = match[1][mark.end() :].strip() if mark else match[1].strip()
        if line:
            yield line[:_MAX_LINE]


def _apply_changes(lines: dict[str, None], text: str) -> None:
    """Change the lines, which are the keys of `lines` in their order, as a message says: a line
    after `-` is removed, a line after `+` is added.
    """
    for match in _MEMORY_LINE.finditer(text):
        sign, line = match[1][:1], match[1][1:]
        mark = _LIST_MARK.match(line)
        line = (line[mark.end() :] if mark else line).strip()[:_MAX_LINE]
        if sign == "-":
            lines.pop(line, None)
        elif sign == "+" and line:
            lines[line] = None
