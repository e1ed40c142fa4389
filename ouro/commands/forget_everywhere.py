"""/forget --everywhere: out of all that ouro keeps, for good, from within a session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.commands.command import FrontEnd
from ouro.commands.markdown import code, escape
from ouro.display import Choice
from ouro.memory.long_term.forget.everywhere import (
    MANY_PLACES,
    PROVIDERS,
    ForgetReport,
    OuroHome,
    TrueForget,
    back_up_home,
)
from ouro.utils.runtime import get_history_dir, get_home, get_index_path, get_sessions_dir, tilde

EVERYWHERE = "--everywhere"
_BACKUP = Path("~") / "ouro-before-forgetting.tar"


async def forget_everywhere(front_end: FrontEnd, text: str) -> None:
    """Show everything that holds the text; with the person's yes, and a backup if they want one, take it out."""
    home = OuroHome(get_home(), get_history_dir(), get_sessions_dir(), get_index_path())
    forgetting = TrueForget(text, home)
    front_end.say("Looking through memory, its history, sessions and logs …")
    found = await asyncio.to_thread(forgetting.look)
    front_end.show(_preview(found))
    if not found.count:
        return
    target = _free(_BACKUP.expanduser())
    choices = [
        Choice("backup", "Forget, after a backup", f"{tilde(target)}, which holds it still: remove it later"),
        Choice("now", "Forget, without a backup", "it cannot be taken back"),
        Choice("no", "Change nothing"),
    ]
    picked = await front_end.choose(f"Forget it in {found.count} places, for good?", choices)
    if picked not in ("backup", "now"):
        front_end.say("Nothing was changed.")
        return
    if picked == "backup":
        await asyncio.to_thread(back_up_home, home, target)
        front_end.say(f"All is in {tilde(target)} first.")
    done = await asyncio.shield(asyncio.to_thread(forgetting.forget))
    front_end.show(_report(done, forgetting.placeholder))


def _preview(found: ForgetReport) -> str:
    if not found.count:
        searched = "\n".join([*(f"- {escape(each.place)}" for each in found.places), *_unsearched(found)])
        return f"**It is found nowhere.** Searched:\n\n{searched}"
    lines = [f"- {each.count:,} × {escape(each.place)}" for each in found.places if each.count]
    lines += [f"- session {code(each)}" for each in found.sessions]
    if found.count >= MANY_PLACES:
        lines.append(f"\nIt stands in {found.count} places: make sure that it is no word of every day.")
    return "\n".join(["**Everything that holds it**\n", *lines])


def _report(done: ForgetReport, placeholder: str) -> str:
    lines = [f"**Forgotten** in {done.count} places. Where something has to stand, it says {escape(placeholder)}.\n"]
    lines += [f"- searched: {escape(each.place)} ({each.count:,})" for each in done.places]
    lines += [f"- **not done**: {escape(each)}" for each in done.left]
    lines += _unsearched(done)
    lines.append(
        "\nThis session knows it still, and its file is left as it is while it is open: `/exit`, then "
        "`ouro memory forget --everywhere --secret` finishes."
    )
    return "\n".join([*lines, PROVIDERS])


def _unsearched(found: ForgetReport) -> list[str]:
    return [f"- **not searched**: {escape(each)}" for each in found.unsearched]


def _free(path: Path) -> Path:
    number = 2
    target = path
    while target.exists():
        target, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return target
