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
from ouro.utils.ouro_paths import get_recall_log_path, tilde
from ouro.utils.text import join_names, local_time, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.memory.long_term import MemoryEditor, MemoryEntry, Proposal, Scope

_MAX_LISTED = 50
"""The maximum number of entries in a list in a session; the command line shows all."""


async def browse(context: SessionContext) -> Answer | None:
    """Open the memory browser and return None; without a screen, list the core files."""
    await context.manager.wait_until_settled()
    return None if await context.front_end.browse("newest") else await files(context)


async def files(context: ActionContext) -> Answer:
    """List the core files of each scope, and the pending changes."""
    return await context.memory(lambda memory: _list_files(memory.editor))


def _list_files(editor: MemoryEditor) -> Answer:
    """For each scope its core files that have text, with their number of lines that are not blank;
    then the pending changes.
    """
    value = []
    view: View = []
    for scope in editor.scopes:
        line_counts: dict[str, int] = {}
        for core_name in scope.store.core:
            file_name = f"{core_name}.md"
            text = editor.text(scope.name, file_name)
            if text:
                line_counts[file_name] = len([*filter(str.strip, text.splitlines())])
        rows = table((CodeSpan(name), plural(count, "line")) for name, count in line_counts.items())
        folder = scope.store.folder
        value.append({"scope": scope.name, "folder": str(folder), "lines": line_counts})
        view += [Title(tilde(folder)), *(rows or [line("The core is empty.")])]
    if not view:
        view.append(line("No memory is in use here."))
    return Answer(value, [*view, *_pending_view(pending_changes(editor))])


async def list_entries(context: ActionContext, what: Sequence[str], limit: int) -> Answer:
    """List notes and core lines of a kind, scope or category, and the pending changes.

    Args:
        what: the kind, scope or category, as words; none for all.
        limit: how many entries; 0 for all, but in a session _MAX_LISTED.
    """
    entries, pending = await context.memory(
        lambda memory: (
            long_term.list_entries(memory.editor, " ".join(what)),
            pending_changes(memory.editor),
        )
    )
    if not limit:
        limit = _MAX_LISTED if context.session else len(entries)
    return Answer(entries[:limit], [*_entries_view(entries, limit), *_pending_view(pending)])


async def lessons(context: ActionContext) -> Answer:
    """List the lessons, and the command that shows where one came from."""
    entries = await context.memory(lambda memory: long_term.find_lessons(memory.editor))
    if not entries:
        return Answer(entries, [line("There are no lessons yet.")])
    hint = line("The turn that a lesson came from: ", CommandText("memory evidence ID"))
    return Answer(entries, [*_entries_view(entries, _MAX_LISTED), hint])


async def show(context: ActionContext, entry: str) -> Answer:
    """Show a core file, or a note or core line with its details; all core files if the entry is empty."""
    return await context.memory(lambda memory: _show_entry(context, memory, entry))


def _show_entry(context: ActionContext, memory: MemoryAccess, entry: str) -> Answer:
    """The core files that the entry names, else the note or core line with its details.

    Args:
        entry: a core file or the start of its name, with or without the scope (`facts`,
            `user/facts.md`); or the id of a note or core line; or empty for all core files.
    """
    editor = memory.editor
    scope, _, name = entry.rpartition("/")
    start = name.removesuffix(".md")
    core_names = [core_name for core_name in editor.core if core_name.startswith(start)]
    names_core_files = bool(name and core_names)
    if not entry or names_core_files:
        files: list[tuple[Scope, str]] = []
        for known_scope in editor.names:
            if scope in ("", known_scope):
                files += [(known_scope, f"{core_name}.md") for core_name in core_names]
        # On the command line the text of a named file can be piped to another program.
        only_text = context.session is None and bool(entry)
        return _core_files(editor, files, only_text=only_text)
    details = long_term.details_of(editor, entry, memory.half_life_days)
    return Answer(details, _details_view(details))


