"""Notes and core files: list, show, search, remember, edit, confirm, archive, restore, accept,
reject, forget.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ouro.commands import action
from ouro.commands.action import ActionContext, Answer, MemoryAccess, places_in, undo_hint
from ouro.commands.render import CodeSpan, CommandText, Quote, Title, View, line, table
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.git import find_root
from ouro.utils.runtime import (
    get_history_dir,
    get_home,
    get_index_path,
    get_recall_log_path,
    get_sessions_dir,
    tilde,
)
from ouro.utils.text import join_names, local_time, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.events import NotesRecalled
    from ouro.memory.long_term import MemoryEditor, MemoryEntry, MemoryReceipt, Proposal, Scope

_MAX_LISTED = 50
"""Maximum entries of a list in a session; the command line shows all."""
_MAX_SENT = 100
_BACKUP = Path("~") / "ouro-before-forgetting.tar"
_IN_SESSION = (
    "This session still has the text in memory, and its file is open. Leave it (`/exit`), then"
    " finish with `ouro memory forget --everywhere --secret`."
)


async def browse(context: SessionContext) -> Answer | None:
    await context.manager.settled()
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
                *_pending_view(_pending(memory.editor)),
            ],
        )

    return await context.memory(work)


async def list_entries(context: ActionContext, what: Sequence[str], limit: int) -> Answer:
    entries, pending = await context.memory(
        lambda memory: (
            long_term.list_entries(memory.editor, " ".join(what)),
            _pending(memory.editor),
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


async def edit(context: ActionContext, entry: str) -> Answer:
    opened = await context.memory(
        lambda memory: long_term.open_file(memory.editor, entry or "preferences")
    )
    after = await context.edit(opened.text, opened.name.replace("/", "-"))
    done = await context.memory(lambda memory: long_term.save_file(memory.editor, opened, after))
    changed = [] if context.session else [line(f"Changed {opened.scope}/{opened.name}.")]
    view = changed if done.changed else [line("Nothing was changed.")]
    view += [
        line(f"{opened.name} is saved as you wrote it, but {what}.", level="warning")
        for what in done.problems
    ]
    return Answer(done, [*view, *undo_hint(context, done.undo)])


async def send_offered(context: SessionContext) -> Answer:
    projects = context.session.memory.other_projects
    note = projects.send_offered() if projects else None
    if note is None:
        raise UsageError(
            "Nothing of another project is shown.",
            "A strong match is shown after a message, and can be sent once.",
        )
    sent = f"Goes with the next message or tool result, {note.origin}: "
    return Answer(note, [line(sent, one_line(note.text, _MAX_SENT))])


async def receipt(context: SessionContext) -> Answer:
    await context.manager.settled()
    found = context.session.memory.receipt()
    view: View = [Title(f"What memory put into the prompt: {core_total(found)}")]
    rows: dict[str, list[tuple[str, ...]]] = {}
    for row in found.lines:
        text = " ".join(row.text.lstrip("-*#+ ").split()) or "the file"
        rows.setdefault(f"{row.scope}/{row.file}", []).append(
            (row.state, f"{row.tokens} tokens", text, row.reason)
        )
    for file, of_file in rows.items():
        view += [line(CodeSpan(file)), *table(of_file)]
    if not found.lines:
        view.append(line("Nothing is remembered yet."))
    if found.changes:
        view += [Title("Changed since"), *table((change,) for change in found.changes)]
    from ouro.commands.hooks import checks_of  # with a session; the command line has none

    if checks := checks_of(context.session):
        counts = (
            (f"check {item.number}", item.text, f"refused {plural(item.fired, 'time')}")
            for item in checks
        )
        view += [Title("Corrections that are enforced"), *table(counts)]
    if found.waiting:
        view.append(
            line(
                f"Waiting for approval: {', '.join(found.waiting)}. ",
                CommandText("memory accept ID"),
            )
        )
    return Answer(found, [*view, *_recalled_view(context.session.memory.recalled)])


def _entry_rows(entries: Iterable[MemoryEntry]) -> list[tuple[str, ...]]:
    """The rows of a table. The export is looked up once, not for each of 10,000 entries."""
    describe = long_term.describe_source
    return [_entry_row(entry, describe(entry)) for entry in entries]


def _entry_row(entry: MemoryEntry, source: str) -> tuple[str, ...]:
    place = entry.id if entry.kind == "core" else f"{entry.scope}/{entry.id[:12]}"
    category = entry.category if entry.kind == "note" else ""
    return (
        CodeSpan(place),
        one_line(entry.text, 200),
        " · ".join(filter(None, (category, source))),
    )


def _entries_view(found: Sequence[MemoryEntry], limit: int) -> View:
    """Entries, one in each row; those over `limit` are only counted, by place."""
    rows = table(_entry_rows(found[:limit])) or [line("No notes or core lines.")]
    if len(found) <= limit:
        return rows
    counts = Counter(f"{entry.scope}/{entry.category}" for entry in found)
    places = ", ".join(f"{place} {count:,}" for place, count in counts.items())
    more = f"{limit} of {len(found):,} entries: {places}. To narrow it: "
    return [*rows, line(more, CommandText("memory list SCOPE CATEGORY"))]


def _pending_view(found: Sequence[Proposal]) -> View:
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
        view += [Title("Versions"), *table(_entry_rows(found.chain), is_numbered=True)]
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


def _recalled_view(found: NotesRecalled) -> View:
    rows = [
        (
            item.state,
            f"{item.tokens} tokens",
            " ".join(item.text.split()) or CodeSpan(item.id),
            f"{item.reason}; score {item.score:.3g}",
        )
        for item in found.items
    ]
    return [Title(f"Recalled for the last message: {recall_total(found)}"), *table(rows)]


def recall_total(found: NotesRecalled) -> str:
    """What was sent of memory with the last message."""
    loaded = [item for item in found.items if item.state == "loaded"]
    total = (
        f"{plural(len(loaded), 'note')}, {sum(item.tokens for item in loaded):,} tokens"
        if loaded
        else "no notes"
    )
    took = [f"{found.milliseconds:.0f} ms"] if found.milliseconds else []
    return " · ".join(filter(None, [total, found.way, *took]))


def core_total(found: MemoryReceipt) -> str:
    """What the core costs."""
    price = "" if found.price is None else f", ${found.price:.5f} from the cache"
    return f"{found.tokens:,} tokens a request{price}"


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


async def _change_note(done: str, context: ActionContext, note: str) -> Answer:
    def work(memory: MemoryAccess) -> Answer:
        entry = long_term.find_entry(memory.editor, note)
        if entry.kind == "core":
            commands = [f"memory edit {entry.scope}/{entry.file}", f"memory forget {entry.id}"]
            raise UsageError(
                f"{entry.id} is a core line, not a note.", "A core line is always in use.", commands
            )
        if done == "restored" and not entry.archived:
            raise UsageError(
                f"{entry.id} is not in the archive.", "`confirm` records that it still holds."
            )
        if done == "archived" and entry.archived:
            raise UsageError(f"{entry.id} is in the archive already.")
        book = memory.editor.notebook
        undo = (
            book.archive([entry.id], "person")[0]
            if done == "archived"
            else book.confirm(entry.id, "person")
        ).commit
        what = line(f"{entry.id[:12]} is {done}: {one_line(entry.text, 80)}")
        return Answer(
            {"id": entry.id, "scope": entry.scope, "undo": undo}, [what, *undo_hint(context, undo)]
        )

    return await context.memory(work)


confirm = partial(_change_note, "confirmed")
archive = partial(_change_note, "archived")
restore = partial(_change_note, "restored")


async def _switch(on: bool, context: ActionContext) -> Answer:
    folder = await context.set_repo_memory(on=on)
    what = "on" if on else "off: nothing of it is read or written"
    view = [line(f"From the next session on, memory of this repository is {what}.")]
    return Answer({"folder": str(folder), "on": on}, view)


turn_on, turn_off = partial(_switch, True), partial(_switch, False)


async def _answer_proposal(is_accepted: bool, context: ActionContext, proposal: str) -> Answer:
    """Accept or reject the pending change of that id or its start, or the only one."""
    pending = await context.memory(lambda memory: _pending(memory.editor))
    matching = [found for found in pending if found.id.startswith(proposal)]
    if not pending:
        raise UsageError("There are no pending changes of memory.")
    if len(matching) != 1:
        ids = ", ".join(found.id for found in pending)
        several = f"{plural(len(matching), 'change')} are pending: name one."
        raise UsageError(
            several if matching else f"No pending change is `{proposal}`.",
            f"Pending: {ids}.",
            ["memory list"],
        )
    found = matching[0]
    await context.answer_proposal(found.id, accept=is_accepted)
    rejected = "Rejected: it is not remembered. The git history still has it."
    view = [line("Accepted: it is remembered now." if is_accepted else rejected)]
    if is_accepted and context.session:
        view = []  # an event shows the change
    return Answer(
        {"id": found.id, "scope": found.scope, "files": [edit.name for edit in found.edits]}, view
    )


accept, reject = partial(_answer_proposal, True), partial(_answer_proposal, False)


def _pending(editor: MemoryEditor) -> list[Proposal]:
    return list(chain.from_iterable(scope.proposals() for scope in editor.scopes))


async def forget(
    context: ActionContext, text: str, pick: str, yes: bool, everywhere: bool, **how: Any
) -> Answer:
    if everywhere:
        return await _forget_everywhere(context, text, is_sure=yes, **how)
    if any(how.values()):
        raise UsageError("--secret, --backup and --no-backup need --everywhere.")
    found = await context.memory(lambda memory: long_term.find_to_forget(memory.editor, text))
    if not found and context.session:
        raise UsageError("No matches.", commands=["memory list"])
    chosen = found if yes or not found else await _choose_entries(context, found, pick)
    value: dict[str, Any] = {"fits": found, "forgotten": [entry.id for entry in chosen], "undo": {}}
    if not chosen:
        return Answer(value, [line("Nothing was forgotten." if found else "No matches.")], 1)
    done = await context.memory(
        lambda memory: long_term.forget_entries(memory.editor, chosen), reports=False
    )
    value["undo"] = {change.scope: change.undo for change in done}
    view: View = [
        line(f"Forgot {plural(len(chosen), 'entry', 'entries')}. The git history keeps the text.")
    ]
    for change in done:
        if change.undo:
            view.append(line("Undo: ", CommandText(f"memory undo {change.undo[:7]}")))
    return Answer(value, view)


async def _choose_entries(
    context: ActionContext, found: Sequence[long_term.MemoryEntry], pick: str
) -> Sequence[long_term.MemoryEntry]:
    """The entries of --pick, otherwise the user's choice."""
    if pick:
        return [found[place] for place in places_in(pick, len(found))]
    context.show([Title("To forget"), *table(_entry_rows(found), is_numbered=True)])
    if not context.can_ask:
        context.show([line("Choose with --pick 1,3, or --yes for all.")])
        return []
    choices = [
        Choice(str(number), one_line(entry.text, 100), f"{entry.scope}/{entry.file}")
        for number, entry in enumerate(found, 1)
    ]
    return [
        found[int(number) - 1] for number in await context.choose_many("Forget which?", choices)
    ]


