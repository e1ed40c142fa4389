"""Commands on the model and the mode: model, think, plan."""

from __future__ import annotations

from typing import get_args

from ouro.commands.front_end import FrontEnd
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.llm import Effort
from ouro.safety import Mode

MODES: dict[Mode, str] = {
    "ask": "reads freely, asks before it changes or runs anything",
    "edit": "edits files in the project without asking",
    "plan": "looks and plans, changes nothing",
    "auto": "asks only for what could do harm outside the project",
}
EFFORTS: tuple[Effort, ...] = get_args(Effort)


async def model(front_end: FrontEnd, argument: str) -> None:
    chosen = argument
    if not chosen:
        found = sorted(await front_end.session.models(), key=lambda choice: not choice.usable)
        choices = [
            Choice(choice.name, choice.name, "" if choice.usable else choice.reason or "cannot be used")
            for choice in found
        ]
        chosen = await front_end.choose("Which model?", choices, front_end.session.status().model) or ""
    if not chosen:
        return
    await front_end.session.set_model(chosen)
    front_end.say(f"Model: {front_end.session.status().model}")
    front_end.redraw()


async def think(front_end: FrontEnd, argument: str) -> None:
    current = front_end.session.status().effort
    choices = [Choice(effort, effort) for effort in EFFORTS]
    chosen = argument or await front_end.choose("How long should the model think?", choices, current)
    if not chosen:
        return
    effort = next((level for level in EFFORTS if level == chosen), None)
    if effort is None:
        raise UsageError(f"{chosen!r} is no effort. There are: {', '.join(EFFORTS)}.")
    await front_end.session.set_model(effort=effort)
    front_end.say(f"Thinking: {effort}")
    front_end.redraw()


async def plan(front_end: FrontEnd, argument: str) -> None:
    leaves = front_end.session.status().mode == "plan" and not argument
    set_mode(front_end, "ask" if leaves else "plan")
    if argument:
        await front_end.send(argument)


def next_mode(mode: Mode) -> Mode:
    """The mode that Shift+Tab changes to."""
    modes = list(MODES)
    return modes[(modes.index(mode) + 1) % len(modes)]


def set_mode(front_end: FrontEnd, name: str) -> None:
    """Change the mode and show it. Raises UsageError."""
    mode = next((mode_name for mode_name in MODES if mode_name == name), None)
    if mode is None:
        raise UsageError(f"{name!r} is no mode. There are: {', '.join(MODES)}.")
    front_end.session.set_mode(mode)
    front_end.say(f"Mode {mode}: {MODES[mode]}.")
    front_end.redraw()