async def search(context: ActionContext, words: str, limit: int, **flags: str) -> Answer:
    """Search notes, core lines and sessions; the best hits are first. Weak hits are left out. The exit
    code is 1 without hits.

    Args:
        words: the words to search for, and filters such as `scope:repo`.
        flags: the same filters, as flags of the command line; an empty one is not used.
    """
    text, filters = long_term.split_filters(words)
    if not text:
        examples = ["memory search optimistic locking since:2026-01-01"]
        raise UsageError("Name the words to search for.", commands=examples)
    filters |= {name: value for name, value in flags.items() if value}

    # Search.
    sessions = await context.catalog.sessions() if filters.get("session") else []
    async with context.search() as (index, find):
        search_filter = await asyncio.to_thread(
            long_term.make_filter, filters, sessions, context.cwd, index
        )
        hits = [hit for hit in await find(text, limit, search_filter) if not long_term.is_weak(hit)]
        try:
            untrusted = await context.memory(
                lambda memory: long_term.untrusted_files(memory.editor.scopes)
            )
        except UsageError:  # memory is off, so only sessions are searched
            untrusted = frozenset()
        badged_hits = await asyncio.to_thread(
            long_term.add_badges, index, hits, find_root(context.cwd), untrusted
        )

    # Show the hits, each with its source and the command that opens it.
    value = []
    view: View = []
    project = long_term.project_here(context.cwd)
    in_session = context.session is not None
    for hit, badges in badged_hits:
        source = long_term.source_of(hit)
        open_command = long_term.make_open_command(hit, project, in_session=in_session)
        value.append({**asdict(hit), "badges": badges, "source": source, "open": open_command})
        head_row = (f"{hit.score:5.2f}", one_line(hit.text, 300))
        view += table([head_row, ("", " · ".join((source, *badges))), ("", CodeSpan(open_command))])
    no_matches = [line("No matches. Try other words or fewer filters.")]
    return Answer(value, view or no_matches, 0 if hits else 1)


async def stats(context: ActionContext) -> Answer:
    """Show how much is in memory by kind, source and age, and which notes were recalled and used."""
    recall_log = long_term.RecallLog(get_recall_log_path())
    statistics = await context.memory(
        lambda memory: long_term.memory_stats(memory.editor, recall_log)
    )
    used = recall_log.counts().used
    sources = Counter[str]()  # several sources may have the same name for users
    for source, count in statistics.sources.items():
        sources[long_term.source_name(source)] += count
    # If a note is about a file, a check of that file counts as half a use. A note with less than
    # one whole use is not listed.
    used_notes = {note: int(used[note]) for note in statistics.recalled if used.get(note, 0) >= 1}
    groups: tuple[tuple[str, Mapping[str, int]], ...] = (
        ("Core lines", statistics.core),
        ("Notes", statistics.notes),
        ("Source", sources),
        ("Written by", statistics.triggers),
        ("Last changed within", statistics.ages),
        ("Tokens in each prompt", statistics.prompt_tokens),
        ("Bytes", statistics.sizes),
        ("Recalled most often", statistics.recalled),
        ("Used most often", used_notes),
    )
    rows: list[tuple[str, str]] = []
    for title, counts in groups:
        if counts:
            items = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            rows.append((f"{title}:", items))
    view = table(rows)
    if statistics.last_recalled:
        view.append(line(f"Last recalled: {local_time(statistics.last_recalled)}"))
    totals = f"{statistics.archived} archived, {statistics.replaced} replaced, {statistics.contradicted} contradicted"
    return Answer(statistics, [*view, line(totals)])


async def commands(context: ActionContext) -> Answer:
    """List the commands that ran in this project, the last one first."""

    def read_records(memory: MemoryAccess) -> dict[str, long_term.CommandRecord]:
        """The records of the project's memory; none if it has no memory."""
        for scope in memory.editor.scopes:
            if scope.name == "repo":
                # Only a ledger that is written needs the function that finds secrets.
                return long_term.ledger_of(scope, lambda _text: "", context.cwd).records()
        return {}

    records = await context.memory(read_records)
    rows = [
        (
            CodeSpan(name),
            record.result,
            f"{record.seconds:g} s",
            local_time(record.at),
            record.branch,
        )
        for name, record in reversed(records.items())
    ]
    return Answer(records, table(rows) or [line("No commands were recorded in this project.")])


def entry_rows(entries: Iterable[MemoryEntry]) -> list[tuple[str, ...]]:
    """The table rows of entries: the id, the text, and the category and source of each."""
    describe = long_term.describe_source  # looked up once, not for each of 10,000 entries
    return [_entry_row(entry, describe(entry)) for entry in entries]


def _entry_row(entry: MemoryEntry, source: str) -> tuple[str, ...]:
    """An entry as a row: the id, the text, and the category (of a note) and source in one cell."""
    place = entry.id if entry.kind == "core" else f"{entry.scope}/{entry.id[:12]}"
    category = entry.category if entry.kind == "note" else ""
    return (
        CodeSpan(place),
        one_line(entry.text, 200),
        " · ".join(filter(None, (category, source))),
    )


def _entries_view(entries: Sequence[MemoryEntry], limit: int) -> View:
    """A view of entries, at most `limit` rows. If there are more, a last line says how many there are
    in all, by scope and category.
    """
    rows = table(entry_rows(entries[:limit])) or [line("No notes or core lines.")]
    if len(entries) <= limit:
        return rows
    counts = Counter(f"{entry.scope}/{entry.category}" for entry in entries)
    places = ", ".join(f"{place} {count:,}" for place, count in counts.items())
    cut_note = f"{limit} of {len(entries):,} entries: {places}. To narrow it: "
    return [*rows, line(cut_note, CommandText("memory list SCOPE CATEGORY"))]


