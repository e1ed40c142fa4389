"""/remember and /forget: what a person wants kept, or out of use, at once and without a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ouro.commands.command import FrontEnd
from ouro.commands.forget_everywhere import EVERYWHERE, forget_everywhere
from ouro.commands.markdown import code, escape
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.long_term import remember as forgetting
from ouro.memory.long_term import remember as remembering
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, provenance
from ouro.memory.long_term.remember import RememberResult
from ouro.utils.text import one_line, plural

_WIDTH = 100
_ALL = "all"


async def remember(front_end: FrontEnd, argument: str) -> None:
    """Keep something for later sessions: `/remember Run the tests with pytest -q`."""

    def act(desk: MemoryEditor) -> RememberResult:
        return remembering.remember(desk, argument)

    front_end.say(remembered_line(await front_end.session.memory.at_desk(act, says_it=True)))


async def forget(front_end: FrontEnd, argument: str) -> None:
    """Take something out of memory, after a look at what fits: `/forget staging password`; `--everywhere` for good."""
    if argument.split()[:1] == [EVERYWHERE]:
        await forget_everywhere(front_end, argument.strip().removeprefix(EVERYWHERE).strip())
        return
    found = await front_end.session.memory.at_desk(partial(forgetting.fitting, text=argument))
    if not found:
        raise UsageError("Nothing that is remembered fits.", "/memory list shows what there is.")
    front_end.show(preview(found))
    chosen = await _chosen(front_end, found)
    if not chosen:
        front_end.say("Nothing was forgotten.")
        return
    done = await front_end.session.memory.at_desk(partial(forgetting.forget, entries=chosen), says_it=True)
    count = len(done.entries)
    undo = "".join(f" · /memory undo {each.undo[:7]}" for each in done.changes if each.undo)
    front_end.say(f"{plural(count, 'entry is', 'entries are')} no longer remembered{undo}")


def preview(entries: Sequence[MemoryEntry]) -> str:
    """Exactly what would go, numbered."""
    lines = [f"{number}. {describe(each)}" for number, each in enumerate(entries, 1)]
    return "\n".join(["**This would be forgotten**\n", *lines])


def describe(entry: MemoryEntry) -> str:
    """An entry on one line of Markdown: what it says, where it stands, and provenance it is."""
    place = entry.id if entry.kind == "core" else f"{entry.scope}/{entry.id[:12]}"
    about = " · ".join(filter(None, (entry.category if entry.kind == "note" else "", provenance(entry))))
    return f"{escape(one_line(entry.text, 200))}  \n   {code(place)}{f' · {escape(about)}' if about else ''}"


def remembered_line(done: RememberResult) -> str:
    """What became of something to remember, on one line, with the way back."""
    entry = done.entry
    place = f"{entry.scope}/{entry.file}" if entry.kind == "core" else f"{entry.scope} note {entry.id[:12]}"
    undo = f" · /memory undo {done.undo[:7]}" if done.undo else ""
    match done.state:
        case "kept":
            sort = "" if entry.kind == "core" else f", {entry.category}"
            return f"Remembered in {place}{sort} ({done.why}): {one_line(entry.text, _WIDTH)}{undo}"
        case "restored":
            return f"Remembered again, from the archive: {place}{undo}"
        case "confirmed":
            return f"Known already, and confirmed: {place} · {one_line(entry.text, _WIDTH)}{undo}"


async def _chosen(front_end: FrontEnd, found: Sequence[MemoryEntry]) -> Sequence[MemoryEntry]:
    every = [Choice(_ALL, f"All {len(found)}", "each of them")] if len(found) > 1 else []
    each = [
        Choice(str(number), one_line(entry.text, _WIDTH), f"{entry.scope}/{entry.file}")
        for number, entry in enumerate(found, 1)
    ]
    picked = await front_end.choose("Forget which?", [*each, *every])
    if picked is None:
        return ()
    return found if picked == _ALL else [found[int(picked) - 1]]