async def _forget_everywhere(
    context: ActionContext, words: str, *, is_sure: bool, secret: bool, backup: str, no_backup: bool
) -> Answer:
    text = await _text_to_forget(context, words, secret=secret)
    if is_sure and not backup and not no_backup:
        raise UsageError("This cannot be undone.", "With --yes, pass --backup FILE or --no-backup.")
    home = long_term.OuroHome(get_home(), get_history_dir(), get_sessions_dir(), get_index_path())
    job = long_term.TrueForget(text, home)
    found = await asyncio.to_thread(job.look, context.progress)
    context.progress("")
    if not found.count:
        searched = table((place.place,) for place in found.places)
        view = [line("The text was found nowhere. Searched:"), *searched, *_not_searched(found)]
        return Answer({"found": found, "done": False}, view, 1)
    context.show(_places_view(found, is_secret=secret))
    question = f"Forget it in {plural(found.count, 'place')}? This cannot be undone."
    target: Path | None = Path(backup) if backup else None
    if is_sure or backup or no_backup:
        agreed = await action.confirm(context, question, "Forget it", assume_yes=is_sure)
    else:
        agreed, target = await _choose_backup(context, question)
    if not agreed:
        return Answer({"found": found, "done": False}, [line("Nothing was changed.")], 1)
    saved = ""
    if target is not None:
        back_up = asyncio.to_thread(long_term.back_up_home, home, target, context.progress)
        saved = str(await back_up)
    done = await asyncio.shield(asyncio.to_thread(job.forget, context.progress))
    await context.update_index()
    context.progress("")
    value = {
        "found": found,
        "left": done.left,
        "unsearched": done.unsearched,
        "backup": saved,
        "done": not done.left,
    }
    view = _forgotten_view(done, job.placeholder)
    if context.session:
        view.append(line(_IN_SESSION))
    elif not secret:
        view.append(line("Your shell may have saved the command line in its history file."))
    if saved:
        kept = f"The backup {tilde(Path(saved))} still holds the text"
        view.append(line(f"{kept}: remove it when you are sure."))
    return Answer(value, view, 1 if done.left else 0)


