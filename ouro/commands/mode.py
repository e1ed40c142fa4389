"""Permission modes: what each means, and how to change it; /plan."""

from __future__ import annotations

from ouro.commands.front_end import FrontEnd
from ouro.commands.slash import SessionContext
from ouro.errors import UsageError
from ouro.safety import Mode

MODES: dict[Mode, str] = {
    "ask": "reads freely, asks before it changes or runs anything",
    "edit": "edits files in the project without asking",
    "plan": "looks and plans, changes nothing",
    "auto": "asks only for what could do harm outside the project",
}


async def plan(context: SessionContext, task: str) -> None:
    leaves = context.session.status().mode == "plan" and not task
    set_mode(context.front_end, "ask" if leaves else "plan")
    if task:
        await context.front_end.send(task)


def next_mode(mode: Mode) -> Mode:
    """The mode that Shift+Tab changes to."""
    modes = list(MODES)
    return modes[(modes.index(mode) + 1) % len(modes)]


def set_mode(front_end: FrontEnd, name: str) -> None:
    """Change the mode and show it. Raises UsageError."""
    mode = next((mode_name for mode_name in MODES if mode_name == name), None)
    if mode is None:
        raise UsageError(f"There is no mode `{name}`. There are: {', '.join(MODES)}.")
    front_end.session.set_mode(mode)
    front_end.say(f"Mode {mode}: {MODES[mode]}.")
    front_end.redraw()
