"""Notes and core files: list, show, search, count, and the commands that ran."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer, MemoryAccess
from ouro.commands.render import CodeSpan, CommandText, Quote, Title, View, line, table
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.git import find_root
from ouro.utils.runtime import get_recall_log_path, tilde
from ouro.utils.text import join_names, local_time, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.memory.long_term import MemoryEditor, MemoryEntry, Proposal, Scope

_MAX_LISTED = 50
"""Maximum entries of a list in a session; the command line shows all."""


async def browse(context: SessionContext) -> Answer | None:
    await context.manager.wait_until_settled()
    return None if await context.front_end.browse("newest") else await files(context)


async def files(context: ActionContext) -> Answer:
    def work(memory: MemoryAccess) -> Answer:
        value, view = [], View()
        for scope in memory.editor.scopes:
            texts = [
                (f"{name}.md", memory.editor.text(scope.scope, f"{name}.md"))
                for name in scope.store.core
            ]
            counts = [
                (name, sum(bool(row.strip()) for row in text.splitlines()))
                for name, text in texts
                if text
            ]
            rows = table((CodeSpan(name), plural(count, "line")) for name, count in counts)
            value.append(
                {"scope": scope.scope, "folder": str(scope.store.folder), "lines": dict(counts)}
            )
            view += [Title(tilde(scope.store.folder)), *(rows or [line("The core is empty.")])]
        return Answer(
            value,
            [
                *(view or [line("No memory is in use here.")]),
                *_pending_view(pending_of(memory.editor)),
            ],
        )

    return await context.memory(work)


async def list_entries(context: ActionContext, what: Sequence[str], limit: int) -> Answer:
    entries, pending = await context.memory(
        lambda memory: (
            long_term.list_entries(memory.editor, " ".join(what)),
            pending_of(memory.editor),
        )
    )
    shown = limit or (_MAX_LISTED if context.session else len(entries))
    return Answer(entries[:shown], [*_entries_view(entries, shown), *_pending_view(pending)])


async def lessons(context: ActionContext) -> Answer:
    found = await context.memory(lambda memory: long_term.find_lessons(memory.editor))
    see = line("The turn that a lesson came from: ", CommandText("memory evidence ID"))
    return Answer(
        found,
        [*_entries_view(found, _MAX_LISTED), see] if found else [line("There are no lessons yet.")],
    )


async def show(context: ActionContext, entry: str) -> Answer:
    def work(memory: MemoryAccess) -> Answer:
        editor = memory.editor
        scope, _, name = entry.rpartition("/")
        if name or not entry:
            names = [file for file in editor.core if file.startswith(name.removesuffix(".md"))]
            places = [
                (own, f"{file}.md") for own in editor.names if scope in ("", own) for file in names
            ]
            if names or not entry:
                return _core_files(
                    editor, places, only_text=context.session is None and bool(entry)
                )
        found = long_term.details_of(editor, entry, memory.half_life_days)
        return Answer(found, _details_view(found))

    return await context.memory(work)


async def search(context: ActionContext, words: str, limit: int, **flags: str) -> Answer:
    text, filters = long_term.filters_in(words)
    if not text:
        help_with = ["memory search optimistic locking since:2026-01-01"]
        raise UsageError("Name the words to search for.", commands=help_with)
    filters |= {name: value for name, value in flags.items() if value}
    sessions = await context.catalog.sessions() if filters.get("session") else []
    async with context.search() as (index, find):
        wanted = await asyncio.to_thread(long_term.filter_of, filters, sessions, context.cwd, index)
        hits = [hit for hit in await find(text, limit, wanted) if not long_term.is_weak(hit)]
        try:
            untrusted = await context.memory(
                lambda memory: long_term.untrusted_files(memory.editor.scopes)
            )
        except UsageError:  # memory is off, so only sessions are searched
            untrusted = frozenset()
        found = await asyncio.to_thread(
            long_term.with_badges, index, hits, find_root(context.cwd), untrusted
        )
    value, view = [], View()
    for hit, marks in found:
        source, opening = (
            long_term.source_of(hit),
            long_term.opening_of(hit, in_session=context.session is not None),
        )
        value.append({**asdict(hit), "badges": marks, "source": source, "open": opening})
        first = (f"{hit.score:5.2f}", one_line(hit.text, 300))
        view += table([first, ("", " · ".join((source, *marks))), ("", CodeSpan(opening))])
    none = [line("No matches. Try other words or fewer filters.")]
    return Answer(value, view or none, 0 if hits else 1)


async def stats(context: ActionContext) -> Answer:
    recall_log = long_term.RecallLog(get_recall_log_path())
    found = await context.memory(lambda memory: long_term.memory_stats(memory.editor, recall_log))
    used = recall_log.counts().used
    sources = Counter(map(long_term.source_name, Counter(found.sources).elements()))
    groups: tuple[tuple[str, Mapping[str, int]], ...] = (
        ("Core lines", found.core),
        ("Notes", found.notes),
        ("Source", sources),
        ("Written by", found.triggers),
        ("Last changed within", found.ages),
        ("Tokens in each prompt", found.prompt_tokens),
        ("Bytes", found.sizes),
        ("Recalled most often", found.recalled),
        (
            "Used most often",
            {note: int(used[note]) for note in found.recalled if used.get(note, 0) >= 1},
        ),
    )
    rows = (
        (title, ", ".join(f"{name} {count:,}" for name, count in counts.items()))
        for title, counts in groups
    )
    view: View = [*table((f"{title}:", counts) for title, counts in rows if counts)]
    if found.last_recalled:
        view.append(line(f"Last recalled: {local_time(found.last_recalled)}"))
    rest = (
        f"{found.archived} archived, {found.replaced} replaced, {found.contradicted} contradicted"
    )
    return Answer(found, [*view, line(rest)])


async def commands(context: ActionContext) -> Answer:
    def work(memory: MemoryAccess) -> dict[str, long_term.CommandRecord]:
        scope = next((scope for scope in memory.editor.scopes if scope.scope == "repo"), None)
        return long_term.ledger_of(scope, lambda _text: "", context.cwd).records() if scope else {}

    found = await context.memory(work)
    rows = [
        (
            CodeSpan(name),
            record.result,
            f"{record.seconds:g} s",
            local_time(record.at),
            record.branch,
        )
        for name, record in reversed(found.items())
    ]
    return Answer(found, table(rows) or [line("No commands were recorded in this project.")])


def entry_rows(entries: Iterable[MemoryEntry]) -> list[tuple[str, ...]]:
    """The rows of a table. The export is looked up once, not for each of 10,000 entries."""
    describe = long_term.describe_source
    return [_entry_row(entry, describe(entry)) for entry in entries]


def _entry_row(entry: MemoryEntry, source: str) -> tuple[str, ...]:
    """An entry as a row: id, text, category and source."""
    place = entry.id if entry.kind == "core" else f"{entry.scope}/{entry.id[:12]}"
    category = entry.category if entry.kind == "note" else ""
    return (
        CodeSpan(place),
        one_line(entry.text, 200),
        " · ".join(filter(None, (category, source))),
    )


def _entries_view(found: Sequence[MemoryEntry], limit: int) -> View:
    """Entries, one in each row; those over `limit` are only counted, by place."""
    rows = table(entry_rows(found[:limit])) or [line("No notes or core lines.")]
    if len(found) <= limit:
        return rows
    counts = Counter(f"{entry.scope}/{entry.category}" for entry in found)
    places = ", ".join(f"{place} {count:,}" for place, count in counts.items())
    more = f"{limit} of {len(found):,} entries: {places}. To narrow it: "
    return [*rows, line(more, CommandText("memory list SCOPE CATEGORY"))]


def _pending_view(found: Sequence[Proposal]) -> View:
    """The changes that wait for approval; nothing without any."""
    rows = []
    for proposal in found:
        sources = f"; read before: {', '.join(proposal.sources)}" if proposal.sources else ""
        place = f"{proposal.scope}/{join_names([edit.name for edit in proposal.edits])}"
        rows.append((CodeSpan(proposal.id), place, f"{proposal.reason}{sources}"))
    how = line(
        "Approve or drop one: ",
        CommandText("memory accept ID"),
        " or ",
        CommandText("memory reject ID"),
    )
    return [Title("Waiting for approval"), *table(rows), how] if rows else []


def _details_view(found: long_term.EntryDetails) -> View:
    """Everything about an entry: text, source, versions, fields, and changed files that it names."""
    entry = found.entry
    source = " · ".join(
        filter(None, (entry.scope, entry.category, long_term.describe_source(entry)))
    )
    view: View = [line(CodeSpan(entry.id), " · ", source), line(tilde(Path(found.path)))]
    if found.stale:
        view.append(
            line(f"May be out of date: {', '.join(found.stale)} changed since.", level="warning")
        )
    view.append(Quote(entry.text, "markdown"))
    if len(found.chain) > 1:
        view += [Title("Versions"), *table(entry_rows(found.chain), is_numbered=True)]
    if found.record is not None:
        links = [(link.relationship, CodeSpan(link.note_id)) for link in found.links]
        view += [Title("Fields"), *table([*links, *_record_fields(found.record)])]
    if found.note is not None:
        related = [(edge.relationship, CodeSpan(edge.id)) for edge in found.note.note.related]
        view += [Title("Fields"), *table([*related, *note_fields(found)])]
    return view


def _record_fields(record: long_term.CoreRecord) -> list[tuple[str, str]]:
    log = long_term.RecallLog(get_recall_log_path()).counts()
    turns, used = int(log.judged.get(record.id, 0)), int(log.used.get(record.id, 0))
    rows = [("confirmed", ", ".join(record.days) or "never")]
    rows += [("names", CodeSpan(", ".join(record.entities)))] if record.entities else []
    return [*rows, ("used", f"in {used} of {plural(turns, 'turn')}")]


def note_fields(found: long_term.EntryDetails) -> list[tuple[str, str]]:
    """Name and value of the fields of a note, without its text, its source and related notes."""
    assert found.note is not None
    note = found.note.note
    rows = [
        ("confidence", f"{found.confidence:.2f}, confirmed {note.confirmed_at[:10] or 'never'}")
    ]
    rows += [("names", CodeSpan(", ".join(note.entities)))] if note.entities else []
    rows += [
        (relation.rel, f"{relation.source} → {relation.target}") for relation in note.relations
    ]
    rows += [("written by", note.trigger)]
    rows += [(name, str(value)) for name, value in note.extra.items()]
    return [*rows, *(("cannot be read", problem) for problem in found.note.problems)]


def _core_files(
    editor: MemoryEditor, places: Sequence[tuple[Scope, str]], *, only_text: bool
) -> Answer:
    """The core files of these places that are not empty, or else all of them."""
    found = [(scope, name, editor.text(scope, name)) for scope, name in places]
    shown = [file for file in found if file[2]] or found
    value = [{"scope": scope, "name": name, "text": text} for scope, name, text in shown]
    view: View = []
    for scope, name, text in shown:
        path = tilde(Path(editor.scope(scope).store.folder, name))
        title = [] if only_text else [Title(path)]
        view += [*title, Quote(text, "markdown")] if text else [line(f"{path} is empty.")]
    return Answer(
        value[0] if len(value) == 1 else value, view or [line("No memory is in use here.")]
    )


def pending_of(editor: MemoryEditor) -> list[Proposal]:
    return list(chain.from_iterable(scope.proposals() for scope in editor.scopes))
