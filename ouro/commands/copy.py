"""/copy: the last answer, one of its code blocks, or another message, to the clipboard."""

from __future__ import annotations

import msgspec

from ouro.commands.action import Answer
from ouro.commands.render import line
from ouro.commands.slash import SessionContext
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Prompted, Replied
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import one_line, plural, whole_number

MAX_OFFERED = 100
"""How many messages the list offers: the newest."""
_FENCED_BLOCK = late_pattern(
    r"(?ms)^[ ]{0,3}(?P<fence>```+|~~~+)[ \t]*(?P<language>[^\s`]*)[^\n`]*\n(?P<code>.*?)"
    r"^[ ]{0,3}(?P=fence)[ \t]*$"
)


class CodeBlock(msgspec.Struct, frozen=True):
    language: str
    code: str


def code_blocks(markdown: str) -> list[CodeBlock]:
    """The fenced code blocks, without their fences."""
    matches = _FENCED_BLOCK.finditer(markdown)
    return [CodeBlock(match["language"], match["code"].removesuffix("\n")) for match in matches]


async def copy(context: SessionContext, what: str) -> Answer | None:
    """Copy an answer or message; if it has code, the user chooses the whole or one of its blocks. None
    if they cancel.

    Args:
        what: empty or `last` for the last answer, a number N for the Nth answer from the end, `code`
            for a code block of the last answer, or `list` for a message that the user chooses.

    Raises:
        UsageError: `what` is none of these, or there is no such answer.
    """
    if what == "list":
        return await _copy_from_list(context)
    back = 1 if what in ("", "last", "code") else whole_number(what)
    if back is None:
        raise UsageError(
            f"`{one_line(what, 40)}` cannot be copied.", "Usage: /copy [last | N | code | list]"
        )
    answers = [text for who, text in _messages(context) if who == "ouro"]
    if not answers:
        raise UsageError("There is no answer to copy yet.")
    if not 0 < back <= len(answers):
        raise UsageError(f"The session has only {plural(len(answers), 'answer')}.")
    name = "The last answer" if back == 1 else f"The answer before {back - 1:,} others"
    return await _choose_block(context, name, answers[-back], only_code=what == "code")


async def _copy_from_list(context: SessionContext) -> Answer | None:
    """Let the user choose one of the last messages, newest first, and then the whole of it or a code
    block. None if they cancel.
    """
    newest_first = _messages(context)[-MAX_OFFERED:][::-1]
    if not newest_first:
        raise UsageError("There is no message to copy yet.")
    choices = [
        Choice(str(index), one_line(text, 200), author)
        for index, (author, text) in enumerate(newest_first)
    ]
    chosen = await context.choose("Copy which message?", choices)
    if chosen is None:
        return None
    _, text = newest_first[int(chosen)]
    return await _choose_block(context, "The message", text)


async def _choose_block(
    context: SessionContext, name: str, text: str, *, only_code: bool = False
) -> Answer | None:
    """Copy a text or one of its code blocks. The user is asked which, unless there is only one thing
    to copy. None if they cancel.

    Args:
        name: what the text is, in questions and messages: `The last answer`.
        only_code: leave out the whole text. Raises UsageError if there is no code block.
    """
    blocks = code_blocks(text)
    if only_code and not blocks:
        raise UsageError(f"{name} has no code block.")
    if only_code and len(blocks) == 1:
        return _copy(context, "The code block", blocks[0].code)
    if not blocks:
        return _copy(context, name, text)
    choices = [
        Choice(str(index), one_line(block.code, 80) or "(empty)", _describe_block(block))
        for index, block in enumerate(blocks)
    ]
    if not only_code:
        choices.insert(0, Choice("whole", name, f"{len(text):,} characters"))
    chosen = await context.choose("Copy what?", choices)
    if chosen is None:
        return None
    if chosen == "whole":
        return _copy(context, name, text)
    return _copy(context, "The code block", blocks[int(chosen)].code)


def _describe_block(block: CodeBlock) -> str:
    lines = plural(block.code.count("\n") + 1, "line")
    return f"{block.language}, {lines}" if block.language else lines


def _copy(context: SessionContext, name: str, text: str) -> Answer:
    """Copy the text to the clipboard; the answer says how that was done."""
    how = context.front_end.copy(text)  # such as `with wl-copy`, or a clause of its own
    outcome = f"copied {how}" if how.startswith("with") else how
    return Answer(text, [line(f"{name} ({len(text):,} characters): {outcome}.")])


def _messages(context: SessionContext) -> list[tuple[str, str]]:
    """The author (`you` or `ouro`) and the text of each shown message that has text, oldest first."""
    messages = list[tuple[str, str]]()
    for event in context.session.scrollback.shown_events():
        if isinstance(event, Replied) and event.message.text.strip():
            messages.append(("ouro", event.message.text))
        elif isinstance(event, Prompted) and event.text.strip():
            messages.append(("you", event.text))
    return messages
