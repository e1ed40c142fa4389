"""The rows and pages of the memory browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from ouro.commands.memory_history import describe_writer, writer
from ouro.commands.memory_in_prompt import core_total, recall_total
from ouro.commands.memory_notes import note_fields
from ouro.commands.render import changed_lines
from ouro.frontends.tui.screens.browser import Page, PageLink
from ouro.session import MemoryEntry, Proposal, ReceiptLine, details_of
from ouro.utils.text import clean, local_time, one_line, plural

if TYPE_CHECKING:
    from ouro.events import NotesRecalled, RecalledNote
    from ouro.session import (
        BlamedLine,
        Check,
        Commit,
        Difference,
        EntryDetails,
        FileEdit,
        MemoryReceipt,
        Session,
        TimelineEntry,
        TurnEvidence,
    )

Tab = Literal["core", "notes", "timeline", "archive", "receipt", "proposals"]
MAX_PAGE_LINES = 400
SIGNS = {"loaded": "✓", "cut": "✂", "skipped": "✗"}
_MARK = re.compile(r"^([-+] )?[-*+] ")
_REDUNDANT = re.compile(
    r"---|(?:id|session_id|turn|created_at|updated_at|confirmed_at): .*|version: 1|\w+:"
    r' (?:null|\[\]|""|)'
)
"""Front matter that is empty, or that the page shows elsewhere."""


@dataclass(slots=True)
class MemoryRow:
    link: PageLink | None
    """The note, core file, commit or proposal that keys work on."""
    scope: str
    text: str
    category: str
    """The category, for the filter; for a commit, its author."""
    _: KW_ONLY
    flag: str = ""
    """A short note in the row."""
    about: str = ""
    """Details, shown if there is room."""
    searched: str = ""
    """More text that a search matches; then all searched text, in lower case."""
    warns: bool = True
    """Whether the flag is a warning."""
    item: MemoryEntry | Proposal | RecalledNote | ReceiptLine | str | None = None
    """The object of its page, if it is not the page of its link."""

    def __post_init__(self) -> None:
        shown = f"{self.text} {self.category} {self.scope} {self.flag} {self.about}"
        self.searched = f"{shown} {self.searched}".lower()


def note_rows(entries: Iterable[MemoryEntry]) -> dict[Tab, list[MemoryRow]]:
    """The rows of three tabs: lines of the core, current notes, archived notes."""
    is_in_tab: Mapping[Tab, Callable[[MemoryEntry], bool]] = {
        "core": lambda entry: entry.kind == "core",
        "notes": lambda entry: (
            entry.kind == "note" and not {"archived", "replaced"}.intersection(entry.badges)
        ),
        "archive": lambda entry: "archived" in entry.badges,
    }
    return {
        tab: [_note_row(entry, tab) for entry in entries if is_in_tab[tab](entry)]
        for tab in is_in_tab
    }


def newest_tab(entries: Iterable[MemoryEntry]) -> Tab:
    """The tab with the entry that was changed last: the core or the notes. Without entries it is
    the core.
    """
    in_use = [entry for entry in entries if entry.is_in_use]
    newest = max(in_use, key=_time_of, default=None)
    return "notes" if newest and newest.kind == "note" else "core"


def _time_of(entry: MemoryEntry) -> datetime:
    """When an entry was changed. A line that is not committed yet was changed now."""
    try:
        return datetime.fromisoformat(entry.at).astimezone(UTC)
    except ValueError:  # a note that was edited by hand may have any text there
        is_new = entry.kind == "core" and not entry.at
        return datetime.now(UTC) if is_new else datetime.min.replace(tzinfo=UTC)


def _note_row(entry: MemoryEntry, tab: Tab) -> MemoryRow:
    """An entry or note as a row of the list."""
    is_core = tab == "core"
    changed = [f"changed {entry.versions - 1}×"] if entry.versions > 1 else []
    flag = " · ".join(
        [*(badge for badge in entry.badges if badge != "archived" or tab != "archive"), *changed]
    )
    link = (
        PageLink("core", f"{entry.scope}/{entry.file}") if is_core else PageLink("note", entry.id)
    )
    text, item = (_item(entry.text), entry) if is_core else (_line(entry.text), None)
    searched = f"{entry.id} {entry.file}"
    source = describe_writer(entry.source) if is_core else ""
    about = " · ".join(filter(None, (entry.category, source)))
    return MemoryRow(
        link,
        entry.scope,
        text,
        entry.category,
        flag=flag,
        about=about,
        searched=searched,
        item=item,
    )


def log_rows(entries: Iterable[TimelineEntry]) -> list[MemoryRow]:
    """The rows of commits, the newest first as in the timeline."""
    rows = []
    for entry in entries:
        commit, who, link = entry.commit, writer(entry.commit), PageLink("commit", entry.commit.id)
        at, searched = local_time(commit.at), f"{commit.id} {' '.join(commit.paths)} {commit.at}"
        rows.append(
            MemoryRow(
                link,
                entry.scope,
                _line(commit.subject),
                who,
                flag=at,
                about=who,
                searched=searched,
                warns=False,
            )
        )
    return rows


def receipt_rows(
    recalled: NotesRecalled, receipt: MemoryReceipt, checks: Iterable[Check]
) -> list[MemoryRow]:
    """The rows of the receipt, in this order: the notes considered for the last message, the lines
    of the core, its changes since the session began, and enforced corrections.
    """
    rows = []
    for note in recalled.items:
        gone = f"{note.id[:12]} (deleted since)" if note.id.startswith("mem_") else note.id
        text, about = (
            f"{SIGNS[note.state]} {_line(note.text) or gone}",
            f"{note.state}: {note.reason}",
        )
        link = PageLink("note", note.id) if note.text and note.id.startswith("mem_") else None
        rows.append(
            MemoryRow(
                link,
                note.scope,
                text,
                "recalled",
                about=about,
                searched=note.id,
                item=note,
            )
        )
    for line in receipt.lines:
        text = f"{SIGNS[line.state]} {_item(line.text) or f'the whole of {line.file}'}"
        about = f"{line.state}: {line.reason}" if line.reason else line.file
        rows.append(
            MemoryRow(
                None,
                line.scope,
                text,
                "in each prompt",
                about=about,
                searched=f"{line.file} {line.state}",
                item=line,
            )
        )
    for change in receipt.changes:
        text, page = (
            f"± {_line(change.partition('/')[2])}",
            f"changed since the session began: {change}",
        )
        rows.append(MemoryRow(None, change.partition("/")[0], text, "changed since", item=page))
    for check in checks:
        about = f"refused {plural(check.fired, 'time')} since {check.added_at[:10]}"
        text, scope = (
            f"check {check.number}: {_line(check.text)}",
            "repo" if check.project else "user",
        )
        page = (
            f"{check.text}: an enforced correction, {about}. /check remove {check.number} ends it."
        )
        rows.append(MemoryRow(None, scope, text, "enforced", about=about, item=page))
    return rows


def proposal_rows(proposals: Iterable[Proposal]) -> list[MemoryRow]:
    """The rows of pending changes: the lines that would change."""
    rows = []
    for proposal in proposals:
        changed = "; ".join(_gist(edit) for edit in proposal.edits)
        searched = (
            f"{' '.join(edit.name for edit in proposal.edits)} {proposal.reason} {proposal.id}"
        )
        link = PageLink("proposal", proposal.id)
        rows.append(
            MemoryRow(
                link,
                proposal.scope,
                changed,
                proposal.origin,
                flag="pending",
                searched=searched,
                item=proposal,
            )
        )
    return rows


def _gist(edit: FileEdit) -> str:
    lines = _changed_lines(edit.before or "", edit.after or "")
    new = [line for line in lines if line[0] == "+"]
    return " ".join(map(_item, new or lines)) or edit.name


def _changed_lines(before: str, after: str) -> list[str]:
    """The changed lines of a file, with `-` or `+`; of a note only its text, if the text changed."""
    if _without_front_matter(before) != _without_front_matter(after):
        before, after = _without_front_matter(before), _without_front_matter(after)
    return [f"{line[:1]} {line[1:]}" for line in changed_lines(before, after) if line[1:].strip()]


def _without_front_matter(text: str) -> str:
    """A note without its front matter; any other text unchanged."""
    front, mark, words = text.partition("\n---\n")
    return words if mark and front.startswith("---") else text


def _item(text: str) -> str:
    return _MARK.sub(r"\1", _line(text))


def _line(text: str) -> str:
    return " ".join(clean(text).split())


async def row_page(session: Session, row: MemoryRow) -> Page:
    """The page of a row.

    Raises:
        OuroError: it does not exist any more.
    """
    memory = session.memory.require()
    match row.item:
        case MemoryEntry() as entry:
            blame = await asyncio.to_thread(
                lambda: memory.timeline().blame(f"{entry.scope}/{entry.file}")
            )
            return core_page(entry, blame.lines)
        case Proposal() as proposal:
            return proposal_page(proposal)
        case ReceiptLine() as line:
            return receipt_page(line, session.memory.receipt())
        case None:
            page = Page()
        case str() as text:
            page = Page()
            page.add(text)
        case note:
            page = recalled_page(note, session.memory.recalled)
    if row.link is not None:
        page.lines += (await linked_page(session, row.link)).lines
    return page


async def linked_page(session: Session, link: PageLink) -> Page:
    """The page of a link to a note, a turn or a commit.

    Raises:
        OuroError: it does not exist any more.
    """
    memory, target = session.memory, link.target
    if link.kind == "note":
        return note_page(
            await memory.with_editor(
                lambda editor: details_of(editor, target, memory.half_life_days)
            )
        )
    if link.kind == "turn":
        return turn_page(await session.session_catalog.turn(target, link.turn, link.message))
    timeline = memory.require().timeline()
    return commit_page(
        *await asyncio.to_thread(lambda: (timeline.find(target), timeline.changes(target)))
    )


def note_page(details: EntryDetails) -> Page:
    """A note with its source, its older and newer versions, and related notes."""
    assert details.note is not None
    entry, note = details.entry, details.note.note
    page = Page(
        note.text or "(empty)", f"{entry.scope} · {note.category} · {note.id[:12]} · {note.source}"
    )
    if badges := [
        *entry.badges,
        *([f"stale: {', '.join(details.stale)}"] if details.stale else []),
    ]:
        page.add(f"[{'] ['.join(badges)}]", "flag")
    for name, value in note_fields(details):
        page.add(f"{name}: {value}", "detail")
    _add_source(page, note.session_id, note.turn)
    if len(details.chain) > 1:
        page.section(f"Changed {plural(len(details.chain) - 1, 'time')}, oldest first")
        for version in details.chain:
            text, is_this = f"{version.at[:10]} {one_line(version.text)}", version.id == entry.id
            page.add(
                f"  {text} (this one)" if is_this else text,
                link=None if is_this else PageLink("note", version.id),
            )
    if details.links:
        page.section("Related notes")
        for link in details.links:
            page.add(
                f"{link.relationship}: {one_line(link.text)}", link=PageLink("note", link.note_id)
            )
    return page


def core_page(listed: MemoryEntry, lines: Sequence[BlamedLine]) -> Page:
    """A line of the core with the commit that it came from."""
    page = Page(listed.text, f"{listed.scope}/{listed.file}, line {listed.line}")
    page.add("")
    blamed = next((line for line in lines if line.number == listed.line), None)
    if blamed is None:
        page.add("not committed yet", "detail")
    else:
        _add_commit(page, blamed.commit)
        page.add(f"commit: {blamed.commit.subject}", link=PageLink("commit", blamed.commit.id))
    return page


def commit_page(entry: TimelineEntry, difference: Difference) -> Page:
    """A commit as a diff; each hunk can be undone alone."""
    page = Page(entry.commit.subject, f"{entry.scope} · {entry.commit.id[:12]}")
    _add_commit(page, entry.commit)
    for hunk in difference.hunks:
        other = hunk.other_half(difference.hunks)
        if other is not None and hunk.before:
            continue  # shown at its destination
        where = (
            f"moved from {other.name.rpartition('/')[0] or 'notes'}"
            if other
            else f"line {hunk.start + 1}"
        )
        link = PageLink("hunk", entry.commit.id, hunk=hunk.number)
        page.section(f"{hunk.number} · {_short_name(hunk.name)} · {where}", link=link)
        if other is not None:
            page.add(_without_front_matter("".join(hunk.after)))
        else:
            _add_changes(page, "".join(hunk.before), "".join(hunk.after))
    del page.lines[MAX_PAGE_LINES:]
    return page


def proposal_page(proposal: Proposal) -> Page:
    """A pending change with the reason and the changed lines of each file."""
    page = Page("Waiting for approval", f"{proposal.scope} · {proposal.id} · {proposal.reason}")
    for source in proposal.sources:
        page.add(f"source: {source}", "detail")
    for edit in proposal.edits:
        page.section(_short_name(edit.name) + (", removed" if edit.after is None else ""))
        _add_changes(page, edit.before or "", edit.after or "")
    if proposal.session:
        _add_source(page, proposal.session, proposal.turn)
    return page


def recalled_page(note: RecalledNote, recalled: NotesRecalled) -> Page:
    """Why a note was sent with the last message or not, and the total of what was sent."""
    page = Page()
    page.add(
        f"{SIGNS[note.state]} {note.state} with the last message: {note.reason}; score"
        f" {note.score:.3g}",
        "who",
    )
    page.add(f"{note.tokens} tokens, of {recall_total(recalled)}", "detail")
    page.add("")
    return page


def receipt_page(line: ReceiptLine, receipt: MemoryReceipt) -> Page:
    """An entry of the core at the start of the session, and the size of the whole core."""
    page = Page(line.text or f"the whole of {line.file}", f"{line.scope}/{line.file}")
    reason = f": {line.reason}" if line.reason else ""
    page.section(f"{SIGNS[line.state]} {line.state} when the session began{reason}")
    page.add(
        f"{line.tokens} tokens in each request" if line.state == "loaded" else "not in the prompt",
        "detail",
    )
    page.add(f"the core: {core_total(receipt)}", "detail")
    return page


def turn_page(turn: TurnEvidence) -> Page:
    """The turn that a memory came from; Enter opens the session read-only."""
    about = f"message {turn.number} · {local_time(turn.at)} · session {turn.session_id[:8]}"
    page = Page(f"Turn {turn.turn} of {turn.title or turn.session_id[:8]}", about)
    if turn.is_left:
        page.add("on a branch that was left by a rewind", "detail")
    link = PageLink("turn", turn.session_id, message=turn.number)
    page.add("Enter opens it; another session is opened read-only", link=link)
    for role, text in turn.words:
        page.section({"user": "you", "assistant": "ouro"}.get(role, role))
        page.add(clean(text).strip())
    return page


def _add_source(page: Page, session_id: str, turn: int) -> None:
    page.section("Source")
    if session_id and turn:
        page.add(f"session {session_id[:8]}, turn {turn}", link=PageLink("turn", session_id, turn))
    else:
        page.add("  edited by hand, or outside of a session", "detail")


def _add_commit(page: Page, commit: Commit) -> None:
    source = commit.source
    page.add(f"{local_time(commit.at)}, by {writer(commit)}", "detail")
    if source.session and source.turn:
        link = PageLink("turn", source.session, source.turn, message=source.message)
        page.add(f"session {source.session[:8]}, turn {source.turn}", link=link)


def _short_name(name: str) -> str:
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base[:12]}" if base.startswith("mem_") else name


def _add_changes(page: Page, before: str, after: str) -> None:
    """The changed lines of a file; of a note its changed text, and its new front matter."""
    for line in _changed_lines(before, after):
        page.add(line, "added" if line[0] == "+" else "removed")
    front = [*_front_matter(after)]
    if front and front != [*_front_matter(before)]:
        page.section("new front matter", "detail")
        for line in front:
            page.add(f"  {line}", "detail")


def _front_matter(text: str) -> Iterator[str]:
    """The useful lines of a note's front matter."""
    lines = text.removesuffix(_without_front_matter(text)).splitlines()
    return (line for line in lines if not _REDUNDANT.fullmatch(line))
