"""Forget: stop using entries, or remove a text from everything that ouro stores."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ouro.commands import action
from ouro.commands.action import ActionContext, Answer, parse_indexes
from ouro.commands.memory_notes import entry_rows
from ouro.commands.render import CodeSpan, CommandText, Title, View, line, table
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.runtime import (
    get_history_dir,
    get_home,
    get_index_path,
    get_sessions_dir,
    tilde,
)
from ouro.utils.text import one_line, plural

_BACKUP = Path("~") / "ouro-before-forgetting.tar"
_IN_SESSION = (
    "This session still has the text in memory, and its file is open. Leave it (`/exit`), then"
    " finish with `ouro memory forget --everywhere --secret`."
)


async def forget(
    context: ActionContext, text: str, pick: str, yes: bool, everywhere: bool, **how: Any
) -> Answer:
    if everywhere:
        return await _forget_everywhere(context, text, is_sure=yes, **how)
    if any(how.values()):
        raise UsageError("--secret, --backup and --no-backup need --everywhere.")
    found = await context.memory(lambda memory: long_term.find_to_forget(memory.editor, text))
    if not found and context.session:
        raise UsageError("No matches.", commands=["memory list"])
    if not found:
        return Answer(_forgotten_data(found, found), [line("No matches.")], 1)
    chosen = found if yes else await _choose_entries(context, found, pick)
    value = _forgotten_data(found, chosen)
    if not chosen:
        return Answer(value, [line("Nothing was forgotten.")], 1)
    done = await context.memory(
        lambda memory: long_term.forget_entries(memory.editor, chosen), reports=False
    )
    value["undo"] = {change.scope: change.undo for change in done}
    forgotten = plural(len(chosen), "entry", "entries")
    view: View = [line(f"Forgot {forgotten}. The git history keeps the text.")]
    for change in done:
        if change.undo:
            view.append(line("Undo: ", CommandText(f"memory undo {change.undo[:7]}")))
    return Answer(value, view)


def _forgotten_data(
    found: Sequence[long_term.MemoryEntry], chosen: Sequence[long_term.MemoryEntry]
) -> dict[str, Any]:
    return {"fits": found, "forgotten": [entry.id for entry in chosen], "undo": {}}


async def _choose_entries(
    context: ActionContext, found: Sequence[long_term.MemoryEntry], pick: str
) -> Sequence[long_term.MemoryEntry]:
    """The entries of --pick, otherwise the user's choice."""
    if pick:
        return [found[place] for place in parse_indexes(pick, len(found))]
    context.show([Title("To forget"), *table(entry_rows(found), is_numbered=True)])
    if not context.can_ask:
        context.show([line("Choose with --pick 1,3, or --yes for all.")])
        return []
    choices = [
        Choice(str(number), one_line(entry.text, 100), f"{entry.scope}/{entry.file}")
        for number, entry in enumerate(found, 1)
    ]
    return [
        found[int(number) - 1] for number in await context.choose_many("Forget which?", choices)
    ]


