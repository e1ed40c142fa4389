"""/memory list, show, edit, search, stats, confirm, archive, restore: entry by entry, each with its source."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.commands.command import FrontEnd
from ouro.commands.markdown import block, code, escape
from ouro.commands.remember import describe
from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import (
    EntryDetails,
    MemoryEntry,
    counts,
    details_of,
    find_entry,
    list_entries,
    provenance,
)
from ouro.memory.long_term.git.values import CORE
from ouro.memory.long_term.remember import archive_note, confirm, open_file, restore, save
from ouro.memory.long_term.search import doubted_files, filter_of, filters_in, opening_of, source_of, trusted_projects
from ouro.memory.long_term.stats import MemoryStats, stats
from ouro.session import LongTermMemoryManager
from ouro.utils.repository import find_root
from ouro.utils.runtime import get_sessions_dir, tilde
from ouro.utils.text import one_line

if TYPE_CHECKING:
    from ouro.memory.index.search import MemoryHit, SearchFilter

_MOST_LISTED = 50


async def list_(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """The entries of a scope or category."""
    entries = await front_end.session.memory.at_desk(partial(list_entries, what=rest))
    front_end.show(entries_markdown(entries))


async def show(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """A note with its chain, a core line, or a whole core file; without a word all core files."""

    def act(desk: MemoryEditor) -> str:
        name = rest.rpartition("/")[2].removesuffix(".md")
        files = [each for each in CORE if name and each.startswith(name)] if rest else list(CORE)
        if files:
            scopes = [each for each in desk.names if rest.rpartition("/")[0] in ("", each)]
            return _files_markdown(desk, [(scope, f"{file}.md") for scope in scopes for file in files])
        return told_markdown(details_of(desk, rest))

    front_end.show(await front_end.session.memory.at_desk(act))


async def edit(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """A note or a core file in the person's editor."""
    opened = await front_end.session.memory.at_desk(partial(open_file, named=rest or "preferences"))
    after = await front_end.edit(opened.text)
    done = await front_end.session.memory.at_desk(lambda desk: save(desk, opened, after))
    if not done.changed:
        front_end.say("Nothing was changed.")
    for each in done.complaints:
        front_end.say(f"{opened.name} is kept as you wrote it, but {each}.", "warning")


