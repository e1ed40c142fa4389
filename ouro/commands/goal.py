"""/goal and /loop: work until a condition holds, and send a message again and again."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from ouro.commands.action import Answer
from ouro.commands.builtin import find_command
from ouro.commands.render import line
from ouro.commands.slash import SessionContext, parse_line
from ouro.errors import UsageError
from ouro.session.goal import Goal, GoalCaps
from ouro.session.repeated_messages import MAX_DAYS, format_interval
from ouro.utils.text import one_line

if TYPE_CHECKING:
    from ouro.session import Session

CLEAR = ("clear", "stop", "off", "none", "reset", "cancel", "end")
_USAGE = "Usage: /goal CONDITION, /goal !COMMAND, /goal pause, /goal resume or /goal clear"
_LOOP_USAGE = "Usage: /loop 10m TEXT"
_INTERVAL = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:s|sec|m|min|h|d))+(?=\s|\Z)", re.IGNORECASE)
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MIN_SECONDS = 10.0


async def goal(context: SessionContext, condition: str, **caps: Any) -> Answer | None:
    """Show, set, pause, resume or end the goal."""
    session, word = context.session, condition.strip().lower()
    pursuit = session.background.standing.goal
    if not word:
        return _goal_answer(session)
    if word in CLEAR:
        answer = _clear_goal(session)
        context.front_end.redraw()
        return answer
    if word == "pause":
        _demand_goal(session).is_paused = True
        context.front_end.redraw()
        return Answer(pursuit.state, [line("The goal is paused: `/goal resume` continues it.")])
    message = await begin_goal(session, condition, **caps)
    context.front_end.redraw()
    found = pursuit.goal
    if found is not None and word != "resume":
        context.say(f"The goal: {one_line(found.title, 200)} (at most {found.caps})")
    if message:
        await context.front_end.send(message)
    elif context.front_end.queue is not None:
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
    """Set a goal, or resume the paused one; returns the message that begins it, empty if there is
    none. Raises UsageError.
    """
    pursuit = session.background.standing.goal
    if condition.strip().lower() == "resume":
        paused = _demand_goal(session)
        await _refuse_danger(session, paused.command)
        pursuit.resume()
        return ""
    usual = pursuit.caps
    caps = GoalCaps(turns or usual.turns, cost or usual.cost, minutes or usual.minutes)
    words, command = split_condition(condition)
    if not words and not command:
        raise UsageError("A goal needs a condition.", _USAGE)
    await _refuse_danger(session, command)
    found = Goal(words, command, caps, is_kept=keep)
    pursuit.begin(found)
    return found.message


async def goal_of_prompt(session: Session, text: str) -> str:
    """The message for a prompt `/goal …` of a program without a user; another text stays as it is.

    Raises UsageError: the line is not valid, or the command needs a session that stays open.
    """
    word, _, argument = text.strip().replace("\n", " \n", 1).partition(" ")
    if word == "/loop":
        raise UsageError(
            "`/loop` needs a session that stays open.", "Let cron or a timer run `ouro -p`."
        )
    command = find_command("goal")
    if word != "/goal" or command is None:
        return text
    given = parse_line(command, argument.strip())
    if not given["condition"].strip() or given["condition"].strip().lower() in (*CLEAR, "pause"):
        raise UsageError("Without a user, `/goal` needs a condition.", _USAGE)
    return await begin_goal(session, **given)


async def loop(context: SessionContext, text: str, *, keep: bool = False) -> Answer:
    """List the repeated messages, or begin one: `10m Check the build`."""
    repeated = context.session.background.standing.repeated
    if not text:
        found = repeated.list()
        rows = [
            line(f"{message.id}: {one_line(message.text)} — {message.state}") for message in found
        ]
        return Answer(found, rows or [line(f"No message is repeated. {_LOOP_USAGE}")])
    if context.front_end.queue is None:
        raise UsageError("Here no messages are queued, so none is repeated.")
    seconds, message = split_interval(text)
    began = repeated.add(message, seconds, is_kept=keep)
    context.front_end.redraw()
    said = (
        f"{began.id}: every {format_interval(seconds)}, for at most {MAX_DAYS} days."
        f" `/tasks kill {began.id}` ends it."
    )
    return Answer(began.id, [line(said)])


def split_condition(text: str) -> tuple[str, str]:
    """The words and the command of a goal. The command is the line that begins with `!`."""
    lines = [typed.strip() for typed in text.strip().splitlines()]
    commands = [typed.lstrip("!").strip() for typed in lines if typed.startswith("!")]
    if len(commands) > 1:
        raise UsageError("A goal has one command.", "Join them: !make && make test")
    words = "\n".join(typed for typed in lines if not typed.startswith("!"))
    return words.strip(), next(iter(commands), "")


def split_interval(text: str) -> tuple[float, str]:
    """The seconds and the message of `10m TEXT`. Raises UsageError."""
    match = _INTERVAL.match(text.strip())
    message = text.strip()[match.end() :].strip() if match else ""
    if match is None or not message:
        raise UsageError(
            f"`{one_line(text, 40)}` is not an interval and a message.",
            f"{_LOOP_USAGE}. Intervals: 30s, 10m, 2h, 1d",
        )
    seconds = sum(
        float(number) * _SECONDS[unit.lower()] for number, unit in _PIECE.findall(match[0])
    )
    if not MIN_SECONDS <= seconds <= MAX_DAYS * 86_400:
        raise UsageError(
            f"`{match[0]}` is not from {MIN_SECONDS:g} s to {MAX_DAYS} d.", _LOOP_USAGE
        )
    return seconds, message


def _goal_answer(session: Session) -> Answer:
    """The goal of the session and its state."""
    found = session.background.standing.goal.goal
    if found is None:
        return Answer(None, [line(f"There is no goal. {_USAGE}")])
    return Answer(found.title, [line(f"{found.title} — {session.background.standing.goal.state}")])


def _clear_goal(session: Session) -> Answer:
    """End the goal of the session. Raises UsageError without one."""
    found = _demand_goal(session)
    session.background.standing.goal.clear()
    return Answer(found.title, [line(f"The goal is ended: {one_line(found.title)}")])


def _demand_goal(session: Session) -> Goal:
    """The goal of the session. Raises UsageError without one."""
    found = session.background.standing.goal.goal
    if found is None:
        raise UsageError("There is no goal.", _USAGE)
    return found


async def _refuse_danger(session: Session, command: str) -> None:
    """Raises UsageError for a command that cannot be undone: it would run after each turn."""
    if not command:
        return
    if reason := await asyncio.to_thread(session.permissions.find_danger, command):
        raise UsageError(
            f"The check would run after each turn, and may not be undone: {reason}.",
            "Name a command that only checks.",
        )