async def _forget_everywhere(
    context: ActionContext, words: str, *, is_sure: bool, secret: bool, backup: str, no_backup: bool
) -> Answer:
    """Search a text in everything that ouro stores, ask, offer a backup, and remove the text. The
    exit code is 1 if it is still somewhere, or nothing was removed.
    """
    text = await _text_to_forget(context, words, secret=secret)
    is_backup_decided = bool(backup) or no_backup
    if is_sure and not is_backup_decided:
        raise UsageError("This cannot be undone.", "With --yes, pass --backup FILE or --no-backup.")
    home = long_term.OuroHome(get_home(), get_history_dir(), get_sessions_dir(), get_index_path())
    job = long_term.TrueForget(text, home)
    found = await asyncio.to_thread(job.look, context.progress)
    context.progress("")
    if not found.count:
        searched = table((place.place,) for place in found.places)
        view = [line("The text was found nowhere. Searched:"), *searched, *_unsearched_view(found)]
        return Answer({"found": found, "done": False}, view, 1)
    context.show(_places_view(found, is_secret=secret))
    question = f"Forget it in {plural(found.count, 'place')}? This cannot be undone."
    if is_backup_decided:
        target = Path(backup) if backup else None
        agreed = await action.confirm(context, question, "Forget it", assume_yes=is_sure)
    else:
        agreed, target = await _choose_backup(context, question)
    if not agreed:
        return Answer({"found": found, "done": False}, [line("Nothing was changed.")], 1)
    saved = ""
    if target is not None:
        back_up = asyncio.to_thread(long_term.back_up_home, home, target, context.progress)
        saved = str(await back_up)
    done = await asyncio.shield(asyncio.to_thread(job.forget, context.progress))
    await context.update_index()
    context.progress("")
    value = {
        "found": found,
        "left": done.left,
        "unsearched": done.unsearched,
        "backup": saved,
        "done": not done.left,
    }
    view = [*_forgotten_view(done, job.placeholder), *_still_has_it(context, secret, saved)]
    return Answer(value, view, 1 if done.left else 0)


def _still_has_it(context: ActionContext, is_secret: bool, backup: str) -> View:
    """What still has the text, because the user made it or uses it now."""
    view: View = []
    if context.session:
        view.append(line(_IN_SESSION))
    elif not is_secret:
        view.append(line("Your shell may have saved the command line in its history file."))
    if backup:
        kept = f"The backup {tilde(Path(backup))} still holds the text"
        view.append(line(f"{kept}: remove it when you are sure."))
    return view


def _places_view(found: long_term.ForgetReport, *, is_secret: bool) -> View:
    """Where the text was found; a warning if it may be a common word."""
    rows: list[tuple[str, ...]] = [
        (f"{place.count:>6,}", place.place) for place in found.places if place.count
    ]
    rows += [("session", CodeSpan(name)) for name in found.sessions]
    view: View = [Title("Where the text is"), *table(rows)]
    if found.count >= long_term.MANY_PLACES and not is_secret:
        many = f"The text is in {found.count:,} places: check that it is not a common word."
        view.append(line(many, level="warning"))
    return view


async def _choose_backup(context: ActionContext, question: str) -> tuple[bool, Path | None]:
    """Whether the user agrees, and where to write a backup before; None: they want none."""
    target = _free_path(_BACKUP.expanduser())
    kept = f"{tilde(target)} still holds the text: remove it later"
    choices = [
        Choice("backup", "Forget, after a backup", kept),
        Choice("now", "Forget, without a backup"),
        Choice("no", "Change nothing"),
    ]
    picked = await context.choose(question, choices)
    return picked in ("backup", "now"), target if picked == "backup" else None


def _forgotten_view(done: long_term.ForgetReport, placeholder: str) -> View:
    """In how many places the text was removed, and where it could not be."""
    return [
        Title(f"Forgotten in {done.count:,} places"),
        line(f"Where a text is needed, it is now {placeholder}."),
        *table((f"{place.count:>6,}", place.place) for place in done.places),
        *(line(f"NOT DONE: {problem}", level="warning") for problem in done.left),
        *_unsearched_view(done),
        line(long_term.PROVIDERS),
    ]


async def _text_to_forget(context: ActionContext, words: str, *, secret: bool) -> str:
    """The text, which is asked for and not shown if it is a secret. Raises UsageError without one."""
    if not secret:
        if not words.strip():
            raise UsageError(
                "Name the text to forget.", "With --secret it is asked for and not shown."
            )
        return words
    if words:
        raise UsageError(
            "With --secret do not pass the text: the command line stays in your shell's history."
        )
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return await context.ask("Text to forget (not shown)", secret=True)


def _unsearched_view(found: long_term.ForgetReport) -> View:
    return [line(f"NOT SEARCHED: {place}", level="warning") for place in found.unsearched]


def _free_path(path: Path) -> Path:
    number, target = 2, path
    while target.exists():
        target, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return target
