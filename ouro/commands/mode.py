"""Permission modes: what each means, and how to change it; `/plan`."""

from __future__ import annotations

from contextlib import suppress

from ouro.commands.front_end import FrontEnd
from ouro.commands.slash import SessionContext
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.safety import Mode
from ouro.utils.ouro_paths import ensure_private_dir, get_home

MODES: dict[Mode, str] = {
    "ask": "reads freely, asks before it changes or runs anything",
    "edit": "edits files in the project without asking",
    "plan": "looks and plans, changes nothing",
    "auto": "asks only for what could do harm outside the project",
}


AUTO_MEANS = (
    "Mode auto changes files and runs commands without asking. It still asks before what could do"
    " harm outside of the project. /undo restores files, but not what a command has done elsewhere."
)


async def plan(context: SessionContext, task: str) -> None:
    """With a task, enter plan mode and send the task. With an empty task, enter plan mode, or, if it is
    on, change to the mode `ask`.
    """
    leaves_plan_mode = context.session.status().mode == "plan" and not task
    set_mode(context.front_end, "ask" if leaves_plan_mode else "plan")
    if task:
        await context.front_end.send(task)


def next_mode(mode: Mode) -> Mode:
    """The mode that Shift+Tab changes to. It leads out of `auto`, but not into it."""
    next_of: dict[Mode, Mode] = {"ask": "edit", "edit": "plan", "plan": "ask", "auto": "ask"}
    return next_of[mode]


async def choose_mode(front_end: FrontEnd, name: str) -> None:
    """Change the mode. At the first change to `auto` the user reads what it means and confirms it;
    else the mode stays. A mark in ouro's home remembers that. Raises UsageError for a name that is
    no mode, and if there is no user to confirm it.
    """
    explained_mark = get_home() / "auto_mode_explained"
    if name == "auto" and not explained_mark.exists():
        if not front_end.has_user:
            raise UsageError(
                "There is no user to confirm mode auto.", "Start with `--mode auto` instead."
            )
        present = front_end.session.status().mode
        answer = await front_end.choose(
            AUTO_MEANS,
            [
                Choice(value="", label=f"Stay in {present}"),
                Choice("auto", "Use auto in this session"),
            ],
        )
        if answer != "auto":
            return
        with suppress(OSError):  # without the file it is asked again
            ensure_private_dir(explained_mark.parent)
            explained_mark.touch()
    set_mode(front_end, name)


def set_mode(front_end: FrontEnd, name: str) -> None:
    """Change the mode and show it. Raises UsageError for a name that is no mode."""
    mode = next((mode_name for mode_name in MODES if mode_name == name), None)
    if mode is None:
        hint = ""
        if "(" in name:  # such as `shell(make *)`
            hint = f"For a rule: `/permissions allow {name}`, or `ask`, `deny`, `revoke`."
        problem = f"There is no mode `{name}`. There are: {', '.join(MODES)}."
        raise UsageError(problem, hint)
    front_end.session.set_mode(mode)
    front_end.say(f"Mode {mode}: {MODES[mode]}.")
    front_end.redraw()
