"""The rows of the memory browser's tabs, and the pages that it shows of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
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
_BULLET = re.compile(r"^([-+] )?[-*+] ")
"""The bullet of a list item, which may be behind the sign of a changed line."""
_REDUNDANT = re.compile(
    r"---|(?:id|session_id|turn|created_at|updated_at|confirmed_at): .*|version: 1|\w+:"
    r' (?:null|\[\]|""|)'
)
"""Front matter that is empty, or that the page shows elsewhere."""


@dataclass(slots=True)
class MemoryRow:
    """A row of the memory browser: an entry of memory, a commit, or a pending change."""

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
    also_searched: InitVar[str] = ""
    """Text that a search matches, but that the row does not show."""
    search_text: str = field(init=False)
    """All text that a search matches, in lower case."""
    warns: bool = True
    """Whether the flag is a warning."""
    item: MemoryEntry | Proposal | RecalledNote | ReceiptLine | str | None = None
    """The object, or the text, that its page is about. None: the page of its link is enough."""

    def __post_init__(self, also_searched: str) -> None:
        shown_text = f"{self.text} {self.category} {self.scope} {self.flag} {self.about}"
        self.search_text = f"{shown_text} {also_searched}".lower()


def note_rows(entries: Iterable[MemoryEntry]) -> dict[Tab, list[MemoryRow]]:
    """The rows of three tabs: lines of the core, current notes, and what is archived. A note that was
    replaced by a newer version is not among the current notes.
    """
    rows: dict[Tab, list[MemoryRow]] = {"core": [], "notes": [], "archive": []}
    for entry in entries:
        is_archived = "archived" in entry.badges
        if entry.kind == "core":
            rows["core"].append(_entry_row(entry, "core"))
        elif entry.kind == "note" and not is_archived and "replaced" not in entry.badges:
            rows["notes"].append(_entry_row(entry, "notes"))
        if is_archived:
            rows["archive"].append(_entry_row(entry, "archive"))
    return rows


def newest_tab(entries: Iterable[MemoryEntry]) -> Tab:
    """The tab with the entry in use that was changed last: the core or the notes. If there is no
    such entry, it is the core.
    """
    in_use = [entry for entry in entries if entry.is_in_use]
    newest = max(in_use, key=_time_of, default=None)
    return "notes" if newest and newest.kind == "note" else "core"


def _time_of(entry: MemoryEntry) -> datetime:
    """When an entry was changed last. A line of the core without a time is not committed yet, so
    its time is now. A note without a valid time was edited by hand, and counts as the oldest.
    """
    try:
        return datetime.fromisoformat(entry.at).astimezone(UTC)
    except ValueError:
        is_uncommitted = entry.kind == "core" and not entry.at
        return datetime.now(UTC) if is_uncommitted else datetime.min.replace(tzinfo=UTC)


def _entry_row(entry: MemoryEntry, tab: Tab) -> MemoryRow:
    """A line of the core, or a note, as a row of this tab. The flag of the row has the badges of the
    entry, and how often the entry was changed.
    """
    flags = list(entry.badges)
    if tab == "archive" and "archived" in flags:
        flags.remove("archived")  # all entries of this tab are archived
    if entry.versions > 1:
        flags.append(f"changed {entry.versions - 1}×")
    flag = " · ".join(flags)
    also_searched = f"{entry.id} {entry.file}"
    if tab != "core":  # the page of a note is that of its link, so the row needs no item
        return MemoryRow(
            PageLink("note", entry.id),
            entry.scope,
            text=_join_lines(entry.text),
            category=entry.category,
            flag=flag,
            about=entry.category,
            also_searched=also_searched,
        )
    writer_of_line = describe_writer(entry.source)
    return MemoryRow(
        PageLink("core", f"{entry.scope}/{entry.file}"),
        entry.scope,
        text=_without_bullet(entry.text),
        category=entry.category,
        flag=flag,
        about=" · ".join(filter(None, (entry.category, writer_of_line))),
        also_searched=also_searched,
        item=entry,
    )


def log_rows(entries: Iterable[TimelineEntry]) -> list[MemoryRow]:
    """The rows of commits, the newest first as in the timeline. The category of a commit is its
    author. Its flag is the local time, and so is not shown as a warning.
    """
    rows = []
    for entry in entries:
        commit, author = entry.commit, writer(entry.commit)
        row = MemoryRow(
            PageLink("commit", commit.id),
            entry.scope,
            text=_join_lines(commit.subject),
            category=author,
            flag=local_time(commit.at),
            about=author,
            also_searched=f"{commit.id} {' '.join(commit.paths)} {commit.at}",
            warns=False,
        )
        rows.append(row)
    return rows


def receipt_rows(
    recalled: NotesRecalled, receipt: MemoryReceipt, checks: Iterable[Check]
) -> list[MemoryRow]:
    """The rows of the receipt, in this order: the notes considered for the last message, the lines
    of the core, its changes since the session began, and enforced corrections.
    """
    return [
        *map(_recalled_row, recalled.items),
        *map(_core_line_row, receipt.lines),
        *map(_core_change_row, receipt.changes),
        *map(_check_row, checks),
    ]


def _recalled_row(note: RecalledNote) -> MemoryRow:
    """The row of a note that was considered for the last message, with its state and the reason. If
    the note was deleted since then, the row has no text of it and no link.
    """
    is_stored_note = note.id.startswith("mem_")  # otherwise it is a command that ran earlier
    label = _join_lines(note.text) or note.id
    if is_stored_note and not _join_lines(note.text):
        label = f"{note.id[:12]} (deleted since)"
    return MemoryRow(
        PageLink("note", note.id) if is_stored_note and note.text else None,
        note.scope,
        text=f"{SIGNS[note.state]} {label}",
        category="recalled",
        about=f"{note.state}: {note.reason}",
        also_searched=note.id,
        item=note,
    )


def _core_line_row(line: ReceiptLine) -> MemoryRow:
    """The row of a line of the core. A line without a text stands for the whole file. The row shows
    the state of the line in the last prompt, and the reason for it.
    """
    label = _without_bullet(line.text) or f"the whole of {line.file}"
    return MemoryRow(
        link=None,
        scope=line.scope,
        text=f"{SIGNS[line.state]} {label}",
        category="in each prompt",
        about=f"{line.state}: {line.reason}" if line.reason else line.file,
        also_searched=f"{line.file} {line.state}",
        item=line,
    )


def _core_change_row(change: str) -> MemoryRow:
    """A change of the core since the session began, written `SCOPE/TEXT`."""
    scope, _, text = change.partition("/")
    page = f"changed since the session began: {change}"
    return MemoryRow(
        link=None, scope=scope, text=f"± {_join_lines(text)}", category="changed since", item=page
    )


def _check_row(check: Check) -> MemoryRow:
    """An enforced correction, with how often it has refused something."""
    about = f"refused {plural(check.fired, 'time')} since {check.added_at[:10]}"
    page = f"{check.text}: an enforced correction, {about}. /check remove {check.number} ends it."
    return MemoryRow(
        link=None,
        scope="repo" if check.project else "user",
        text=f"check {check.number}: {_join_lines(check.text)}",
        category="enforced",
        about=about,
        item=page,
    )


def proposal_rows(proposals: Iterable[Proposal]) -> list[MemoryRow]:
    """The rows of pending changes. The text of a row is the lines that its change would add."""
    rows = []
    for proposal in proposals:
        names = " ".join(edit.name for edit in proposal.edits)
        row = MemoryRow(
            PageLink("proposal", proposal.id),
            proposal.scope,
            text="; ".join(_summarize(edit) for edit in proposal.shown_edits),
            category=proposal.origin,
            flag="pending",
            also_searched=f"{names} {proposal.reason} {proposal.id}",
            item=proposal,
        )
        rows.append(row)
    return rows


def _summarize(edit: FileEdit) -> str:
    """An edit in one line: the lines that it adds. If it adds none, the lines that it removes. If
    no line changes, the name of the file.
    """
    changed = _visible_changes(edit.before or "", edit.after or "")
    added = [line for line in changed if line[0] == "+"]
    return " ".join(map(_without_bullet, added or changed)) or edit.name


def _visible_changes(before: str, after: str) -> list[str]:
    """The changed lines of a file, without blank ones, each behind `- ` or `+ `. If the text of a
    note has changed, the lines of its front matter are left out.
    """
    text_before, text_after = _without_front_matter(before), _without_front_matter(after)
    if text_before != text_after:
        before, after = text_before, text_after
    return [f"{line[:1]} {line[1:]}" for line in changed_lines(before, after) if line[1:].strip()]


def _without_front_matter(text: str) -> str:
    """A note without its front matter; any other text unchanged."""
    front, end_of_front, words = text.partition("\n---\n")
    has_front_matter = bool(end_of_front) and front.startswith("---")
    return words if has_front_matter else text


def _without_bullet(text: str) -> str:
    return _BULLET.sub(r"\1", _join_lines(text))


def _join_lines(text: str) -> str:
    return " ".join(clean(text).split())


async def row_page(session: Session, row: MemoryRow) -> Page:
    """The page of a row. It shows the item of the row, or the target of its link. If the row has
    both, the link is below the item.

    Raises:
        OuroError: the item or the target of the link does not exist any more.
    """
    memory = session.session_memory.require()
    match row.item:
        case MemoryEntry() as entry:
            blame = await asyncio.to_thread(
                lambda: memory.timeline().blame(f"{entry.scope}/{entry.file}")
            )
            return core_page(entry, blame.lines)
        case Proposal() as proposal:
            return proposal_page(proposal)
        case ReceiptLine() as line:
            return receipt_page(line, session.session_memory.receipt())
        case None:
            page = Page()
        case str() as text:
            page = Page()
            page.add(text)
        case note:  # RecalledNote
            page = recalled_page(note, session.session_memory.recalled)
    if row.link is not None:
        page.lines += (await linked_page(session, row.link)).lines
    return page


async def linked_page(session: Session, link: PageLink) -> Page:
    """The page of a link to a note, a turn, or a commit. A link of any other kind is taken as a
    link to a commit.

    Raises:
        OuroError: the target does not exist any more.
    """
    memory, target = session.session_memory, link.target
    if link.kind == "note":
        details = await memory.with_editor(
            lambda editor: details_of(editor, target, memory.half_life_days)
        )
        return note_page(details)
    if link.kind == "turn":
        return turn_page(await session.session_catalog.find_turn(target, link.turn, link.message))
    timeline = memory.require().timeline()
    entry, difference = await asyncio.to_thread(
        lambda: (timeline.find(target), timeline.changes(target))
    )
    return commit_page(entry, difference)


def note_page(details: EntryDetails) -> Page:
    """A note with its badges, fields and source, its older and newer versions, and related notes."""
    assert details.note is not None  # only an entry of the core has none
    entry, note = details.entry, details.note.note
    page = Page(
        note.text or "(empty)", f"{entry.scope} · {note.category} · {note.id[:12]} · {note.source}"
    )
    badges = list(entry.badges)
    if details.stale:
        badges.append(f"stale: {', '.join(details.stale)}")
    if badges:
        page.add(f"[{'] ['.join(badges)}]", "flag")
    for name, value in note_fields(details):
        page.add(f"{name}: {value}", "detail")
    _add_source(page, note.session_id, note.turn)
    if len(details.chain) > 1:
        page.section(f"Changed {plural(len(details.chain) - 1, 'time')}, oldest first")
        for version in details.chain:
            text = f"{version.at[:10]} {one_line(version.text)}"
            if version.id == entry.id:
                page.add(f"  {text} (this one)")
            else:
                page.add(text, link=PageLink("note", version.id))
    if details.links:
        page.section("Related notes")
        for related in details.links:
            text = f"{related.relationship}: {one_line(related.text)}"
            page.add(text, link=PageLink("note", related.note_id))
    return page


def core_page(entry: MemoryEntry, lines: Sequence[BlamedLine]) -> Page:
    """The page of a line of the core, with the commit that made it. `lines` are the committed lines
    of its file. If the line is not among them, it is not committed yet.
    """
    page = Page(entry.text, f"{entry.scope}/{entry.file}, line {entry.line}")
    page.add("")
    commit = next((line.commit for line in lines if line.number == entry.line), None)
    if commit is None:
        page.add("not committed yet", "detail")
    else:
        _add_commit(page, commit)
        page.add(f"commit: {commit.subject}", link=PageLink("commit", commit.id))
    return page


def commit_page(entry: TimelineEntry, difference: Difference) -> Page:
    """A commit as a diff of at most MAX_PAGE_LINES. Each hunk is a link, so that it can be undone
    alone. A file that was moved has two hunks in git; they are shown as one, with the text of the
    file.
    """
    page = Page(entry.commit.subject, f"{entry.scope} · {entry.commit.id[:12]}")
    _add_commit(page, entry.commit)
    for hunk in difference.hunks:
        other_half = hunk.other_half(difference.hunks)
        is_moved_away = other_half is not None and bool(hunk.before)
        if is_moved_away:
            continue  # shown with the hunk of its destination
        where = f"line {hunk.start + 1}"
        if other_half is not None:
            where = f"moved from {other_half.name.rpartition('/')[0] or 'notes'}"
        link = PageLink("hunk", entry.commit.id, hunk=hunk.number)
        page.section(f"{hunk.number} · {_short_name(hunk.name)} · {where}", link=link)
        if other_half is not None:
            page.add(_without_front_matter("".join(hunk.after)))
        else:
            _add_changes(page, "".join(hunk.before), "".join(hunk.after))
    del page.lines[MAX_PAGE_LINES:]
    return page


def proposal_page(proposal: Proposal) -> Page:
    """A pending change: its reason and sources, the changed lines of each file, and the turn that it
    came from.
    """
    page = Page("Waiting for approval", f"{proposal.scope} · {proposal.id} · {proposal.reason}")
    for source in proposal.sources:
        page.add(f"source: {source}", "detail")
    for edit in proposal.shown_edits:
        page.section(_short_name(edit.name) + (", removed" if edit.after is None else ""))
        _add_changes(page, edit.before or "", edit.after or "")
    if proposal.session:
        _add_source(page, proposal.session, proposal.turn)
    return page


def recalled_page(note: RecalledNote, recalled: NotesRecalled) -> Page:
    """The first lines of the page of a recalled note: whether and why it was sent with the last
    message, its score and tokens, and the tokens of all notes that were sent. They have no title,
    because the page of the note follows.
    """
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
    """A line of the core: whether it was sent when the session began, and why, how many tokens it
    has, and how many the whole core has.
    """
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
    """The turn that a memory came from: its messages, and a link that opens the session there."""
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
    """Add a link to the turn that a memory came from. If the id is empty or the turn is 0, there is
    none, and a text says so.
    """
    page.section("Source")
    if session_id and turn:
        page.add(f"session {session_id[:8]}, turn {turn}", link=PageLink("turn", session_id, turn))
    else:
        page.add("  edited by hand, or outside of a session", "detail")


def _add_commit(page: Page, commit: Commit) -> None:
    """Add the time and author of a commit, and a link to the turn that made it, if one did."""
    source = commit.source
    page.add(f"{local_time(commit.at)}, by {writer(commit)}", "detail")
    if source.session and source.turn:
        link = PageLink("turn", source.session, source.turn, message=source.message)
        page.add(f"session {source.session[:8]}, turn {source.turn}", link=link)


def _short_name(name: str) -> str:
    """A file name with the first characters of the id, if it is that of a note."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base[:12]}" if base.startswith("mem_") else name


def _add_changes(page: Page, before: str, after: str) -> None:
    """Add the changed lines of a file. If the file is a note and its front matter has changed, also
    add the new front matter.
    """
    for line in _visible_changes(before, after):
        page.add(line, "added" if line[0] == "+" else "removed")
    front_matter = _front_matter_lines(after)
    if front_matter and front_matter != _front_matter_lines(before):
        page.section("new front matter", "detail")
        for line in front_matter:
            page.add(f"  {line}", "detail")


def _front_matter_lines(text: str) -> list[str]:
    """The lines of a note's front matter that say more than the page; empty for any other text."""
    front_matter = text.removesuffix(_without_front_matter(text))
    return [line for line in front_matter.splitlines() if not _REDUNDANT.fullmatch(line)]
