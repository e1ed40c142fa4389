"""/queue: the messages that wait; edit, move or remove one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import Quote, line
from ouro.commands.slash import SessionContext
from ouro.errors import UsageError
from ouro.utils.text import one_line, whole_number

if TYPE_CHECKING:
    from ouro.commands.render import View
    from ouro.session import TurnQueue

_USAGE = "Usage: /queue [edit N | up N | down N | remove N | clear]"


async def queue(context: SessionContext, what: str) -> Answer | None:
    """Show or change the messages that wait. Returns them, or None if a screen has shown them.

    Args:
        what: empty to show them; `clear` to remove all; else a word of `_change` and the number of
            a message.
    """
    front_end = context.front_end
    if front_end.queue is None:
        raise UsageError("Here no messages are queued.")
    if not what:
        if front_end.queue.waiting and await front_end.show_queue():
            return None
        return _list_answer(front_end.queue)
    word, _, rest = what.partition(" ")
    if word == "clear" and not rest:
        # From the last one, because removing one moves those after it.
        for position in reversed(range(len(front_end.queue.waiting))):
            front_end.queue.remove(position)
        return _list_answer(front_end.queue)
    await _change(
        context,
        messages=front_end.queue,
        word=word,
        position=_parse_position(front_end.queue, rest),
    )
    return _list_answer(front_end.queue)


async def _change(context: SessionContext, messages: TurnQueue, word: str, position: int) -> None:
    """Change a waiting message by a word: `remove`, `up`, `down` or `edit`. Raises UsageError for
    another word.
    """
    if word == "remove":
        messages.remove(position)
    elif word in ("up", "down"):
        messages.move(position, -1 if word == "up" else 1)
    elif word == "edit":
        old_text = messages.waiting[position]
        new_text = (await context.front_end.edit(old_text)).strip()
        if not new_text:
            return
        if old_text not in messages.waiting:
            context.say("The message was sent meanwhile. The edit was not used:", "warning")
            context.show([Quote(new_text)])
            return
        messages.change(messages.waiting.index(old_text), new_text)
    else:
        raise UsageError(f"There is no `{word}`.", _USAGE)


def _parse_position(messages: TurnQueue, number: str) -> int:
    """The index (from 0) of the message with this number (from 1). Raises UsageError if there is none."""
    count = len(messages.waiting)
    place = whole_number(number.strip())
    if place is None or not 0 < place <= count:
        raise UsageError(f"`{one_line(number, 40)}` is not the number of a queued message.", _USAGE)
    return place - 1


def _list_answer(messages: TurnQueue) -> Answer:
    """The numbered messages that wait; an arrow marks those that steer the running turn."""
    waiting = messages.waiting
    lines: View = []
    for number, text in enumerate(waiting, 1):
        # Those that steer wait before the others.
        mark = "→ " if number <= len(messages.steering) else ""
        lines.append(line(f"{number}. {mark}{one_line(text, 200)}"))
    return Answer(waiting, lines or [line("No message waits.")])
