"""The pages of the memory browser: a note, a line of the core, a commit, a proposal, the turn that taught one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ouro.frontends.memory_lines import SIGNS
from ouro.frontends.tui.screens.memory.contents import changed_lines, said_lines, words_of, writer
from ouro.frontends.tui.screens.memory.widgets import MemoryPage, PageLink
from ouro.utils.text import one_line

if TYPE_CHECKING:
    from ouro.events import NotesRecalled, Remembered
    from ouro.session import (
        BlamedLine,
        Browsing,
        Commit,
        Difference,
        ListedEntry,
        NoteDetails,
        Proposal,
        ReceiptLine,
        TimelineEntry,
        TurnEvidence,
    )

MAX_PAGE_LINES = 400
_REDUNDANT = re.compile(
    r'---|(?:id|session_id|turn|created_at|updated_at|confirmed_at): .*|version: 1|\w+: (?:null|\[\]|""|)'
)
"""Front matter that the rest of the page shows already, or that is empty."""
_NO_TURN = "edited by hand, or outside of a session"


def note_page(details: NoteDetails) -> MemoryPage:
    """A note: text, confidence, source, versions, related notes."""
    note, page = details.note, MemoryPage()
    page.add(note.text or "(empty)", "title")
    page.add(f"{details.scope} · {note.category} · {note.id[:12]}", "detail")
    said = "stated by you" if note.source == "user" else "inferred"
    page.add(
        f"confidence now {details.confidence:.0%} ({said}), confirmed {note.confirmed_at[:10] or 'never'}", "detail"
    )
    if details.badges:
        page.add(f"[{'] ['.join(details.badges)}]", "flag")
    for problem in details.problems:
        page.add(f"in its file: {problem}", "removed")
    page.add("")
    _add_turn(page, note.session_id, note.turn, note.trigger)
    _add_chain(page, details)
    if details.links:
        page.add("")
        page.add("Related notes", "who")
        for note_link in details.links:
            page.add(f"{note_link.relationship}: {one_line(note_link.text)}", link=PageLink("note", note_link.note_id))
    if note.entities or note.relations:
        page.add("")
        page.add("Names", "who")
        for entity in note.entities:
            page.add(f"  {entity}")
        for relation in note.relations:
            page.add(f"  {relation.source} {relation.rel} {relation.target}")
    return page


def core_page(listed: ListedEntry, lines: tuple[BlamedLine, ...]) -> MemoryPage:
    """A line of the core: file, author and date."""
    page = MemoryPage()
    page.add(listed.text, "title")
    page.add(f"{listed.scope}/{listed.name}, line {listed.line}", "detail")
    found = next((line for line in lines if line.number == listed.line), None)
    page.add("")
    if found is None:
        page.add("not committed yet", "detail")
        return page
    _add_commit(page, found.commit)
    page.add(f"commit: {found.commit.subject}", link=PageLink("commit", found.commit.id))
    return page


def commit_page(entry: TimelineEntry, found: Difference) -> MemoryPage:
    """A commit as a diff; each hunk can be undone by itself."""
    page = MemoryPage()
    page.add(entry.commit.subject, "title")
    page.add(f"{entry.scope} · {entry.commit.id[:12]}", "detail")
    _add_commit(page, entry.commit)
    for hunk in found.hunks:
        other = hunk.other_half(found.hunks)
        if other is not None and hunk.before:
            continue  # shown at its destination
        page.add("")
        where = f"moved from {_place(other.name)}" if other else f"line {hunk.start + 1}"
        page.add(
            f"{hunk.number} · {short_name(hunk.name)} · {where}",
            "who",
            PageLink("hunk", entry.commit.id, 0, hunk.number),
        )
        if other is not None:
            page.add(words_of("".join(hunk.after)))
            continue
        for line in _shown_lines(hunk.name, hunk.before):
            page.add(f"- {line.rstrip()}", "removed")
        for line in _shown_lines(hunk.name, hunk.after):
            page.add(f"+ {line.rstrip()}", "added")
    del page.lines[MAX_PAGE_LINES:]
    return page


def proposal_page(proposal: Proposal) -> MemoryPage:
    """A pending change: reason, sources and diff."""
    page = MemoryPage()
    page.add("Waiting for approval", "title")
    page.add(f"{proposal.scope} · {proposal.id} · {proposal.reason}", "detail")
    for source in proposal.sources:
        page.add(f"source: {source}", "detail")
    for edit in proposal.edits:
        page.add("")
        page.add(short_name(edit.name) if edit.after is not None else f"{short_name(edit.name)}, removed", "who")
        for line in changed_lines(edit):
            page.add(line, "added" if line[0] == "+" else "removed")
        front = [*_front(edit.after or "")]
        if front and front != [*_front(edit.before or "")]:
            page.add("")
            page.add("new front matter", "detail")
            for line in front:
                page.add(f"  {line}", "detail")
    if proposal.session:
        page.add("")
        _add_turn(page, proposal.session, proposal.turn, "")
    return page


def recalled_page(item: Remembered, recalled: NotesRecalled) -> MemoryPage:
    page = MemoryPage()
    tokens = f" · {item.tokens} tokens" if item.tokens else ""
    page.add(f"{SIGNS[item.state]} {item.state} with the last message: {item.reason}", "who")
    page.add(f"score {item.score:.3g}{tokens} · {recalled.way}", "detail")
    page.add("")
    return page


def receipt_page(line: ReceiptLine) -> MemoryPage:
    """An entry of the core at the start of the session."""
    page = MemoryPage()
    page.add(line.text or f"the whole of {line.file}", "title")
    page.add(f"{line.scope}/{line.file}", "detail")
    page.add("")
    page.add(
        f"{SIGNS[line.state]} {line.state} when the session began{f': {line.reason}' if line.reason else ''}", "who"
    )
    page.add(f"{line.tokens} tokens in each request" if line.state == "loaded" else "not in the prompt", "detail")
    return page


def turn_page(said: TurnEvidence) -> MemoryPage:
    """The turn that a memory came from; Enter opens the session read-only."""
    page = MemoryPage()
    page.add(f"Turn {said.turn} of {said.title or said.session_id[:8]}", "title")
    page.add(f"message {said.number} · {said.at[:16].replace('T', ' ')} · session {said.session_id[:8]}", "detail")
    if said.is_left:
        page.add("on a branch that was left by a rewind", "detail")
    page.add(
        "Enter opens it; another session is opened read-only",
        link=PageLink("turn", said.session_id, message=said.number),
    )
    for who, words in said_lines(said):
        page.add("")
        page.add(who, "who")
        page.add(words)
    return page


async def followed_page(memory: Browsing, link: PageLink) -> MemoryPage:
    """The page of a link.

    Raises:
        OuroError: it does not exist any more.
    """
    if link.kind == "note":
        return note_page(await memory.details(link.target))
    if link.kind == "turn":
        return turn_page(await memory.turn(link.target, link.turn, link.message))
    entry = await memory.ask(lambda timeline: timeline.find(link.target))
    return commit_page(entry, await memory.ask(lambda timeline: timeline.changes(link.target)))


def text_page(text: str) -> MemoryPage:
    page = MemoryPage()
    page.add(text, "detail")
    return page


def _add_turn(page: MemoryPage, session_id: str, turn: int, trigger: str) -> None:
    page.add("Source", "who")
    if session_id and turn:
        how = f" ({trigger})" if trigger else ""
        page.add(f"session {session_id[:8]}, turn {turn}{how}", link=PageLink("turn", session_id, turn))
    else:
        page.add(f"  {_NO_TURN}", "detail")


def _add_commit(page: MemoryPage, commit: Commit) -> None:
    session, turn = commit.trailers.get("Ouro-Session", ""), commit.trailers.get("Ouro-Turn", "")
    page.add(f"{commit.at[:16].replace('T', ' ')}, by {writer(commit)}", "detail")
    if session and turn.isdigit():
        message = commit.trailers.get("Ouro-Message", "")
        number = int(message) if message.isdigit() else 0
        page.add(f"session {session[:8]}, turn {turn}", link=PageLink("turn", session, int(turn), message=number))


def _add_chain(page: MemoryPage, details: NoteDetails) -> None:
    if len(details.chain) < 2:
        return
    changes = len(details.chain) - 1
    page.add("")
    page.add(f"Changed {changes} time{'s' if changes > 1 else ''}, oldest first", "who")
    for version in details.chain:
        if version.note_id == details.note.id:
            page.add(f"  {version.at[:10]} {one_line(version.text)} (this one)")
        else:
            page.add(f"{version.at[:10]} {one_line(version.text)}", link=PageLink("note", version.note_id))


def short_name(name: str) -> str:
    """A file name; a note's id is cut."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base[:12]}" if base.startswith("mem_") else name


def _place(name: str) -> str:
    return name.rpartition("/")[0] or "notes"


def _shown_lines(name: str, lines: Sequence[str]) -> Iterator[str]:
    """Of a whole note its text and front matter; of other files every line."""
    if not name.rpartition("/")[2].startswith("mem_") or not lines or lines[0].rstrip() != "---":
        yield from lines
        return
    yield from words_of("".join(lines)).splitlines()
    yield from _front("".join(lines))


def _front(text: str) -> Iterator[str]:
    """The useful lines of a note's front matter."""
    lines = text.removesuffix(words_of(text)).splitlines()
    return (line for line in lines if not _REDUNDANT.fullmatch(line))
