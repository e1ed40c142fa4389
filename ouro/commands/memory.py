"""/memory: what is remembered, what waits, and the receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from ouro.commands import memory_digest, memory_entries, memory_sync, memory_timeline, memory_transfer
from ouro.commands.command import FrontEnd
from ouro.commands.markdown import code, escape
from ouro.commands.memory_receipt import recalled_markdown, receipt_markdown
from ouro.errors import UsageError
from ouro.memory.long_term.doctor import named
from ouro.session import CORE_FILES, LongTermMemoryManager, Proposal
from ouro.utils.runtime import tilde
from ouro.utils.text import plural


async def memory(front_end: FrontEnd, argument: str) -> None:
    """Show what is remembered; accept, reject, take back, edit; on or off for this repository."""
    word, _, rest = argument.strip().partition(" ")
    known = front_end.session.memory.manager
    if known is None:
        raise UsageError("Memory is off here.", "By `memory.enabled`, --no-memory or --ephemeral.")
    await known.settled()
    if not word and await front_end.browse_memory():
        return
    run = _COMMANDS.get(word) if word else _overview
    if run is None:
        raise UsageError(f"/memory knows no `{word}`.", f"It knows: {', '.join(_COMMANDS)}.")
    await run(front_end, known, rest.strip())


async def _overview(front_end: FrontEnd, known: LongTermMemoryManager, _rest: str) -> None:
    front_end.show(await asyncio.to_thread(_all_files, known))


async def _list(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """What is remembered, entry by entry, and what waits for you: `/memory list repo patterns`."""
    await memory_entries.list_(front_end, known, rest)
    if waiting := await asyncio.to_thread(_all_waiting, known):
        front_end.show("\n".join(waiting))


async def _receipt(front_end: FrontEnd, known: LongTermMemoryManager, _rest: str) -> None:
    """What stands in the prompt of what is remembered, and what was recalled for the last message."""
    front_end.show(f"{receipt_markdown(known.receipt())}\n\n{recalled_markdown(front_end.session.memory.recalled)}")


async def _accept(_front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """Let a change that waits take effect: `/memory accept ID`; without an id the only one that waits."""
    await known.accept(await _chosen(known, rest))


async def _reject(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """Drop a change that waits: `/memory reject ID`; the history of git has it still."""
    await known.reject(await _chosen(known, rest))
    front_end.say("It is not remembered. The history of git has it still.")


async def _on(front_end: FrontEnd, known: LongTermMemoryManager, _rest: str) -> None:
    """Read and write memory of this repository again, from the next session on."""
    await _switch(front_end, known, on=True)


async def _off(front_end: FrontEnd, known: LongTermMemoryManager, _rest: str) -> None:
    """Read and write no memory of this repository from the next session on; yours stays."""
    await _switch(front_end, known, on=False)


async def _switch(front_end: FrontEnd, known: LongTermMemoryManager, *, on: bool) -> None:
    await asyncio.to_thread(known.switch, on)
    front_end.say(
        f"From the next session on, memory of this repository is {'on' if on else 'off: nothing of it is read'}."
    )


_Run = Callable[[FrontEnd, LongTermMemoryManager, str], Awaitable[None]]
_COMMANDS: Mapping[str, _Run] = {
    **memory_entries.COMMANDS,
    "list": _list,
    "receipt": _receipt,
    "accept": _accept,
    "reject": _reject,
    **memory_timeline.COMMANDS,
    **memory_transfer.COMMANDS,
    "sync": memory_sync.sync,
    **memory_digest.COMMANDS,
    "on": _on,
    "off": _off,
}
WORDS: Mapping[str, str] = {word: (run.__doc__ or "").strip().splitlines()[0] for word, run in _COMMANDS.items()}
"""What may stand behind `/memory`, and what each does."""


def _all_files(known: LongTermMemoryManager) -> str:
    lines = []
    for folder in known.folders:
        lines.append(f"**{escape(tilde(folder))}**\n")
        found = [path for path in _files(known).values() if path.parent == folder]
        lines += [f"- {code(path.name)}: {_count(path)}" for path in found] or ["- nothing yet"]
        lines.append("")
    return "\n".join([*lines, *_all_waiting(known)]).strip() or "No memory is in use here."


def _all_waiting(known: LongTermMemoryManager) -> list[str]:
    lines = [_waiting(each) for each in known.proposals()]
    return ["**Waits for you** (`/memory accept ID`, `/memory reject ID`)\n", *lines] if lines else []


def _waiting(proposal: Proposal) -> str:
    files = named([edit.name for edit in proposal.edits])
    whence = f"; read before: {', '.join(proposal.sources)}" if proposal.sources else ""
    return f"- {code(proposal.id)} {escape(f'{proposal.scope}/{files}: {proposal.reason}{whence}')}"


def _count(path: Path) -> str:
    entries = sum(bool(line.strip()) for line in path.read_text(errors="replace").splitlines())
    return plural(entries, "line")


def _files(known: LongTermMemoryManager) -> dict[str, Path]:
    """The core files that are there, by `scope/name`."""
    places = [(f"{scope}/{name}", known.folder(scope) / name) for scope in known.scopes for name in CORE_FILES]
    return {name: path for name, path in places if path.is_file() and not path.is_symlink()}


async def _chosen(known: LongTermMemoryManager, rest: str) -> str:
    """The id that was given, or the only one that waits."""
    waiting = await asyncio.to_thread(known.proposals)
    if rest:
        return rest
    if not waiting:
        raise UsageError("No change of memory waits.")
    if len(waiting) > 1:
        raise UsageError("Several changes wait: say which.", "/memory list shows them.")
    return waiting[0].id