async def search(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """Notes, core lines and what was said: `optimistic locking since:2026-01-01 scope:repo category:patterns`.

    `project:FOLDER` and `session:ID` narrow it, too.
    """
    from ouro.memory.long_term.search import Badges

    words, given = filters_in(rest)
    if not words:
        raise UsageError("Say what to search for.", "/memory search optimistic locking since:2026-01-01 scope:repo")
    if front_end.session.memory.lookup is None:
        raise UsageError("There is no index here.")
    lookup = front_end.session.memory.lookup
    cwd, sessions = front_end.session.cwd, front_end.session.session_catalog.sessions

    def narrowed() -> SearchFilter:
        return filter_of(given, sessions, cwd, trusted_projects(lookup.search().index, cwd))

    hits = await lookup.find(words, 10, await asyncio.to_thread(narrowed))
    doubted = await front_end.session.memory.at_desk(lambda desk: doubted_files(desk.scopes))
    badges = Badges(lookup.search().index, find_root(front_end.session.cwd), doubted)
    lines = [_found(hit, await asyncio.to_thread(badges.of, hit)) for hit in hits]
    front_end.show("\n".join(lines) or "Nothing is found. Try other words, or fewer filters.")


def _found(hit: MemoryHit, badges: Sequence[str]) -> str:
    about = f" · **{escape(' · '.join(badges))}**" if badges else ""
    where = f"{escape(source_of(hit))}{about}  \n  {code(opening_of(hit, in_session=True))}"
    return f"- {escape(one_line(hit.text, 200))}  \n  {where}"


async def stats_(front_end: FrontEnd, _known: LongTermMemoryManager, _rest: str) -> None:
    """How much is remembered, of what sort and age."""
    from ouro.memory.long_term.stats import recall_counts

    front_end.show(
        stats_markdown(await front_end.session.memory.at_desk(lambda d: stats(d, recall_counts(get_sessions_dir()))))
    )


async def confirm_(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """A note still holds."""
    await _with_note(front_end, rest, confirm, "counts as confirmed")


async def restore_(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """A note comes back from the archive."""
    await _with_note(front_end, rest, restore, "is recalled again")


async def archive(front_end: FrontEnd, _known: LongTermMemoryManager, rest: str) -> None:
    """A note is kept, but not recalled any more."""
    await _with_note(front_end, rest, archive_note, "is in the archive now")


COMMANDS: Mapping[str, Callable[[FrontEnd, LongTermMemoryManager, str], Awaitable[None]]] = {
    "list": list_,
    "search": search,
    "show": show,
    "edit": edit,
    "stats": stats_,
    "confirm": confirm_,
    "archive": archive,
    "restore": restore_,
}


def entries_markdown(entries: Sequence[MemoryEntry]) -> str:
    """A list for people; a long one is cut, with the counts of all."""
    lines = [f"- {describe(each)}" for each in entries[:_MOST_LISTED]]
    if len(entries) > _MOST_LISTED:
        rest = ", ".join(f"{place} {count:,}" for place, count in counts(entries).items())
        lines.append(f"\n{len(entries):,} in all: {escape(rest)}. `/memory list SCOPE CATEGORY` narrows it.")
    return "\n".join(lines) or "Nothing is remembered here yet."


def told_markdown(found: EntryDetails) -> str:
    """One entry with all that is known of it."""
    entry = found.entry
    lines = [
        f"{code(entry.id)} · {entry.scope} · {escape(entry.category)} · {escape(provenance(entry))}",
        escape(tilde(Path(found.path))),
    ]
    if found.stale:
        lines.append(f"**May be out of date**: {', '.join(map(code, found.stale))} changed since.")
    lines += ["", block(entry.text, "markdown")]
    if len(found.chain) > 1:
        lines.append("\n**Its versions**\n")
        lines += [f"{number}. {describe(each)}" for number, each in enumerate(found.chain, 1)]
    if found.note is not None:
        note = found.note.note
        lines += ["", f"Written by {note.trigger}, confidence {note.confidence:.2f}."]
        lines += [f"- {each.relationship} {code(each.id)}" for each in note.related]
        lines += [f"- names {', '.join(map(code, note.entities))}"] if note.entities else []
        lines += [f"- {escape(name)}: {escape(str(value))}" for name, value in note.extra.items()]
        lines += [f"- **cannot be read**: {escape(each)}" for each in found.note.complaints]
    return "\n".join(lines)


def stats_markdown(found: MemoryStats) -> str:
    """The counts as a list."""
    parts: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("Core lines", found.core),
        ("Notes", found.notes),
        ("Said by", found.sources),
        ("Written by", found.triggers),
        ("Last changed within", found.ages),
        ("Tokens in each prompt", found.prompt_tokens),
        ("Bytes", found.sizes),
        ("Recalled most often", found.recalled),
    )
    lines = [
        f"- **{title}**: {', '.join(f'{escape(name)} {count:,}' for name, count in rows.items())}"
        for title, rows in parts
        if rows
    ]
    lines.append(f"- {found.archived} archived, {found.replaced} replaced, {found.contradicted} contradicted")
    return "\n".join(lines)


def _files_markdown(desk: MemoryEditor, files: Sequence[tuple[Any, str]]) -> str:
    parts = []
    for scope, name in files:
        if text := desk.text(scope, name):
            path = desk.scope(scope).store.folder / name
            parts.append(f"**{escape(tilde(path))}**\n\n{block(text, 'markdown')}")
    if not parts:
        raise UsageError("Nothing is remembered there yet.")
    return "\n\n".join(parts)


async def _with_note(
    front_end: FrontEnd, named: str, act: Callable[[MemoryEditor, MemoryEntry], str], said: str
) -> None:
    def work(desk: MemoryEditor) -> MemoryEntry:
        entry = find_entry(desk, named)
        if entry.kind == "core":
            raise UsageError(f"{entry.id} is a line of the core.", "It counts as it stands: /memory edit, or /forget.")
        act(desk, entry)
        return entry

    entry = await front_end.session.memory.at_desk(work)
    front_end.say(f"{entry.id[:12]} {said}: {one_line(entry.text, 80)}")
