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

_MODES: dict[str, Mode] = {"ask": "ask", "edit": "edit"}
_CARRY_OUT = (Choice("ask", CARRY_OUT_ASKING), Choice("edit", CARRY_OUT_EDITING))


async def plans(context: SessionContext, words: str) -> Answer | None:
    """List the plans that contain the words, and let the user choose what to do with one."""
    folder = _folder(context.front_end)
    found = await asyncio.to_thread(folder.list)
    found = [plan for plan in found if _has_words(plan, words)]
    if not found:
        text = "No plan matches." if words else "There are no plans yet: /plan makes one."
        return Answer([], [line(text)])
    found.sort(key=lambda plan: plan.state == "done")
    if not context.front_end.has_user:
        return _list_answer(found, folder)
    choices = [
        Choice(str(number), plan.title, f"{plan.progress}, {plan.path.stem[:10]}")
        for number, plan in enumerate(found)
    ]
    chosen = await context.choose("Plans of this project", choices)
    if chosen is not None:
        await _act_on(context.front_end, folder, found[int(chosen)])
    return None


def _list_answer(found: Sequence[PlanFile], folder: PlanFolder) -> Answer:
    """The plans as a list; the text of one that is alone."""
    value = [
        {"title": plan.title, "file": folder.relative_name(plan.path), "state": plan.progress}
        for plan in found
    ]
    if len(found) == 1:
        return Answer(value, [Markdown(found[0].body)])
    rows = [
        (folder.relative_name(plan.path), f"{escape(plan.title)}, {plan.progress}")
        for plan in found
    ]
    return Answer(value, [Markdown(facts(*rows))])


async def offer_plan(front_end: FrontEnd, plan: PlanFile) -> None:
    """Offer a plan that is not done to a new session."""
    choices = [*_CARRY_OUT, Choice("", "Not now", "/plans lists it")]
    title = f"Continue with the plan “{plan.title}” ({plan.progress})?"
    chosen = await front_end.choose(title, choices)
    if chosen:
        await _carry_out(front_end, plan, chosen)


async def _act_on(front_end: FrontEnd, folder: PlanFolder, plan: PlanFile) -> None:
    """Show a plan, and do what the user picks: carry it out, edit or delete it."""
    front_end.show(plan.body)
    choices = [
        *_CARRY_OUT,
        Choice("change", "Edit it"),
        Choice("delete", "Delete it"),
        Choice("", "Nothing"),
    ]
    chosen = await front_end.choose(plan.title, choices)
    if chosen in _MODES:
        await _carry_out(front_end, plan, chosen)
    elif chosen == "change":
        body = (await front_end.edit(plan.body)).strip()
        if body and body != plan.body:
            await asyncio.to_thread(folder.write, replace(plan, body=body))
            front_end.show(body)
    elif chosen == "delete":
        await asyncio.to_thread(partial(plan.path.unlink, missing_ok=True))
        front_end.say(f"Deleted {folder.relative_name(plan.path)}.")


async def _carry_out(front_end: FrontEnd, plan: PlanFile, mode: str) -> None:
    message = await front_end.session.plan.adopt(plan, _MODES[mode])
    front_end.redraw()
    await front_end.send(message)


def _has_words(plan: PlanFile, words: str) -> bool:
    text = f"{plan.title} {plan.path.stem}".casefold()
    return all(word in text for word in words.casefold().split())


def _folder(front_end: FrontEnd) -> PlanFolder:
    folder = front_end.session.plan.folder
    if folder is None:
        raise UsageError("An ephemeral session saves no plans.")
    return folder
