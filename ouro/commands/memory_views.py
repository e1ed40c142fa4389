"""The views of the actions on long-term memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.commands.render import CodeSpan, CommandText, Quote, TextLine, Title, View, ViewItem, line, table
from ouro.memory.long_term import provenance
from ouro.utils.runtime import tilde
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.action import ActionContext
    from ouro.events import NotesRecalled
    from ouro.memory.long_term import (
        Commit,
        DiffHunk,
        EntryDetails,
        FileBlame,
        Finding,
        ForgetReport,
        Import,
        MemoryDiff,
        MemoryEntry,
        MemoryReceipt,
        MemoryStats,
        OldFile,
        Proposal,
        RememberResult,
        TimelineEntry,
        TurnEvidence,
        UndoPlan,
    )

MAX_LISTED = 50
"""Entries that a list in a session has; the command line shows all."""
_WIDTH = 200
_MAX_WORDS = 400
_MAX_LINES = 200
_MAX_REFUSED = 10
_MARKS = {"ok": "ok", "warning": "!", "problem": "✗"}
WRITERS: Mapping[str, str] = {
    "agent": "the agent",
    "person": "you",
    "outside": "outside",
    "capture": "capture",
    "consolidation": "merged",
    "import": "import",
    "undo": "undo",
    "sync": "sync",
}
"""Who wrote a commit, by its origin."""


def undo_hint(context: ActionContext, *commits: str) -> list[TextLine]:
    """How to undo each commit. In a session, the event of the change shows this."""
    if context.session is not None:
        return []
    return [line("Undo: ", CommandText(f"memory undo {commit[:7]}")) for commit in commits if commit]


def entries(found: Sequence[MemoryEntry], limit: int = MAX_LISTED) -> View:
    """Entries, one a row; what is over `limit` is counted by place."""
    if not found:
        return [line("No notes or core lines.")]
    more: list[TextLine] = []
    if len(found) > limit:
        counts: dict[str, int] = {}
        for entry in found:
            place = f"{entry.scope}/{entry.category}"
            counts[place] = counts.get(place, 0) + 1
        places = ", ".join(f"{place} {count:,}" for place, count in counts.items())
        more = [line(f"{limit} of {len(found):,} entries: {places}. To narrow it: ",
                     CommandText("memory list SCOPE CATEGORY"))]  # fmt: skip
    rows = map(entry_row, found[:limit])
    return [*table(rows), *more]


def entry_row(entry: MemoryEntry) -> tuple[str, ...]:
    """Place, text and source of an entry."""
    place = entry.id if entry.kind == "core" else f"{entry.scope}/{entry.id[:12]}"
    category = entry.category if entry.kind == "note" else ""
    return CodeSpan(place), one_line(entry.text, _WIDTH), " · ".join(filter(None, (category, provenance(entry))))


def numbered(title: str, found: Sequence[MemoryEntry]) -> View:
    """Entries under a title, with numbers to choose by."""
    return [Title(title), *table(map(entry_row, found), is_numbered=True)]


def folders(found: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> View:
    """Memory folders, each with its core files and their numbers of lines."""
    view: list[ViewItem] = []
    for folder, names in found:
        rows = [(CodeSpan(name), plural(count, "line")) for name, count in names]
        view += [Title(folder), *table(rows)] if rows else [Title(folder), line("The core is empty.")]
    return view or [line("No memory is in use here.")]


def pending(found: Sequence[Proposal]) -> View:
    """Changes pending approval."""
    rows = []
    for proposal in found:
        names = [edit.name for edit in proposal.edits]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        sources = f"; read before: {', '.join(proposal.sources)}" if proposal.sources else ""
        rows.append(
            (CodeSpan(proposal.id), f"{proposal.scope}/{', '.join(names[:5])}{more}", f"{proposal.reason}{sources}")
        )
    how = line("Approve or drop one: ", CommandText("memory accept ID"), " or ", CommandText("memory reject ID"))
    return [Title("Waiting for approval"), *table(rows), how] if rows else []


def details(found: EntryDetails) -> View:
    """A note or core line with all its details."""
    entry = found.entry
    facts = [entry.scope, entry.category, provenance(entry)]
    view: list[ViewItem] = [
        line(CodeSpan(entry.id), " · ", " · ".join(filter(None, facts))),
        line(tilde(Path(found.path))),
    ]
    if found.stale:
        view.append(line(f"May be out of date: {', '.join(found.stale)} changed since.", level="warning"))
    view.append(Quote(entry.text, "markdown"))
    if len(found.chain) > 1:
        view += [Title("Versions"), *table(map(entry_row, found.chain), is_numbered=True)]
    if found.note is not None:
        note = found.note.note
        rows: list[tuple[str, ...]] = [(edge.relationship, CodeSpan(edge.id)) for edge in note.related]
        rows += [("names", CodeSpan(", ".join(note.entities)))] if note.entities else []
        rows += [(relation.rel, f"{relation.source} → {relation.target}") for relation in note.relations]
        rows += [("written by", note.trigger)]
        rows += [("confidence", f"{note.confidence:.2f}, confirmed {note.confirmed_at[:10] or 'never'}")]
        rows += [(name, str(value)) for name, value in note.extra.items()]
        rows += [("cannot be read", problem) for problem in found.note.problems]
        view += [Title("Fields"), *table(rows)]
    return view


def hits(found: Sequence[Mapping[str, Any]]) -> View:
    """Search hits, best first."""
    if not found:
        return [line("No matches. Try other words or fewer filters.")]
    view: list[ViewItem] = []
    for hit in found:
        badges = " · ".join(hit["badges"])
        view += table(
            [
                (f"{hit['score']:5.2f}", one_line(hit["text"], 300)),
                ("", f"{hit['source']}{f' · {badges}' if badges else ''}"),
                ("", CodeSpan(hit["open"])),
            ]
        )
    return view


def stats(found: MemoryStats) -> View:
    """Counts by place, source and age."""
    groups: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("Core lines", found.core),
        ("Notes", found.notes),
        ("Source", found.sources),
        ("Written by", found.triggers),
        ("Last changed within", found.ages),
        ("Tokens in each prompt", found.prompt_tokens),
        ("Bytes", found.sizes),
        ("Recalled most often", found.recalled),
    )
    rows = [
        (f"{title}:", ", ".join(f"{name} {count:,}" for name, count in counts.items()))
        for title, counts in groups
        if counts
    ]
    return [
        *table(rows),
        *([line(f"Last recalled: {found.last_recalled[:16].replace('T', ' ')} UTC")] if found.last_recalled else []),
        line(f"{found.archived} archived, {found.replaced} replaced, {found.contradicted} contradicted"),
    ]


def remembered(done: RememberResult) -> View:
    """The result of remembering a text."""
    entry = done.entry
    place = f"{entry.scope}/{entry.file}" if entry.kind == "core" else f"{entry.scope} note {entry.id[:12]}"
    text = one_line(entry.text, 100)
    match done.state:
        case "kept":
            category = "" if entry.kind == "core" else f", {entry.category}"
            what = f"Remembered in {place}{category} ({done.why}): {text}"
        case "restored":
            what = f"Restored from the archive: {place}"
        case "confirmed":
            what = f"Already remembered, now confirmed: {place} · {text}"
    undo = (" · ", CommandText(f"memory undo {done.undo[:7]}")) if done.undo else ()
    return [line(what, *undo)]


def forgotten(count: int, undo: Sequence[str]) -> View:
    """What was forgotten, and how to undo it."""
    return [
        line(f"Forgot {plural(count, 'entry', 'entries')}. The git history still has them."),
        *(line("Undo: ", CommandText(f"memory undo {commit[:7]}")) for commit in undo if commit),
    ]


def findings(found: Sequence[Finding], off: Sequence[str]) -> View:
    """The findings of the check of memory."""
    rows: list[tuple[str, ...]] = []
    for finding in found:
        rows.append((_MARKS[finding.level], finding.where, finding.what))
        if finding.advice:
            rows.append(("", "", finding.advice))
    rows += [("!", scope, "off here, or not readable: ouro memory on") for scope in off]
    return table(rows)


def commits(found: Sequence[TimelineEntry]) -> View:
    """Commits, newest first."""
    return table(
        (CodeSpan(entry.commit.id[:7]), entry.scope, *_origin(entry.commit), one_line(entry.commit.subject, _WIDTH))
        for entry in found
    )


def difference(found: MemoryDiff) -> View:
    """A diff, with the number of each hunk."""
    title = f"{found.scope} · {found.before[:7] or 'nothing'} → {found.after[:7]}"
    return [Title(title), Quote("\n".join(_hunk_lines(found.hunks)), "diff")]


def blame(found: FileBlame, file: str) -> View:
    """Each line of a file with its commit, session and turn."""
    rows = [(f"{row.number:>4}", row.commit.id[:7], *_origin(row.commit)) for row in found.lines]
    widths = [max((len(row[place]) for row in rows), default=0) for place in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), blamed.text])
        for row, blamed in zip(rows, found.lines, strict=True)
    ]
    how = line("The turn that taught a line: ", CommandText(f"memory blame {file} LINE"))
    return [Title(f"{found.scope}/{found.name}"), Quote("\n".join(lines)), how]


def turn(said: TurnEvidence) -> View:
    """The messages of a turn."""
    at, title = said.at[:16].replace("T", " "), said.title or said.session_id[:8]
    view = [line(f"Turn {said.turn} (message {said.number}) of ", CodeSpan(title), f", {at}")]
    if said.is_left:
        view.append(line("It is on a branch that a rewind left.", level="warning"))
    names = {"user": "You"}
    view += [line(f"{names.get(role, 'ouro')}: {one_line(text, _MAX_WORDS)}") for role, text in said.words]
    return [*view, line("Open the session:"), Quote(f"  ouro --resume {said.session_id}")]


def reasons(said: TurnEvidence, core: Mapping[str, int], texts: Mapping[str, str]) -> View:
    """What memory put into the prompt of a turn: the core, changes of memory, and recalled notes."""
    loaded = [item for item in said.recalled if item.state == "loaded"]
    tokens = sum(item.tokens for item in loaded)
    rows: list[tuple[str, ...]] = [("core", name, f"{count:,} tokens") for name, count in core.items()]
    rows += [("changed", row) for row in said.told if row[:1] in "+-"]
    way = f" ({said.way})" if said.way else ""
    notes = [
        (item.state, f"{item.tokens} tokens", one_line(texts.get(item.id, "no longer there"), _MAX_WORDS),
         f"{item.id[:12]}: {item.reason}")
        for item in said.recalled
    ]  # fmt: skip
    return [
        Title(f"Turn {said.turn}: {one_line(said.words[0][1] if said.words else '', _MAX_WORDS)}"),
        *table(rows),
        line(f"Recalled for this message{way}: {plural(len(loaded), 'note')}, {tokens:,} tokens"),
        *table(notes),
        line("Open the session:"),
        Quote(f"  ouro --resume {said.session_id}"),
    ]


def undo_plan(planned: UndoPlan) -> View:
    """What an undo would change, in each scope."""
    view: list[ViewItem] = []
    for part in (planned, *planned.also):
        rows = [row for edit in part.edits for row in _edit_lines(edit.name, edit.before or "", edit.after or "")]
        view += [Title(f"Undo {part.commit.id[:7]} ({part.scope}): {commits_text(part.commits)}")]
        view += [Quote("\n".join(_cut(rows)), "diff"), *conflicts(part.conflicts)]
    return view


def conflicts(hunks: Sequence[DiffHunk]) -> list[TextLine]:
    """The hunks that an undo leaves as they are."""
    names = ", ".join(f"{hunk.number} ({hunk.name})" for hunk in hunks)
    return [line(f"Not undone, because its lines changed since: hunk {names}.", level="warning")] if hunks else []


def commits_text(found: Sequence[Commit]) -> str:
    """Commits of one turn on one line."""
    subjects = "; ".join(commit.subject for commit in reversed(found))
    return (
        subjects if len(found) < 2 else f"all {len(found)} commits of turn {found[0].trailers['Ouro-Turn']}: {subjects}"
    )


def old_files(found: Sequence[OldFile], *, is_whole: bool) -> View:
    """Files of an earlier version; notes only by name, unless one was asked for."""
    view: list[ViewItem] = []
    for scope in dict.fromkeys(file.scope for file in found):
        own = [file for file in found if file.scope == scope]
        commit = own[0].commit
        view.append(Title(f"{scope}, as of {commit.id[:7]} ({commit.at[:16].replace('T', ' ')})"))
        notes = [] if is_whole else [file.name for file in own if file.name.rpartition("/")[2].startswith("mem_")]
        for file in own:
            if file.name not in notes:
                view += [line(CodeSpan(file.name)), Quote(file.text, "markdown")]
        if notes:
            view.append(line(f"and {plural(len(notes), 'note')}: {', '.join(notes[:20])}"))
    return view


def import_plan(found: Import) -> View:
    """What an import would add, and what it leaves out."""
    rows: list[tuple[str, ...]] = [(f"{count:>6,}", CodeSpan(place)) for place, count in found.counts.items()]
    rows.append((f"{found.doubles:>6,}", "already remembered"))
    refused: list[tuple[str, ...]] = [("not imported", part.name, part.reason) for part in found.refused[:_MAX_REFUSED]]
    if len(found.refused) > _MAX_REFUSED:
        refused.append(("not imported", f"{len(found.refused) - _MAX_REFUSED} more", ""))
    untrusted = [
        line(
            f"{tilde(path)} is in a repository that you do not trust: all of it waits for your approval.",
            level="warning",
        )
        for path in found.untrusted[:1]
    ]
    return [Title("To import"), *table(rows), *table(refused), *untrusted]


def places(found: ForgetReport, *, warns: bool) -> View:
    """The places of a text that is to be forgotten everywhere."""
    rows: list[tuple[str, ...]] = [(f"{place.count:>6,}", place.place) for place in found.places if place.count]
    rows += [("session", CodeSpan(name)) for name in found.sessions]
    if not found.count:
        searched = [(place.place,) for place in found.places]
        return [line("The text was found nowhere. Searched:"), *table(searched), *_not_searched(found)]
    many = [line(f"The text is in {found.count:,} places: check that it is not a common word.", level="warning")]
    return [Title("Where the text is"), *table(rows), *(many if warns else [])]


def forgotten_everywhere(done: ForgetReport, placeholder: str) -> View:
    """The places that were changed, and those that failed."""
    rows = [(f"{place.count:>6,}", place.place) for place in done.places]
    return [
        Title(f"Forgotten in {done.count:,} places"),
        line(f"Where a text is needed, it is now {placeholder}."),
        *table(rows),
        *(line(f"NOT DONE: {problem}", level="warning") for problem in done.left),
        *_not_searched(done),
    ]


def receipt(found: MemoryReceipt) -> View:
    """The core entries in every prompt of the session."""
    price = "" if found.price is None else f", ${found.price:.5f} from the cache"
    view: list[ViewItem] = [Title(f"What memory put into the prompt: {found.tokens:,} tokens a request{price}")]
    for scope, file in dict.fromkeys((row.scope, row.file) for row in found.lines):
        own = [row for row in found.lines if (row.scope, row.file) == (scope, file)]
        view += [line(CodeSpan(f"{scope}/{file}")), *table(
            (row.state, f"{row.tokens} tokens", " ".join(row.text.lstrip("-*#+ ").split()) or "the file", row.reason)
            for row in own
        )]  # fmt: skip
    if not found.lines:
        view.append(line("Nothing is remembered yet."))
    if found.changes:
        view += [Title("Changed since"), *table((change,) for change in found.changes)]
    if found.waiting:
        view.append(line(f"Waiting for approval: {', '.join(found.waiting)}. ", CommandText("memory accept ID")))
    return view


def recalled(found: NotesRecalled) -> View:
    """Each note that was considered for the last message."""
    if not found.items:
        return [Title("Recalled for the last message: no notes")]
    duration = f", {found.milliseconds:.0f} ms" if found.milliseconds else ""
    rows = [
        (item.state, f"{item.tokens} tokens", " ".join(item.text.split()) or CodeSpan(item.id),
         f"{item.reason}; score {item.score:.3g}")
        for item in found.items
    ]  # fmt: skip
    return [Title(f"Recalled for the last message ({found.way}{duration})"), *table(rows)]


def _origin(commit: Commit) -> tuple[str, str]:
    """Date, author, session and turn."""
    session, number = commit.trailers.get("Ouro-Session", ""), commit.trailers.get("Ouro-Turn", "")
    taught = f"{session[:8]}{f':{number}' if number else ''}"
    return f"{commit.at[:16].replace('T', ' ')} {WRITERS.get(commit.origin, commit.origin)}", taught


def _hunk_lines(hunks: Sequence[DiffHunk]) -> list[str]:
    return _cut(
        [
            row
            for hunk in hunks
            for row in (
                f"@@ {hunk.number} · {hunk.name} · line {hunk.start + 1} @@",
                *(f"-{text.rstrip(chr(10))}" for text in hunk.before),
                *(f"+{text.rstrip(chr(10))}" for text in hunk.after),
            )
        ]
    )


def _edit_lines(name: str, before: str, after: str) -> Iterator[str]:
    """A diff of a file without context."""
    yield f"{name}:"
    for row in list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]:
        if not row.startswith("@@"):
            yield row


def _cut(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], f"… {more} more lines"] if more > 0 else list(lines)


def _not_searched(found: ForgetReport) -> list[TextLine]:
    return [line(f"NOT SEARCHED: {place}", level="warning") for place in found.unsearched]
