"""/plans: the saved plans of the project; carry one out, edit or delete it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from ouro.commands.action import Answer
from ouro.commands.front_end import FrontEnd
from ouro.commands.render import Markdown, escape, facts, line
from ouro.commands.slash import SessionContext
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.safety import Mode
from ouro.session.plan_approval import CARRY_OUT_ASKING, CARRY_OUT_EDITING
from ouro.session.plan_file import PlanFile, PlanFolder

_MODE_OF_CHOICE: dict[str, Mode] = {"ask": "ask", "edit": "edit"}
"""The choices that carry a plan out, as permission modes."""
_CARRY_OUT_CHOICES = (Choice("ask", CARRY_OUT_ASKING), Choice("edit", CARRY_OUT_EDITING))


async def plans(context: SessionContext, words: str) -> Answer | None:
    """Let the user choose one of the plans, and what to do with it; then None is returned. Without a
    user, list them.

    Args:
        words: only plans that have all of them in their title or file name; empty for all plans.
    """
    folder = _plan_folder(context.front_end)
    all_plans = await asyncio.to_thread(folder.list)
    matching = [plan for plan in all_plans if _has_words(plan, words)]
    if not matching:
        text = "No plan matches." if words else "There are no plans yet: /plan makes one."
        return Answer(value=[], view=[line(text)])
    matching.sort(key=lambda plan: plan.state == "done")  # those that are done come last
    if not context.front_end.has_user:
        return _list_answer(matching, folder)
    choices = [
        Choice(str(number), plan.title, f"{plan.progress}, {plan.path.stem[:10]}")
        for number, plan in enumerate(matching)
    ]
    chosen = await context.choose("Plans of this project", choices)
    if chosen is not None:
        await _act_on(context.front_end, folder, matching[int(chosen)])
    return None


def _list_answer(plan_files: Sequence[PlanFile], folder: PlanFolder) -> Answer:
    """An answer with the list of plans; if it is only one plan, with its text."""
    value = [
        {"title": plan.title, "file": folder.relative_name(plan.path), "state": plan.progress}
        for plan in plan_files
    ]
    if len(plan_files) == 1:
        return Answer(value, [Markdown(plan_files[0].body)])
    rows = [
        (folder.relative_name(plan.path), f"{escape(plan.title)}, {plan.progress}")
        for plan in plan_files
    ]
    return Answer(value, [Markdown(facts(*rows))])


async def offer_plan(front_end: FrontEnd, plan: PlanFile) -> None:
    """Ask whether this session is to carry out a plan that is not done, and in which mode. If the user
    agrees, begin.
    """
    choices = [*_CARRY_OUT_CHOICES, Choice(value="", label="Not now", detail="/plans lists it")]
    title = f"Continue with the plan “{plan.title}” ({plan.progress})?"
    chosen = await front_end.choose(title, choices)
    if chosen:
        await _carry_out(front_end, plan, chosen)


async def _act_on(front_end: FrontEnd, folder: PlanFolder, plan: PlanFile) -> None:
    """Show a plan, and do what the user picks: carry it out, edit or delete it."""
    front_end.show(plan.body)
    choices = [
        *_CARRY_OUT_CHOICES,
        Choice("change", "Edit it"),
        Choice("delete", "Delete it"),
        Choice(value="", label="Nothing"),
    ]
    chosen = await front_end.choose(plan.title, choices)
    if chosen in _MODE_OF_CHOICE:
        await _carry_out(front_end, plan, chosen)
    elif chosen == "change":
        await _edit(front_end, folder, plan)
    elif chosen == "delete":
        await asyncio.to_thread(partial(plan.path.unlink, missing_ok=True))
        front_end.say(f"Deleted {folder.relative_name(plan.path)}.")


async def _edit(front_end: FrontEnd, folder: PlanFolder, plan: PlanFile) -> None:
    """Let the user edit a plan. If the agent ticked off steps meanwhile, the edit is shown, but not
    saved: UsageError is raised.
    """
    body = (await front_end.edit(plan.body)).strip()
    if not body or body == plan.body:
        return
    present = await asyncio.to_thread(folder.read, plan.path) or plan
    front_end.show(body)
    if present.body != plan.body:
        raise UsageError(
            "The plan changed meanwhile: the edit above is not saved.", "Edit it again."
        )
    await asyncio.to_thread(folder.write, replace(present, body=body))


async def _carry_out(front_end: FrontEnd, plan: PlanFile, mode: str) -> None:
    """Let this session carry out the plan: the plan becomes its own, the mode is set, and the agent
    begins. `mode` is a value of _CARRY_OUT_CHOICES.
    """
    message = await front_end.session.plan.adopt(plan, _MODE_OF_CHOICE[mode])
    front_end.redraw()
    await front_end.send(message)


def _has_words(plan: PlanFile, words: str) -> bool:
    """Whether each of the words is somewhere in the title or file name, ignoring case."""
    text = f"{plan.title} {plan.path.stem}".casefold()
    return all(word in text for word in words.casefold().split())


def _plan_folder(front_end: FrontEnd) -> PlanFolder:
    """The folder of the plans. Raises UsageError in an ephemeral session."""
    folder = front_end.session.plan.folder
    if folder is None:
        raise UsageError("An ephemeral session saves no plans.")
    return folder
