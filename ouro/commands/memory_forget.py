"""Forget: stop using entries, or remove a text from everything that ouro stores."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ouro.commands import action
from ouro.commands.action import ActionContext, Answer, parse_indexes
from ouro.commands.memory_notes import entry_rows
from ouro.commands.render import CodeSpan, CommandText, Title, View, line, table
from ouro.display import Choice
from ouro.errors import OuroError, UsageError
from ouro.memory import long_term
from ouro.utils.ouro_paths import get_history_dir, get_home, get_index_path, get_sessions_dir, tilde
from ouro.utils.text import one_line, plural

_DEFAULT_BACKUP = Path("~") / "ouro-before-forgetting.tar"
_SESSION_HAS_TEXT = (
    "This session still has the text in memory, and its file is open. Leave it (`/exit`), then"
    " finish with `ouro memory forget --everywhere --secret`."
)


async def forget(
    context: ActionContext, text: str, pick: str, yes: bool, everywhere: bool, **flags: Any
) -> Answer:
    """Stop using the entries that match a text, or, with `everywhere`, remove the text from all that
    ouro stores. The exit code is 1 if nothing was forgotten.

    Args:
        text: words of the entries, or an id.
        pick: numbers of the matches to forget, such as `1,3`; empty: the user is asked.
        yes: forget all matches without asking.
        flags: `secret`, `backup` and `no_backup`, only for `everywhere`.

    Raises:
        UsageError: these flags do not fit, or nothing matches in a session.
    """
    if everywhere:
        return await _forget_everywhere(context, text, is_sure=yes, **flags)
    if any(flags.values()):
        raise UsageError("--secret, --backup and --no-backup need --everywhere.")
    matches = await context.memory(lambda memory: long_term.find_to_forget(memory.editor, text))
    if not matches and context.session:
        raise UsageError("No matches.", commands=["memory list"])
    if not matches:
        return Answer(_forgotten_data(matches, chosen=()), [line("No matches.")], 1)
    chosen = matches if yes else await _choose_entries(context, matches, pick)
    value = _forgotten_data(matches, chosen)
    if not chosen:
        return Answer(value, [line("Nothing was forgotten.")], 1)
    changes = await context.memory(
        lambda memory: long_term.forget_entries(memory.editor, chosen), reports=False
    )
    value["undo"] = {change.scope: change.undo for change in changes}
    forgotten = plural(len(chosen), "entry", "entries")
    view: View = [line(f"Forgot {forgotten}. The git history keeps the text.")]
    for change in changes:
        if change.undo:
            view.append(line("Undo: ", CommandText(f"memory undo {change.undo[:7]}")))
    return Answer(value, view)


def _forgotten_data(
    matches: Sequence[long_term.MemoryEntry], chosen: Sequence[long_term.MemoryEntry]
) -> dict[str, Any]:
    """What `--json` prints; `undo` is the commit to undo by scope, empty until they are forgotten."""
    return {"fits": matches, "forgotten": [entry.id for entry in chosen], "undo": {}}


async def _choose_entries(
    context: ActionContext, matches: Sequence[long_term.MemoryEntry], pick: str
) -> Sequence[long_term.MemoryEntry]:
    """The matches that `--pick` names by number; without it, those that the user chooses from a list.
    If no user can be asked, the list and the flags that choose are shown, and the result is empty.
    """
    if pick:
        return [matches[index] for index in parse_indexes(pick, len(matches))]
    context.show([Title("To forget"), *table(entry_rows(matches), is_numbered=True)])
    if not context.can_ask:
        context.show([line("Choose with --pick 1,3, or --yes for all.")])
        return []
    choices = [
        Choice(str(number), one_line(entry.text, 100), f"{entry.scope}/{entry.file}")
        for number, entry in enumerate(matches, 1)
    ]
    numbers = await context.choose_many("Forget which?", choices)
    return [matches[int(number) - 1] for number in numbers]


async def _forget_everywhere(
    context: ActionContext, words: str, *, is_sure: bool, secret: bool, backup: str, no_backup: bool
) -> Answer:
    """Search a text in everything that ouro stores, ask, offer a backup, and remove the text. The
    exit code is 1 if it is still somewhere, or nothing was removed.

    Args:
        is_sure: do not ask; then `backup` or `no_backup` must be there.
        backup: the path of the backup; empty to ask, unless `no_backup`.
    """
    # Search the text.
    text = await _text_to_forget(context, words, secret=secret)
    is_backup_decided = bool(backup) or no_backup
    if is_sure and not is_backup_decided:
        raise UsageError("This cannot be undone.", "With --yes, pass --backup FILE or --no-backup.")
    with suppress(OuroError):  # also if memory is off here
        # Opened, a memory that was moved is recorded at its new place, and searched there.
        await context.memory(lambda _memory: None)
    home = long_term.OuroHome(get_home(), get_history_dir(), get_sessions_dir(), get_index_path())
    job = long_term.TrueForget(text, home)
    report = await asyncio.to_thread(job.search, context.progress)
    context.progress("")
    if not report.count:
        searched_rows = table((place.place,) for place in report.places)
        view = [
            line("The text was found nowhere. Searched:"),
            *searched_rows,
            *_unsearched_view(report),
        ]
        return Answer({"found": report, "done": False}, view, 1)

    # Ask, and back up.
    context.show(_places_view(report, is_secret=secret))
    question = f"Forget it in {plural(report.count, 'place')}? This cannot be undone."
    if is_backup_decided:
        backup_target = Path(backup) if backup else None
        is_agreed = await action.confirm(context, question, "Forget it", assume_yes=is_sure)
    else:
        is_agreed, backup_target = await _ask_consent(context, question)
    if not is_agreed:
        return Answer({"found": report, "done": False}, [line("Nothing was changed.")], 1)
    backup_path = await _back_up(context, home, backup_target)

    # Remove the text.
    # An interrupt does not stop it: the text would be removed from some of the places.
    outcome = await asyncio.shield(asyncio.to_thread(job.forget, context.progress))
    await context.update_index()
    context.progress("")
    value = {
        "found": report,
        "left": outcome.left,
        "unsearched": outcome.unsearched,
        "backup": backup_path,
        "done": not outcome.left,
    }
    view = [
        *_forgotten_view(outcome, job.placeholder),
        *_remaining_copies_view(context, secret, backup_path),
    ]
    return Answer(value, view, 1 if outcome.left else 0)


def _remaining_copies_view(context: ActionContext, is_secret: bool, backup: str) -> View:
    """Lines about copies of the text that ouro cannot remove: in this session, in the history of
    the shell, and in the backup. `backup` is its path, or empty. A secret is asked for, so the
    shell has not seen it.
    """
    view: View = []
    if context.session:
        view.append(line(_SESSION_HAS_TEXT))
    elif not is_secret:
        view.append(line("Your shell may have saved the command line in its history file."))
    if backup:
        backup_note = f"The backup {tilde(Path(backup))} still holds the text"
        view.append(line(f"{backup_note}: remove it when you are sure."))
    return view


def _places_view(report: long_term.ForgetReport, *, is_secret: bool) -> View:
    """A view of the places that have the text, with a warning if it may be a common word."""
    rows: list[tuple[str, ...]] = [
        (f"{place.count:>6,}", place.place) for place in report.places if place.count
    ]
    rows += [("session", CodeSpan(name)) for name in report.sessions]
    view: View = [Title("Where the text is"), *table(rows)]
    if report.count >= long_term.MANY_PLACES and not is_secret:
        warning = f"The text is in {report.count:,} places: check that it is not a common word."
        view.append(line(warning, level="warning"))
    return view


async def _back_up(context: ActionContext, home: long_term.OuroHome, target: Path | None) -> str:
    """Write a backup of the home; returns its path. Without a target none is written, and the path
    is empty.
    """
    if target is None:
        return ""
    back_up = asyncio.to_thread(long_term.back_up_home, home, target, context.progress)
    return str(await back_up)


class _Consent(NamedTuple):
    """The user's answer to the question whether to forget."""

    is_agreed: bool
    backup_target: Path | None
    """The path of the backup to be written before; None if they want none."""