def _places_view(found: long_term.ForgetReport, *, is_secret: bool) -> View:
    """Where the text was found; a warning if it may be a common word."""
    rows: list[tuple[str, ...]] = [
        (f"{place.count:>6,}", place.place) for place in found.places if place.count
    ]
    rows += [("session", CodeSpan(name)) for name in found.sessions]
    view: View = [Title("Where the text is"), *table(rows)]
    if found.count >= long_term.MANY_PLACES and not is_secret:
        many = f"The text is in {found.count:,} places: check that it is not a common word."
        view.append(line(many, level="warning"))
    return view


async def _choose_backup(context: ActionContext, question: str) -> tuple[bool, Path | None]:
    """Whether the user agrees, and where to write a backup before; None: they want none."""
    target = _free_path(_BACKUP.expanduser())
    kept = f"{tilde(target)} still holds the text: remove it later"
    choices = [
        Choice("backup", "Forget, after a backup", kept),
        Choice("now", "Forget, without a backup"),
        Choice("no", "Change nothing"),
    ]
    picked = await context.choose(question, choices)
    return picked in ("backup", "now"), target if picked == "backup" else None


def _forgotten_view(done: long_term.ForgetReport, placeholder: str) -> View:
    return [
        Title(f"Forgotten in {done.count:,} places"),
        line(f"Where a text is needed, it is now {placeholder}."),
        *table((f"{place.count:>6,}", place.place) for place in done.places),
        *(line(f"NOT DONE: {problem}", level="warning") for problem in done.left),
        *_not_searched(done),
        line(long_term.PROVIDERS),
    ]


async def _text_to_forget(context: ActionContext, words: str, *, secret: bool) -> str:
    if not secret:
        if not words.strip():
            raise UsageError(
                "Name the text to forget.", "With --secret it is asked for and not shown."
            )
        return words
    if words:
        raise UsageError(
            "With --secret do not pass the text: the command line stays in your shell's history."
        )
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return await context.ask("Text to forget (not shown)", secret=True)


def _not_searched(found: long_term.ForgetReport) -> View:
    return [line(f"NOT SEARCHED: {place}", level="warning") for place in found.unsearched]


def _free_path(path: Path) -> Path:
    number, target = 2, path
    while target.exists():
        target, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return target
