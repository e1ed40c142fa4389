"""Forget: stop using a memory, or remove its text from everything that ouro saves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ouro.commands.action import ActionContext, Answer, confirm, places_in
from ouro.commands.memory_notes import entry_row
from ouro.commands.render import CodeSpan, CommandText, TextLine, Title, line, table
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.runtime import get_history_dir, get_home, get_index_path, get_sessions_dir, tilde
from ouro.utils.text import one_line, plural

_BACKUP = Path("~") / "ouro-before-forgetting.tar"
_IN_SESSION = (
    "This session still has the text in memory, and its file is open. Leave it (`/exit`), then finish with "
    "`ouro memory forget --everywhere --secret`."
)


async def forget(
    context: ActionContext, text: Sequence[str], pick: str, yes: bool, everywhere: bool, **how: Any
) -> Answer:
    if everywhere:
        return await _forget_everywhere(context, " ".join(text), yes=yes, **how)
    if any(how.values()):
        raise UsageError("--secret, --backup and --no-backup need --everywhere.")
    found = await context.memory(lambda memory: long_term.find_to_forget(memory.editor, " ".join(text)))
    if not found and context.session:
        raise UsageError("No matches.", commands=["memory list"])
    chosen = found if yes or not found else await _choose_entries(context, found, pick)
    value: dict[str, Any] = {"fits": found, "forgotten": [entry.id for entry in chosen], "undo": {}}
    if not chosen:
        return Answer(value, [line("Nothing was forgotten." if found else "No matches.")], 1)
    done = await context.memory(lambda memory: long_term.forget_entries(memory.editor, chosen), reports=False)
    value["undo"] = {change.scope: change.undo for change in done}
    what = line(f"Forgot {plural(len(chosen), 'entry', 'entries')}. The git history keeps the text.")
    undo = [line("Undo: ", CommandText(f"memory undo {change.undo[:7]}")) for change in done if change.undo]
    return Answer(value, [what, *undo])


async def _choose_entries(
    context: ActionContext, found: Sequence[long_term.MemoryEntry], pick: str
) -> Sequence[long_term.MemoryEntry]:
    """Those of --pick, else the user's choice."""
    if pick:
        return [found[place] for place in places_in(pick, len(found))]
    context.show([Title("To forget"), *table(map(entry_row, found), is_numbered=True)])
    if not context.can_ask:
        context.show([line("Choose with --pick 1,3, or --yes for all.")])
        return []
    choices = [
        Choice(str(number), one_line(entry.text, 100), f"{entry.scope}/{entry.file}")
        for number, entry in enumerate(found, 1)
    ]
    return [found[int(number) - 1] for number in await context.choose_many("Forget which?", choices)]


async def _forget_everywhere(
    context: ActionContext, words: str, *, yes: bool, secret: bool, backup: str, no_backup: bool
) -> Answer:
    text = await _text(context, words, secret=secret)
    if yes and not backup and not no_backup:
        raise UsageError("This cannot be undone.", "With --yes, pass --backup FILE or --no-backup.")
    home = long_term.OuroHome(get_home(), get_history_dir(), get_sessions_dir(), get_index_path())
    job = long_term.TrueForget(text, home)
    found = await asyncio.to_thread(job.look, context.progress)
    context.progress("")
    if not found.count:
        searched = table((place.place,) for place in found.places)
        view = [line("The text was found nowhere. Searched:"), *searched, *_not_searched(found)]
        return Answer({"found": found, "done": False}, view, 1)
    rows: list[tuple[str, ...]] = [(f"{place.count:>6,}", place.place) for place in found.places if place.count]
    rows += [("session", CodeSpan(name)) for name in found.sessions]
    context.show([Title("Where the text is"), *table(rows)])
    if found.count >= long_term.MANY_PLACES and not secret:
        many = f"The text is in {found.count:,} places: check that it is not a common word."
        context.show([line(many, level="warning")])
    question = f"Forget it in {plural(found.count, 'place')}? This cannot be undone."
    target = Path(backup) if backup else _free_path(_BACKUP.expanduser())
    if yes or backup or no_backup:
        agreed = await confirm(context, question, "Forget it", assume_yes=yes)
    else:
        choices = [
            Choice("backup", "Forget, after a backup", f"{tilde(target)} still holds the text: remove it later"),
            Choice("now", "Forget, without a backup"),
            Choice("no", "Change nothing"),
        ]
        picked = await context.choose(question, choices)
        agreed, backup = picked in ("backup", "now"), str(target) if picked == "backup" else ""
    if not agreed:
        return Answer({"found": found, "done": False}, [line("Nothing was changed.")], 1)
    saved = str(await asyncio.to_thread(long_term.back_up_home, home, target, context.progress)) if backup else ""
    done = await asyncio.shield(asyncio.to_thread(job.forget, context.progress))
    await context.update_index()
    context.progress("")
    value = {"found": found, "left": done.left, "unsearched": done.unsearched, "backup": saved, "done": not done.left}
    view = [
        Title(f"Forgotten in {done.count:,} places"),
        line(f"Where a text is needed, it is now {job.placeholder}."),
        *table((f"{place.count:>6,}", place.place) for place in done.places),
        *(line(f"NOT DONE: {problem}", level="warning") for problem in done.left),
        *_not_searched(done),
        line(long_term.PROVIDERS),
    ]
    if context.session:
        view.append(line(_IN_SESSION))
    elif not secret:
        view.append(line("Your shell may have saved the command line in its history file."))
    if saved:
        view.append(line(f"The backup {tilde(Path(saved))} still holds the text: remove it when you are sure."))
    return Answer(value, view, 1 if done.left else 0)


async def _text(context: ActionContext, words: str, *, secret: bool) -> str:
    if not secret:
        if not words.strip():
            raise UsageError("Name the text to forget.", "With --secret it is asked for and not shown.")
        return words
    if words:
        raise UsageError("With --secret do not pass the text: the command line stays in your shell's history.")
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return await context.ask("Text to forget (not shown)", secret=True)


def _not_searched(found: long_term.ForgetReport) -> list[TextLine]:
    return [line(f"NOT SEARCHED: {place}", level="warning") for place in found.unsearched]


def _free_path(path: Path) -> Path:
    number, target = 2, path
    while target.exists():
        target, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return target
