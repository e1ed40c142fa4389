"""/memory export and /memory import: all of memory as one document, and what other agents remember."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from ouro.commands.command import FrontEnd
from ouro.commands.markdown import code, escape
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.export import as_json, as_markdown
from ouro.memory.long_term.import_files import is_trusted_text, read_sources
from ouro.memory.long_term.importing import Import, carry_out, plan_import
from ouro.session import LongTermMemoryManager
from ouro.utils.files import write_document
from ouro.utils.runtime import tilde

_FILE = "ouro-memory.md"
_MOST_REFUSED = 10


async def export(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """All that is remembered in one file: Markdown, or JSON by its ending."""
    words = _words(rest)
    force = "--force" in words
    named = [each for each in words if each != "--force"]
    path = front_end.session.cwd / Path(named[0] if named else _FILE).expanduser()

    def act(desk: MemoryEditor) -> int:
        is_json = path.suffix == ".json"
        text = json.dumps(as_json(desk), indent=2, ensure_ascii=False) + "\n" if is_json else as_markdown(desk)
        write_document(path, [text], force=force)
        return len(text.encode())

    size = await front_end.session.memory.at_desk(act)
    front_end.say(f"All that is remembered is in {tilde(path)}, {size:,} bytes.")


async def import_(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """What other agents remember, after a look at what would come."""
    paths = [front_end.session.cwd / Path(each).expanduser() for each in _words(rest)]
    if not paths:
        raise UsageError("Say which files or folders.", "/memory import CLAUDE.md ~/.codex/memories")
    reading = await asyncio.to_thread(read_sources, paths)
    found = await front_end.session.memory.at_desk(lambda desk: plan_import(desk, reading, None, is_trusted_text))
    front_end.show(plan_markdown(found))
    if not found.counts:
        return
    count = sum(found.counts.values())
    answer = await front_end.choose("Import it?", [Choice("yes", f"Import {count} entries"), Choice("no", "Leave it")])
    if answer != "yes":
        front_end.say("Nothing was imported.")
        return
    done = await front_end.session.memory.at_desk(lambda desk: carry_out(desk, found))
    if not done.proposals:
        front_end.say(f"{done.entries} entries are remembered now.")


COMMANDS: Mapping[str, Callable[[FrontEnd, LongTermMemoryManager, str], Awaitable[None]]] = {
    "export": export,
    "import": import_,
}


def plan_markdown(found: Import) -> str:
    """What an import would do, counts first."""
    lines = [f"- {count:,} × {code(place)}" for place, count in found.counts.items()]
    lines.append(f"- {found.doubles:,} known already")
    lines += [f"- not taken: {escape(each.name)}: {escape(each.reason)}" for each in found.refused[:_MOST_REFUSED]]
    if len(found.refused) > _MOST_REFUSED:
        lines.append(f"- not taken: {len(found.refused) - _MOST_REFUSED} more")
    if found.untrusted:
        lines.append(f"\n{code(tilde(found.untrusted[0]))} is of a repository that you have not said that you trust: "
                     "all of it would wait for your yes.")  # fmt: skip
    return "\n".join(["**This would come**\n", *lines])


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text} cannot be read: {error}.") from error
