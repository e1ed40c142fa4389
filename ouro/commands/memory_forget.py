"""Forget: stop using a memory, or remove its text from everything that ouro saves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.commands import memory_views as views
from ouro.commands.action import ActionContext, Answer, confirm
from ouro.commands.render import line
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.memory.long_term import ForgetReport, MemoryEntry

_BACKUP = Path("~") / "ouro-before-forgetting.tar"
_IN_SESSION = (
    "This session still has the text in memory, and its file is open. Leave it (`/exit`), then finish with "
    "`ouro memory forget --everywhere --secret`."
)


async def forget(
    context: ActionContext, text: Sequence[str], pick: str, yes: bool, everywhere: bool, secret: bool, backup: str,
    no_backup: bool,
) -> Answer:  # fmt: skip
    """Stop using what fits, after a preview."""
    if everywhere:
        return await _forget_everywhere(context, await _text(context, " ".join(text), secret=secret), backup=backup,
                                        yes=yes, no_backup=no_backup, secret=secret)  # fmt: skip
    if secret or backup or no_backup:
        raise UsageError("--secret, --backup and --no-backup need --everywhere.")
    from ouro.memory.long_term import find_to_forget, forget_entries

    found = await context.memory(lambda memory: find_to_forget(memory.editor, " ".join(text)))
    if not found and context.session:
        raise UsageError("No matches.", commands=["memory list"])
    chosen = await _chosen(context, found, pick, yes)
    value: dict[str, Any] = {"fits": found, "forgotten": [entry.id for entry in chosen], "undo": {}}
    if not chosen:
        return Answer(value, [line("Nothing was forgotten." if found else "No matches.")], 1)
    done = await context.memory(lambda memory: forget_entries(memory.editor, chosen), reports=False)
    value["undo"] = {change.scope: change.undo for change in done.changes}
    return Answer(value, views.forgotten(len(done.entries), list(value["undo"].values())))


async def _chosen(context: ActionContext, found: Sequence[MemoryEntry], pick: str, yes: bool) -> Sequence[MemoryEntry]:
    """All with --yes, those of --pick, else the user's choice."""
    from ouro.commands.shell import places_in

    if yes or not found:
        return found
    if pick:
        return [found[place] for place in places_in(pick, len(found))]
    context.show(views.numbered("To forget", found))
    if not context.can_ask:
        context.show([line("Choose with --pick 1,3, or --yes for all.")])
        return []
    choices = [
        Choice(str(number), one_line(entry.text, 100), f"{entry.scope}/{entry.file}")
        for number, entry in enumerate(found, 1)
    ]
    return [found[int(number) - 1] for number in await context.choose_many("Forget which?", choices)]


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


async def _forget_everywhere(
    context: ActionContext, text: str, *, backup: str, yes: bool, no_backup: bool, secret: bool
) -> Answer:
    from ouro.memory.long_term import MANY_PLACES, PROVIDERS, OuroHome, TrueForget, back_up_home
    from ouro.utils.runtime import get_history_dir, get_home, get_index_path, get_sessions_dir, tilde

    if yes and not backup and not no_backup:
        raise UsageError("This cannot be undone.", "With --yes, pass --backup FILE or --no-backup.")
    home = OuroHome(get_home(), get_history_dir(), get_sessions_dir(), get_index_path())
    job = TrueForget(text, home)
    found = await asyncio.to_thread(job.look, context.progress)
    context.progress("")
    if not found.count:
        return Answer({"found": found, "done": False}, views.places(found, warns=False), 1)
    context.show(views.places(found, warns=found.count >= MANY_PLACES and not secret))
    question = f"Forget it in {plural(found.count, 'place')}? This cannot be undone."
    target = _free(Path(backup or _BACKUP).expanduser()) if not backup else Path(backup)
    if not yes and not backup and not no_backup:
        choices = [
            Choice("backup", "Forget, after a backup", f"{tilde(target)} still holds the text: remove it later"),
            Choice("now", "Forget, without a backup"),
            Choice("no", "Change nothing"),
        ]
        picked = await context.choose(question, choices)
        agreed, backup = picked in ("backup", "now"), str(target) if picked == "backup" else ""
    else:
        agreed = await confirm(context, question, "Forget it", assume_yes=yes)
    if not agreed:
        return Answer({"found": found, "done": False}, [line("Nothing was changed.")], 1)
    saved = str(await asyncio.to_thread(back_up_home, home, target, context.progress)) if backup else ""
    done = await asyncio.shield(asyncio.to_thread(job.forget, context.progress))
    await context.update_index()
    context.progress("")
    notes = [PROVIDERS]
    notes += [_IN_SESSION] if context.session else []
    notes += [] if secret or context.session else ["Your shell may have saved the command line in its history file."]
    notes += [f"The backup {tilde(Path(saved))} still holds the text: remove it when you are sure."] if saved else []
    view = [*views.forgotten_everywhere(done, job.placeholder), *(line(note) for note in notes)]
    return Answer(_report(found, done, saved), view, 1 if done.left else 0)


def _report(found: ForgetReport, done: ForgetReport, saved: str) -> dict[str, Any]:
    return {"found": found, "left": done.left, "unsearched": done.unsearched, "backup": saved, "done": not done.left}


def _free(path: Path) -> Path:
    """A file name that is not in use."""
    number, target = 2, path
    while target.exists():
        target, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return target