async def _ask_consent(context: ActionContext, question: str) -> _Consent:
    """Ask whether to forget, and whether to write a backup before."""
    target = _free_path(_DEFAULT_BACKUP.expanduser())
    backup_note = f"{tilde(target)} still holds the text: remove it later"
    choices = [
        Choice("backup", "Forget, after a backup", backup_note),
        Choice("now", "Forget, without a backup"),
        Choice("no", "Change nothing"),
    ]
    picked = await context.choose(question, choices)
    backup_target = target if picked == "backup" else None
    return _Consent(picked in ("backup", "now"), backup_target)


def _forgotten_view(outcome: long_term.ForgetReport, placeholder: str) -> View:
    """A view of the places where the text was removed, and of those where it could not be."""
    return [
        Title(f"Forgotten in {outcome.count:,} places"),
        line(f"Where a text is needed, it is now {placeholder}."),
        *table((f"{place.count:>6,}", place.place) for place in outcome.places),
        *(line(f"NOT DONE: {problem}", level="warning") for problem in outcome.left),
        *_unsearched_view(outcome),
        line(long_term.PROVIDERS),
    ]


async def _text_to_forget(context: ActionContext, words: str, *, secret: bool) -> str:
    """The text to forget: the words of the command line. With `secret`, it is the first line of
    standard input, or on a terminal asked for without showing it.

    Raises:
        UsageError: the text is missing, or with `secret` it is on the command line.
    """
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


def _unsearched_view(report: long_term.ForgetReport) -> View:
    return [line(f"NOT SEARCHED: {place}", level="warning") for place in report.unsearched]


def _free_path(path: Path) -> Path:
    """The path if no file is there, else the first free one with a number: `x-2.tar`, `x-3.tar`."""
    free_path = path
    number = 2
    while free_path.exists():
        free_path = path.with_stem(f"{path.stem}-{number}")
        number += 1
    return free_path
