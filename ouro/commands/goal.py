"""/goal and /loop: work until a condition holds, and send a message again and again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ouro.commands.action import Answer
from ouro.commands.command_lookup import find_command
from ouro.commands.render import line
from ouro.commands.slash import SessionContext, parse_line
from ouro.errors import UsageError
from ouro.session.goal import Goal, GoalCaps
from ouro.session.repeated_messages import MAX_DAYS, format_interval
from ouro.utils.text import one_line

if TYPE_CHECKING:
    from ouro.events import Event
    from ouro.messages import Image
    from ouro.session import Session

CLEAR_WORDS = ("clear", "stop", "off", "none", "reset", "cancel", "end")
_USAGE = "Usage: /goal CONDITION, /goal !COMMAND, /goal pause, /goal resume or /goal clear"
_LOOP_USAGE = "Usage: /loop 10m TEXT"
_INTERVAL = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:s|sec|m|min|h|d))+(?=\s|\Z)", re.IGNORECASE)
"""Numbers with units, at the beginning of a text: `1h 30m`."""
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.IGNORECASE)
_SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MIN_SECONDS = 10.0


async def goal(context: SessionContext, condition: str, **caps: Any) -> Answer | None:
    """Show the goal if the condition is empty. The word `pause` pauses the goal, `resume` resumes it,
    and one of CLEAR_WORDS ends it; any other condition sets a new goal. Returns None if a goal
    begins or continues: the transcript then shows it.
    """
    session, word = context.session, condition.strip().lower()
    pursuit = session.background.standing.goal
    if not word:
        return _goal_answer(session)
    if word in CLEAR_WORDS:
        answer = _clear_goal(session)
        context.front_end.redraw()
        return answer
    if word == "pause":
        _require_goal(session).is_paused = True
        context.front_end.redraw()
        return Answer(pursuit.state, [line("The goal is paused: `/goal resume` continues it.")])
    message = await begin_goal(session, condition, **caps)
    context.front_end.redraw()
    current_goal = pursuit.goal
    if current_goal is not None and word != "resume":
        context.say(f"The goal: {one_line(current_goal.title, 200)} (at most {current_goal.caps})")
    if message:
        await context.front_end.send(message)
    elif context.front_end.queue is not None:  # it was resumed
        context.front_end.queue.continue_goal()
    return None


async def begin_goal(
    session: Session,
    condition: str,
    *,
    turns: int | None = None,
    cost: float | None = None,
    minutes: int | None = None,
    keep: bool = False,
) -> str:
    """Set a goal, or resume the paused one if the condition is `resume`. Returns the message that
    begins the goal; empty if it is resumed.

    Args:
        turns, cost, minutes: caps; None for the default. Those of a resumed goal stay.
        keep: whether the goal outlives the session.

    Raises:
        UsageError: there is no goal to resume, no condition, or its command is not harmless.
    """
    pursuit = session.background.standing.goal
    if condition.strip().lower() == "resume":
        paused = _require_goal(session)
        await _require_harmless(session, paused.command)
        pursuit.resume()
        return ""
    usual = pursuit.caps
    caps = GoalCaps(turns or usual.turns, cost or usual.cost, minutes or usual.minutes)
    words, command = split_condition(condition)
    if not words and not command:
        raise UsageError("A goal needs a condition.", _USAGE)
    await _require_harmless(session, command)
    new_goal = Goal(words, command, caps, is_kept=keep)
    pursuit.begin(new_goal)
    return new_goal.message


async def begin_goal_of_prompt(session: Session, text: str) -> str:
    """Begin the goal of a prompt `/goal …` when no user is there. Returns the message to send; a
    prompt that is not `/goal` is returned as it is.

    Raises:
        UsageError: the line is not a valid `/goal`; or it is `/loop`, for which a session must stay
            open; or the goal would be shown, paused or ended, which only a user can want.
    """
    # The word may end at a line break: a space in front of the first one separates it.
    word, _, argument = text.strip().replace("\n", " \n", 1).partition(" ")
    if word == "/loop":
        raise UsageError(
            "`/loop` needs a session that stays open.", "Let cron or a timer run `ouro -p`."
        )
    command = find_command("goal")
    if word != "/goal" or command is None:
        return text
    arguments = parse_line(command, argument.strip())
    condition = arguments["condition"].strip().lower()
    if condition in ("", "pause", *CLEAR_WORDS):
        raise UsageError("Without a user, `/goal` needs a condition.", _USAGE)
    return await begin_goal(session, **arguments)


async def loop(context: SessionContext, text: str, *, keep: bool = False) -> Answer:
    """Begin to repeat a message: the text is an interval and the message, `10m Check the build`. List
    the repeated messages if the text is empty.

    Args:
        keep: whether it outlives the session.
    """
    repeated = context.session.background.standing.repeated
    if not text:
        messages = repeated.list()
        rows = [
            line(f"{message.id}: {one_line(message.text)} — {message.state}")
            for message in messages
        ]
        return Answer(messages, rows or [line(f"No message is repeated. {_LOOP_USAGE}")])
    if context.front_end.queue is None:
        raise UsageError("Here no messages are queued, so none is repeated.")
    seconds, message = split_interval(text)
    new_message = repeated.add(message, seconds, is_kept=keep)
    context.front_end.redraw()
    note = (
        f"{new_message.id}: every {format_interval(seconds)}, for at most {MAX_DAYS} days."
        f" `/tasks kill {new_message.id}` ends it."
    )
    return Answer(new_message.id, [line(note)])


def split_condition(text: str) -> tuple[str, str]:
    """The words and the command of a goal; each is empty if the text has none. The command is the
    line that begins with `!`. Raises UsageError for a second command.
    """
    words: list[str] = []
    commands: list[str] = []
    for text_line in text.strip().splitlines():
        stripped = text_line.strip()
        if stripped.startswith("!"):
            commands.append(stripped.lstrip("!").strip())
        else:
            words.append(stripped)
    if len(commands) > 1:
        raise UsageError("A goal has one command.", "Join them: !make && make test")
    return "\n".join(words).strip(), commands[0] if commands else ""


def split_interval(text: str) -> tuple[float, str]:
    """The seconds and the message of `10m TEXT`. Raises UsageError if the text has another form, or
    the interval is too short or too long.
    """
    match = _INTERVAL.match(text.strip())
    message = text.strip()[match.end() :].strip() if match else ""
    if match is None or not message:
        raise UsageError(
            f"`{one_line(text, 40)}` is not an interval and a message.",
            f"{_LOOP_USAGE}. Intervals: 30s, 10m, 2h, 1d",
        )
    seconds = sum(
        float(number) * _SECONDS_OF_UNIT[unit.lower()]
        for number, unit in _NUMBER_AND_UNIT.findall(match[0])
    )
    if not MIN_SECONDS <= seconds <= MAX_DAYS * 86_400:
        raise UsageError(
            f"`{match[0]}` is not from {MIN_SECONDS:g} s to {MAX_DAYS} d.", _LOOP_USAGE
        )
    return seconds, message


def _goal_answer(session: Session) -> Answer:
    """The answer that shows the goal of the session and its state."""
    current_goal = session.background.standing.goal.goal
    if current_goal is None:
        return Answer(value=None, view=[line(f"There is no goal. {_USAGE}")])
    return Answer(
        current_goal.title,
        [line(f"{current_goal.title} — {session.background.standing.goal.state}")],
    )


def _clear_goal(session: Session) -> Answer:
    """End the goal of the session. Raises UsageError without one."""
    current_goal = _require_goal(session)
    session.background.standing.goal.clear()
    return Answer(current_goal.title, [line(f"The goal is ended: {one_line(current_goal.title)}")])


def _require_goal(session: Session) -> Goal:
    """The goal of the session. Raises UsageError without one."""
    current_goal = session.background.standing.goal.goal
    if current_goal is None:
        raise UsageError("There is no goal.", _USAGE)
    return current_goal


async def _require_harmless(session: Session, command: str) -> None:
    """Raise UsageError if the command may do something that cannot be undone: it would run after each
    turn. An empty command is harmless.
    """
    if not command:
        return
    reason = await asyncio.to_thread(session.permissions.find_danger, command)
    if reason:
        raise UsageError(
            f"The check would run after each turn, and may not be undone: {reason}.",
            "Name a command that only checks.",
        )


async def turns_of_prompt(
    session: Session, prompt: str, pictures: Sequence[Image]
) -> AsyncGenerator[Event, None]:
    """The events of a turn; for `/goal CONDITION` also of the further turns until it is reached, or
    paused at a cap.
    """
    is_goal = prompt.lstrip().startswith(("/goal", "/loop"))  # for `/loop` an error is raised
    text = await begin_goal_of_prompt(session, prompt.strip()) if is_goal else prompt
    if text or pictures:
        async with aclosing(session.send(text, pictures)) as events:
            async for event in events:
                yield event
    while is_goal and session.background.standing.goal.is_active:
        async with aclosing(session.wake_up()) as events:
            async for event in events:
                yield event
