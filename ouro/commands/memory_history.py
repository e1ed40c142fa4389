"""The history of memory: log, diff, blame, evidence, why, undo, at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ouro.commands.action import ActionContext, Answer, MemoryAccess, confirm, undo_hint
from ouro.commands.memory_transfer import diff_with_agent
from ouro.commands.render import (
    CodeSpan,
    CommandText,
    Quote,
    Title,
    View,
    changed_lines,
    columns,
    line,
    table,
)
from ouro.display import Choice
from ouro.errors import SessionNotFound, UsageError
from ouro.memory import long_term
from ouro.session import OpenRequest
from ouro.utils.text import local_time, one_line, plural

if TYPE_CHECKING:
    from ouro.memory.long_term import Commit, DiffHunk, MemoryDiff, Timeline
    from ouro.memory.sessions.session_catalog import TurnEvidence

_MAX_SEARCHED = 200
_MAX_WORDS = 400
_MAX_LINES = 200
_WRITERS = {"agent": "the agent", "person": "you", "consolidation": "a model"}
"""Origin of a commit -> text; other origins are shown unchanged."""


async def log(context: ActionContext, file: str, limit: int) -> Answer:
    found = await context.memory(lambda memory: memory.timeline.log(limit, file))
    rows = [
        (
            CodeSpan(entry.commit.id[:7]),
            entry.scope,
            *_origin(entry.commit),
            one_line(entry.commit.subject, 200),
        )
        for entry in found
    ]
    empty = line(f"There are no commits{f' of {file}' if file else ''} yet.", level="error")
    return Answer(found, table(rows) or [empty], 0 if found else 1)


async def diff(
    context: ActionContext, commits: Sequence[str], since: str, agent: str = ""
) -> Answer:
    if agent:
        return await diff_with_agent(context, agent)
    if commits[:1] == ["since"]:
        commits, since = [], " ".join(commits[1:])
    if len(commits) > 2:
        raise UsageError(
            f"{plural(len(commits), 'commit')} are too many.",
            "Name one or two.",
            ["memory diff 3f2a91c"],
        )
    found = await context.memory(partial(_find_changes, commits, since))
    view: View = []
    for change in found:
        rows = []
        for hunk in change.hunks:
            rows.append(f"@@ {hunk.number} · {hunk.name} · line {hunk.start + 1} @@")
            rows += [f"-{text.rstrip(chr(10))}" for text in hunk.before]
            rows += [f"+{text.rstrip(chr(10))}" for text in hunk.after]
        title = f"{change.scope} · {change.before[:7] or 'nothing'} → {change.after[:7]}"
        view += [Title(title), _diff_quote(rows)]
    return Answer(found, view or [line("Memory has not changed.")])


def _find_changes(commits: Sequence[str], since: str, memory: MemoryAccess) -> Sequence[MemoryDiff]:
    """The changes since a date, between two commits, of one commit, or of this session."""
    if since:
        return memory.timeline.since(since)
    if len(commits) == 2:
        return [memory.timeline.between(*commits)]
    if not commits and memory.began_with:
        return memory.timeline.since_commits(memory.began_with)
    return [memory.timeline.changes(commits[0] if commits else "last")]


async def blame(context: ActionContext, file: str, number: int, opened: int) -> Answer | None:
    number = number or opened

    def work(memory: MemoryAccess) -> Answer | Commit:
        found = memory.timeline.blame(file)
        if not number:
            rows = [
                (f"{row.number:>4}", row.commit.id[:7], *_origin(row.commit), row.text)
                for row in found.lines
            ]
            how = line("The turn that a line came from: ", CommandText(f"memory blame {file} LINE"))
            return Answer(
                found, [Title(f"{found.scope}/{found.name}"), Quote("\n".join(columns(rows))), how]
            )
        if not 0 < number <= len(found.lines):
            raise UsageError(
                f"There is no line {number}: {found.name} has {plural(len(found.lines), 'line')}."
            )
        return memory.timeline.origin_of(file, found.lines[number - 1])

    result = await context.memory(work)
    return result if isinstance(result, Answer) else await _show_turn(context, result)


async def evidence(context: ActionContext, what: str) -> Answer | None:
    def work(memory: MemoryAccess) -> Commit:
        try:
            return memory.timeline.find(what).commit
        except UsageError:  # for a file or a note: the commit that created it
            made = [entry.commit for entry in reversed(memory.timeline.log(_MAX_SEARCHED, what))]
            if not made:
                raise
            return next((commit for commit in made if commit.source.session), made[0])

    return await _show_turn(context, await context.memory(work))


async def why(context: ActionContext, turn: int, session: str) -> Answer | None:
    catalog = context.catalog
    session_id = (
        context.session.id
        if context.session and not session
        else (await catalog.find(session or "latest")).id
    )
    try:
        found = await catalog.turn(session_id, turn)
    except SessionNotFound as error:
        raise UsageError(
            "There is no turn in this session yet.", commands=["memory why --session latest"]
        ) from error

    def work(memory: MemoryAccess) -> tuple[dict[str, str], Mapping[str, str]]:
        texts = memory.editor.notebook.texts([item.id for item in found.recalled])
        return _core_texts(memory.timeline, found.began_with), texts

    sent, texts = await context.memory(work)
    from ouro.memory.tokens import estimate

    core = {name: estimate(text) for name, text in sent.items()}
    lines = {name: [*filter(str.strip, text.splitlines())] for name, text in sent.items()}
    answer = Answer(
        {"turn": found, "core": core, "core_lines": lines, "notes": texts},
        _reasons_view(found, core, lines, texts),
    )
    return await _offer_to_open(context, found, answer) if turn else answer


async def undo(context: ActionContext, words: Sequence[str], hunk: int, yes: bool) -> Answer:
    commit, hunk = _commit_and_hunk(words, hunk)
    planned = await context.memory(lambda memory: memory.timeline.plan_undo(commit, hunk))
    if not planned.edits:
        raise UsageError("Nothing is left to undo: the lines changed since.")
    # In a session a named commit is undone at once; the command line needs --yes.
    is_sure = yes or "yes" in words or (context.session is not None and commit != "last")
    if not is_sure:
        view: View = []
        for part in (planned, *planned.also):
            view += _plan_view(part)
        context.show(view)
    if not await confirm(context, f"Undo {planned.commit.id[:7]}?", "Undo it", assume_yes=is_sure):
        return Answer(None, [line("Nothing was undone.")], 1)

    def work(memory: MemoryAccess) -> Answer:
        done = memory.editor.undo(planned.commit.id, hunk)
        what = (
            f"Undone{f': hunk {hunk} of' if hunk else ':'}"
            f" {long_term.describe_commits(done.commits)}"
        )
        return Answer(
            done, [line(what), *_conflict_lines(done.conflicts), *undo_hint(context, done.commit)]
        )

    return await context.memory(work)


def _commit_and_hunk(words: Sequence[str], hunk: int) -> tuple[str, int]:
    """The commit, by default the last one, and the hunk, by default `hunk`."""
    rest = [word for word in words if word not in ("hunk", "yes")]
    if len(rest) > 2 or not all(word.isdigit() for word in rest[1:]):
        raise UsageError(
            f"`{' '.join(words)}` is not a commit and a hunk.",
            commands=["memory undo 3f2a91c hunk 2"],
        )
    commit = rest[0] if rest else "last"
    return commit, int(rest[1]) if rest[1:] else hunk


async def _search_at(context: ActionContext, date: str, words: str) -> Answer:
    hits = await context.memory(lambda memory: memory.timeline.search_at(date, words))
    rows = [(CodeSpan(f"{hit.scope}/{hit.name}"), one_line(hit.text, _MAX_WORDS)) for hit in hits]
    return Answer(hits, table(rows) or [line("No matches.")], 0 if hits else 1)


async def show_at(context: ActionContext, when: Sequence[str]) -> Answer:
    """Memory as it was on a date: all of it, one file or note (`show`), or what has some words
    (`search`).
    """
    date, rest = _split_date(" ".join(when).split())
    if rest[:1] == ["search"]:
        return await _search_at(context, date, " ".join(rest[1:]))
    file = " ".join(rest[1:] if rest[:1] == ["show"] else rest)
    found = await context.memory(lambda memory: memory.timeline.as_of(date, file))
    if not found:
        missing = line(f"{file or 'Memory'} did not exist yet: {date}.", level="error")
        return Answer(found, [missing], 1)
    view: View = []
    for scope in dict.fromkeys(old.scope for old in found):
        own = [old for old in found if old.scope == scope]
        view += _old_files(own, is_whole=not file)
    return Answer(found, view)


def _split_date(words: list[str]) -> tuple[str, list[str]]:
    """The date at the beginning, and the other words."""
    size = 1
    if words[0].isdigit() and len(words) > 1:  # `3 days ago`
        size = 3 if words[2:3] == ["ago"] else 2
    return " ".join(words[:size]), words[size:]


def _old_files(own: Sequence[long_term.OldFile], *, is_whole: bool) -> View:
    """The files of one scope as they were; of a whole memory one line for each note."""
    commit = own[0].commit
    view: View = [Title(f"{own[0].scope}, as of {commit.id[:7]} ({local_time(commit.at)})")]
    rows = []
    for old in own:
        if is_whole and old.note_text:
            name = CodeSpan(old.name.removesuffix(".md"))
            rows.append((name, one_line(old.note_text, _MAX_WORDS)))
        else:
            view += [line(CodeSpan(old.name)), Quote(old.text, "markdown")]
    return [*view, *table(rows)]


async def _show_turn(context: ActionContext, commit: Commit) -> Answer | None:
    """The messages of the turn in the trailers of a commit."""
    source = commit.source
    if not source.session or not source.turn:
        raise UsageError("It did not come from a turn: it was written outside of a session.")
    catalog = context.catalog
    found = await catalog.turn(source.session, source.turn, source.message)
    at, title = local_time(found.at), found.title or found.session_id[:8]
    view: View = [
        line(f"Turn {found.turn} (message {found.number}) of ", CodeSpan(title), f", {at}")
    ]
    if found.is_left:
        view.append(line("It is on a branch that a rewind left.", level="warning"))
    view += [
        line(f"{'You' if role == 'user' else 'ouro'}: {one_line(text, _MAX_WORDS)}")
        for role, text in found.words
    ]
    return await _offer_to_open(context, found, Answer(found, [*view, *_opening(found)]))


async def _offer_to_open(
    context: ActionContext, found: TurnEvidence, answer: Answer
) -> Answer | None:
    """In a session: show the answer, then offer to go to the turn."""
    if context.session is None:
        return answer
    context.show(answer.view)
    is_here = found.session_id == context.session.id
    label = "Go to it in this session" if is_here else "Open that session, read-only"
    choices = [Choice("no", "Stay here"), Choice("open", label)]
    if (
        await context.choose(f"Turn {found.turn} of {found.title or found.session_id[:8]}", choices)
        == "open"
    ):
        if is_here:
            await context.front_end.go_to(found.number)
        else:
            await context.front_end.open(
                OpenRequest(found.session_id, read_only=True, message=found.number)
            )
    return None


def _opening(found: TurnEvidence) -> View:
    return [line("Open the session:"), Quote(f"  ouro --resume {found.session_id}")]


def _core_texts(timeline: Timeline, versions: Mapping[str, str]) -> dict[str, str]:
    """The core files at the start of a session; a version without a commit is left out."""
    found: dict[str, str] = {}
    for store in timeline.stores:
        commit = versions.get(store.scope, "")
        if len(commit) != 40 or not store.repository.exists:
            continue
        for name in store.core:
            if text := store.text_at(commit, f"{name}.md"):
                found[f"{store.scope}/{name}.md"] = text
    return found


def _reasons_view(
    found: TurnEvidence,
    core: Mapping[str, int],
    lines: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
) -> View:
    """What memory gave to a turn: core files, changes that were sent, and recalled notes."""
    loaded = [item for item in found.recalled if item.state == "loaded"]
    rows: list[tuple[str, ...]] = []
    for name, count in core.items():
        rows.append(("core", name, f"{count:,} tokens"))
        rows += [("", "", text) for text in lines[name]]
    rows += [("changed", row) for row in found.told if row[:1] in "+-"]
    notes = [
        (
            item.state,
            f"{item.tokens} tokens",
            one_line(texts.get(item.id, _missing_text(item.reason)), _MAX_WORDS),
            f"{item.id[:12]}: {item.reason}",
        )
        for item in found.recalled
    ]
    ways = {"timeout": " (timeout: the search took too long, the message went without notes)"}
    way = ways.get(found.way, f" ({found.way})" if found.way else "")
    tokens = sum(item.tokens for item in loaded)
    return [
        Title(
            f"Turn {found.turn}: {one_line(found.words[0][1] if found.words else '', _MAX_WORDS)}"
        ),
        *table(rows),
        line(f"Recalled for this message{way}: {plural(len(loaded), 'note')}, {tokens:,} tokens"),
        *table(notes),
        *_opening(found),
    ]


def _missing_text(reason: str) -> str:
    """What stands for the text of a note that is not in the memory here."""
    return "" if reason.startswith(long_term.FROM_PROJECT) else "no longer there"


def _plan_view(part: long_term.UndoPlan) -> View:
    """The changes that an undo would make, and its conflicts."""
    rows: list[str] = []
    for edit in part.edits:
        rows += (f"{edit.name}:", *changed_lines(edit.before or "", edit.after or ""))
    title = Title(
        f"Undo {part.commit.id[:7]} ({part.scope}): {long_term.describe_commits(part.commits)}"
    )
    return [title, _diff_quote(rows), *_conflict_lines(part.conflicts)]


def _diff_quote(rows: Sequence[str]) -> Quote:
    more = len(rows) - _MAX_LINES
    return Quote(
        "\n".join([*rows[:_MAX_LINES], f"… {more} more lines"] if more > 0 else rows), "diff"
    )


def _conflict_lines(hunks: Sequence[DiffHunk]) -> View:
    """The hunks that an undo does not change."""
    names = ", ".join(f"{hunk.number} ({hunk.name})" for hunk in hunks)
    return (
        [line(f"Not undone, because its lines changed since: hunk {names}.", level="warning")]
        if hunks
        else []
    )


def writer(commit: Commit) -> str:
    return describe_writer(commit.origin)


def describe_writer(origin: str) -> str:
    """The word for the author in a commit."""
    return _WRITERS.get(origin, origin)


def _origin(commit: Commit) -> tuple[str, str]:
    source = commit.source
    turn = f":{source.turn}" if source.turn else ""
    return f"{local_time(commit.at)} {writer(commit)}", f"{source.session[:8]}{turn}"
