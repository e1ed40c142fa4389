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
        Listed,
        NoteDetails,
        Proposal,
        ReceiptLine,
        TimelineEntry,
        TurnEvidence,
    )

_MOST_LINES = 400
_SAYS_NOTHING = re.compile(
    r'---|(?:id|session_id|turn|created_at|updated_at|confirmed_at): .*|version: 1|\w+: (?:null|\[\]|""|)'
)
"""Lines of front matter that the rest of a page tells, or that are empty."""
_NO_TURN = "written by hand, or outside of a session"


def note_page(details: NoteDetails) -> MemoryPage:
    """A note: what it says, how sure that is, whence it is, its versions, what it has to do with."""
    note, page = details.note, MemoryPage()
    page.add(note.text or "(empty)", "title")
    page.add(f"{details.scope} · {note.category} · {note.id[:12]}", "detail")
    said = "you said so" if note.source == "user" else "concluded"
    page.add(
        f"confidence now {details.confidence:.0%} ({said}), confirmed {note.confirmed_at[:10] or 'never'}", "detail"
    )
    if details.badges:
        page.add(f"[{'] ['.join(details.badges)}]", "flag")
    for each in details.problems:
        page.add(f"in its file: {each}", "removed")
    page.add("")
    _add_turn(page, note.session_id, note.turn, note.trigger)
    _add_chain(page, details)
    if details.ties:
        page.add("")
        page.add("Has to do with", "who")
        for tie in details.ties:
            page.add(f"{tie.way}: {one_line(tie.text)}", link=PageLink("note", tie.note_id))
    if note.entities or note.relations:
        page.add("")
        page.add("Names", "who")
        for entity in note.entities:
            page.add(f"  {entity}")
        for relation in note.relations:
            page.add(f"  {relation.source} {relation.rel} {relation.target}")
    return page


def core_page(listed: Listed, lines: tuple[BlamedLine, ...]) -> MemoryPage:
    """A line of the core: its file, and who wrote it when."""
    page = MemoryPage()
    page.add(listed.text, "title")
    page.add(f"{listed.scope}/{listed.name}, line {listed.line}", "detail")
    found = next((each for each in lines if each.number == listed.line), None)
    page.add("")
    if found is None:
        page.add("not committed yet", "detail")
        return page
    _add_commit(page, found.commit)
    page.add(f"the commit: {found.commit.subject}", link=PageLink("commit", found.commit.id))
    return page


def commit_page(entry: TimelineEntry, found: Difference) -> MemoryPage:
    """A commit as a diff; each hunk can be taken back by itself."""
    page = MemoryPage()
    page.add(entry.commit.subject, "title")
    page.add(f"{entry.scope} · {entry.commit.id[:12]}", "detail")
    _add_commit(page, entry.commit)
    for hunk in found.hunks:
        other = hunk.other_half(found.hunks)
        if other is not None and hunk.before:
            continue  # told where it went to
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
        for line in _telling(hunk.name, hunk.before):
            page.add(f"- {line.rstrip()}", "removed")
        for line in _telling(hunk.name, hunk.after):
            page.add(f"+ {line.rstrip()}", "added")
    del page.lines[_MOST_LINES:]
    return page


def proposal_page(proposal: Proposal) -> MemoryPage:
    """What waits, why, and what had been read before."""
    page = MemoryPage()
    page.add("Waits for you", "title")
    page.add(f"{proposal.scope} · {proposal.id} · {proposal.reason}", "detail")
    for source in proposal.sources:
        page.add(f"read before: {source}", "detail")
    for edit in proposal.edits:
        page.add("")
        page.add(short_name(edit.name) if edit.after is not None else f"{short_name(edit.name)}, removed", "who")
        for line in changed_lines(edit):
            page.add(line, "added" if line[0] == "+" else "removed")
        told = [*_front(edit.after or "")]
        if told and told != [*_front(edit.before or "")]:
            page.add("")
            page.add("its front matter then", "detail")
            for line in told:
                page.add(f"  {line}", "detail")
    if proposal.session:
        page.add("")
        _add_turn(page, proposal.session, proposal.turn, "")
    return page


def recalled_page(item: Remembered, recalled: NotesRecalled) -> MemoryPage:
    """What became of a note that was considered for the last message."""
    page = MemoryPage()
    tokens = f" · {item.tokens} tokens" if item.tokens else ""
    page.add(f"{SIGNS[item.state]} {item.state} with the last message: {item.reason}", "who")
    page.add(f"score {item.score:.3g}{tokens} · {recalled.way}", "detail")
    page.add("")
    return page


def receipt_page(line: ReceiptLine) -> MemoryPage:
    """What became of an entry of the core when the session began."""
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
    """The words that taught something; Enter opens the session, to look only."""
    page = MemoryPage()
    page.add(f"Turn {said.turn} of {said.title or said.session_id[:8]}", "title")
    page.add(f"message {said.number} · {said.at[:16].replace('T', ' ')} · session {said.session_id[:8]}", "detail")
    if said.is_left:
        page.add("said on a branch that was left by going back", "detail")
    page.add(
        "Enter goes there; another session is opened to look only",
        link=PageLink("turn", said.session_id, message=said.number),
    )
    for who, words in said_lines(said):
        page.add("")
        page.add(who, "who")
        page.add(words)
    return page


async def followed_page(memory: Browsing, link: PageLink) -> MemoryPage:
    """What a link leads to.

    Raises:
        OuroError: it is not there any more.
    """
    if link.kind == "note":
        return note_page(await memory.details(link.target))
    if link.kind == "turn":
        return turn_page(await memory.turn(link.target, link.turn, link.message))
    entry = await memory.ask(lambda timeline: timeline.find(link.target))
    return commit_page(entry, await memory.ask(lambda timeline: timeline.changes(link.target)))


def told_page(text: str) -> MemoryPage:
    """One thing to say, in place of what cannot be shown."""
    page = MemoryPage()
    page.add(text, "detail")
    return page


def _add_turn(page: MemoryPage, session_id: str, turn: int, trigger: str) -> None:
    page.add("Taught by", "who")
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
    for each in details.chain:
        if each.note_id == details.note.id:
            page.add(f"  {each.at[:10]} {one_line(each.text)} (this one)")
        else:
            page.add(f"{each.at[:10]} {one_line(each.text)}", link=PageLink("note", each.note_id))


def short_name(name: str) -> str:
    """A file as it is told: of a note's id, its beginning."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base[:12]}" if base.startswith("mem_") else name


def _place(name: str) -> str:
    return name.rpartition("/")[0] or "the notes"


def _telling(name: str, lines: Sequence[str]) -> Iterator[str]:
    """Of a whole note its words, then what its front matter tells; of anything else each line."""
    if not name.rpartition("/")[2].startswith("mem_") or not lines or lines[0].rstrip() != "---":
        yield from lines
        return
    yield from words_of("".join(lines)).splitlines()
    yield from _front("".join(lines))


def _front(text: str) -> Iterator[str]:
    """The front matter of a note, as far as it tells something."""
    lines = text.removesuffix(words_of(text)).splitlines()
    return (each for each in lines if not _SAYS_NOTHING.fullmatch(each))