def _pending_view(proposals: Sequence[Proposal]) -> View:
    """A view of the changes that wait for approval; empty without any."""
    rows = []
    for proposal in proposals:
        sources = f"; read before: {', '.join(proposal.sources)}" if proposal.sources else ""
        place = f"{proposal.scope}/{join_names([edit.name for edit in proposal.edits])}"
        rows.append((CodeSpan(proposal.id), place, f"{proposal.reason}{sources}"))
    if not rows:
        return []
    accept, reject = CommandText("memory accept ID"), CommandText("memory reject ID")
    hint = line("Approve or drop one: ", accept, " or ", reject)
    return [Title("Waiting for approval"), *table(rows), hint]


def _details_view(details: long_term.EntryDetails) -> View:
    """A view of an entry: its source and file, a warning about files it names that changed since, its
    text, its versions if it has several, and its fields.
    """
    entry = details.entry
    source = " · ".join(
        filter(None, (entry.scope, entry.category, long_term.describe_source(entry)))
    )
    view: View = [line(CodeSpan(entry.id), " · ", source), line(tilde(Path(details.path)))]
    if details.stale:
        warning = f"May be out of date: {', '.join(details.stale)} changed since."
        view.append(line(warning, level="warning"))
    view.append(Quote(entry.text, "markdown"))
    if len(details.chain) > 1:
        view += [Title("Versions"), *table(entry_rows(details.chain), is_numbered=True)]
    if details.record is not None:
        links = [(link.relationship, CodeSpan(link.note_id)) for link in details.links]
        view += [Title("Fields"), *table([*links, *_record_fields(details.record)])]
    if details.note is not None:
        related = [(edge.relationship, CodeSpan(edge.id)) for edge in details.note.note.related]
        view += [Title("Fields"), *table([*related, *note_fields(details)])]
    return view


def _record_fields(record: long_term.CoreRecord) -> list[tuple[str, str]]:
    """The names and values of what is recorded about a core line: the days on which it was confirmed,
    the names in it, and in how many turns it was used.
    """
    recall_counts = long_term.RecallLog(get_recall_log_path()).counts()
    judged_turns = int(recall_counts.judged.get(record.id, 0))
    used_turns = int(recall_counts.used.get(record.id, 0))
    rows = [("confirmed", ", ".join(record.days) or "never")]
    if record.entities:
        rows.append(("names", CodeSpan(", ".join(record.entities))))
    rows.append(("used", f"in {used_turns} of {plural(judged_turns, 'turn')}"))
    return rows


def note_fields(details: long_term.EntryDetails) -> list[tuple[str, str]]:
    """The names and values of the fields of a note, without text, source and related notes."""
    assert details.note is not None  # the caller has a note, not a core line
    note = details.note.note
    confirmed_at = note.confirmed_at[:10] or "never"
    rows = [("confidence", f"{details.confidence:.2f}, confirmed {confirmed_at}")]
    if note.entities:
        rows.append(("names", CodeSpan(", ".join(note.entities))))
    if note.search_words:
        rows.append(("search words", CodeSpan(", ".join(note.search_words))))
    rows += [
        (relation.rel, f"{relation.source} → {relation.target}") for relation in note.relations
    ]
    rows.append(("written by", note.trigger))
    rows += [(name, str(value)) for name, value in note.extra.items()]
    rows += [("cannot be read", problem) for problem in details.note.problems]
    return rows


def _core_files(
    editor: MemoryEditor, names: Sequence[tuple[Scope, str]], *, only_text: bool
) -> Answer:
    """An answer with the core files that are not empty, or with all of them if all are empty. Its value
    is a list; for one file it is that file's data alone.

    Args:
        names: the scope and the file name of each.
        only_text: show no titles with their paths.
    """
    files = [(scope, name, editor.text(scope, name)) for scope, name in names]
    with_text = [(scope, name, text) for scope, name, text in files if text]
    shown_files = with_text or files
    value = [{"scope": scope, "name": name, "text": text} for scope, name, text in shown_files]
    view: View = []
    for scope, name, text in shown_files:
        path = tilde(Path(editor.scope(scope).store.folder, name))
        if not text:
            view.append(line(f"{path} is empty."))
            continue
        if not only_text:
            view.append(Title(path))
        view.append(Quote(text, "markdown"))
    if not view:
        view.append(line("No memory is in use here."))
    return Answer(value[0] if len(value) == 1 else value, view)


def pending_changes(editor: MemoryEditor) -> list[Proposal]:
    return list(chain.from_iterable(scope.proposals() for scope in editor.scopes))
