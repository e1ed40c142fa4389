"""/memory consolidate, crystallize, lessons: notes merged, old sessions read, what they taught."""

from __future__ import annotations

from ouro.commands.command import FrontEnd
from ouro.commands.memory_entries import entries_markdown
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.long_term.entries import lessons as find_lessons
from ouro.memory.long_term.maintenance.background import DAYS
from ouro.memory.long_term.maintenance.report import plan_of_notes, plan_of_sessions
from ouro.session import Digest, LongTermMemoryManager


async def consolidate(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """Merge what says the same: `notes`, `core`, `user` or `repo` (the core of a scope); both without a word."""
    if rest not in ("", "notes", "core", *known.scopes):
        raise UsageError(f"There is no {rest} to consolidate.", f"/memory consolidate notes, core, {known.scopes[0]}")
    await _afford(front_end)
    if rest != "notes":
        for scope in known.scopes if rest in ("", "core") else (rest,):
            front_end.say(f"Memory ({scope}): {await known.consolidate(scope)}.")  # type: ignore[arg-type]  # one of them
    if rest in ("", "notes"):
        await _merge_notes(front_end, _digest(front_end))


async def crystallize(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """Read sessions that are older than a week, or so many days, for what lasts; interrupted, it goes on later."""
    if rest not in ("", "all") and not rest.isdecimal():
        raise UsageError("Say how old sessions have to be, in days, or `all`.", "/memory crystallize 30")
    await _afford(front_end)
    digest = _digest(front_end)
    found = await digest.find_sessions(0 if rest == "all" else int(rest or DAYS))
    if not any(not each.skipped for each in found):
        front_end.say("There is no old session here that was not read yet.")
        return
    plan = plan_of_sessions(found, digest.price(sum(each.tokens for each in found)))
    if await _is_sure(front_end, plan, "Read them"):
        await front_end.run(digest.crystallizing(found))


async def lessons(front_end: FrontEnd, _known: LongTermMemoryManager, _rest: str) -> None:
    """What went wrong in this project before and what works, newest first, with whence it is."""
    found = await front_end.session.memory.at_desk(find_lessons)
    if not found:
        raise UsageError("No lesson was learned here yet.", "Corrections and patterns come from capture.")
    front_end.show(f"{entries_markdown(found)}\n\n`/memory why ID` opens what taught it.")


async def _merge_notes(front_end: FrontEnd, digest: Digest) -> None:
    found, tokens = await digest.find_notes()
    if not found:
        front_end.say("No notes say the same.")
        return
    if await _is_sure(front_end, plan_of_notes(found, tokens, digest.price(tokens)), "Merge them"):
        await front_end.run(digest.merging(found))


async def _afford(front_end: FrontEnd) -> None:
    """Look at the limits of money, which every call from here on keeps to.

    Raises:
        LimitReached: nothing is left of one.
    """
    if warning := await front_end.session.budget.check(0):
        front_end.say(warning, "warning")


async def _is_sure(front_end: FrontEnd, plan: str, yes: str) -> bool:
    chosen = await front_end.choose(plan, [Choice("yes", yes), Choice("no", "Leave it")])
    return chosen == "yes"


def _digest(front_end: FrontEnd) -> Digest:
    if front_end.session.memory.maintenance is None:
        raise UsageError("Nothing is kept here.", "By --ephemeral.")
    return front_end.session.memory.maintenance


COMMANDS = {"consolidate": consolidate, "crystallize": crystallize, "lessons": lessons}
