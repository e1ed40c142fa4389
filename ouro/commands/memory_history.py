"""The history of memory: log, diff, blame, evidence, why, undo, at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ouro.commands.action import ActionContext, Answer, MemoryAccess, confirm
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
"""Commits that are searched for the one that created an entry."""
_MAX_TEXT = 400
"""Characters of a text on one line."""
_MAX_DIFF_LINES = 200
_WRITER_OF_ORIGIN = {"agent": "the agent", "person": "you", "consolidation": "a model"}
"""The text for the origin of a commit; other origins are shown unchanged."""


async def log(context: ActionContext, file: str, limit: int) -> Answer:
    """List the last commits of memory, or of one file or note. The exit code is 1 without any."""
    entries = await context.memory(lambda memory: memory.timeline.log(limit, file))
    rows = [
        (
            CodeSpan(entry.commit.id[:7]),
            entry.scope,
            *_origin(entry.commit),
            one_line(entry.commit.subject, 200),
        )
        for entry in entries
    ]
    empty_note = line(f"There are no commits{f' of {file}' if file else ''} yet.", level="error")
    return Answer(entries, table(rows) or [empty_note], 0 if entries else 1)


async def diff(
    context: ActionContext, commits: Sequence[str], since: str, agent: str = ""
) -> Answer:
    """Show the changes of commits or since a date; with `agent`, the differences from what that agent
    remembers.
    """
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
    changes = await context.memory(partial(_find_changes, commits, since))
    view: View = []
    for change in changes:
        rows = []
        for hunk in change.hunks:
            rows.append(f"@@ {hunk.number} · {hunk.name} · line {hunk.start + 1} @@")
            rows += [f"-{text.rstrip(chr(10))}" for text in hunk.before]
            rows += [f"+{text.rstrip(chr(10))}" for text in hunk.after]
        title = f"{change.scope} · {change.before[:7] or 'nothing'} → {change.after[:7]}"
        view += [Title(title), _diff_quote(rows)]
    return Answer(changes, view or [line("Memory has not changed.")])


def _find_changes(commits: Sequence[str], since: str, memory: MemoryAccess) -> Sequence[MemoryDiff]:
    """The changes since a date, between two commits, or of one commit. Without any, those of this
    session; outside of a session, those of the last commit.
    """
    if since:
        return memory.timeline.since(since)
    if len(commits) == 2:
        return [memory.timeline.between(*commits)]
    if not commits and memory.began_with:
        return memory.timeline.since_commits(memory.began_with)
    return [memory.timeline.changes(commits[0] if commits else "last")]


async def blame(context: ActionContext, file: str, number: int, opened: int) -> Answer | None:
    """Show the commit of each line of a file; with a number, the turn that this line came from.

    Args:
        opened: the same number, as `--open` passes it.
    """
    number = number or opened
    if not number:
        return await context.memory(lambda memory: _annotate(memory, file))
    commit = await context.memory(lambda memory: _origin_of_line(memory, file, number))
    return await _show_turn(context, commit)


def _annotate(memory: MemoryAccess, file: str) -> Answer:
    """The lines of a file, each with the commit that it came from."""
    annotated = memory.timeline.blame(file)
    rows = [
        (f"{row.number:>4}", row.commit.id[:7], *_origin(row.commit), row.text)
        for row in annotated.lines
    ]
    hint = line("The turn that a line came from: ", CommandText(f"memory blame {file} LINE"))
    return Answer(
        annotated,
        [Title(f"{annotated.scope}/{annotated.name}"), Quote("\n".join(columns(rows))), hint],
    )


def _origin_of_line(memory: MemoryAccess, file: str, number: int) -> Commit:
    """The commit that a line of a file came from. Raises UsageError if there is no such line."""
    annotated = memory.timeline.blame(file)
    if not 0 < number <= len(annotated.lines):
        raise UsageError(
            f"There is no line {number}: {annotated.name} has {plural(len(annotated.lines), 'line')}."
        )
    return memory.timeline.origin_of(file, annotated.lines[number - 1])


async def evidence(context: ActionContext, what: str) -> Answer | None:
    """Show the turn that a commit, a note or a file came from."""

    commit = await context.memory(lambda memory: _commit_of(memory, what))
    return await _show_turn(context, commit)


def _commit_of(memory: MemoryAccess, what: str) -> Commit:
    """The named commit; for a file or a note the oldest commit of it that a session made, else the
    oldest of all. Raises UsageError if there is none.
    """
    try:
        return memory.timeline.find(what).commit
    except UsageError:
        commits_of_entry = [
            entry.commit for entry in reversed(memory.timeline.log(_MAX_SEARCHED, what))
        ]
        if not commits_of_entry:
            raise
        return next(
            (commit for commit in commits_of_entry if commit.source.session),
            commits_of_entry[0],
        )


async def why(context: ActionContext, turn: int, session: str) -> Answer | None:
    """Show what memory put into the prompt of a turn: core files and recalled notes.

    Args:
        turn: its number; 0 for the last one, which the user is not offered to open.
    """
    catalog = context.catalog
    session_id = (
        context.session.id
        if context.session and not session
        else (await catalog.find(session or "latest")).id
    )
    try:
        turn_evidence = await catalog.turn(session_id, turn)
    except SessionNotFound as error:
        raise UsageError(
            "There is no turn in this session yet.", commands=["memory why --session latest"]
        ) from error

    def read_texts(memory: MemoryAccess) -> tuple[dict[str, str], Mapping[str, str]]:
        note_texts = memory.editor.notebook.texts([item.id for item in turn_evidence.recalled])
        return _core_texts(memory.timeline, turn_evidence.began_with), note_texts

    core_texts, note_texts = await context.memory(read_texts)
    from ouro.memory.tokens import estimate

    core_tokens = {name: estimate(text) for name, text in core_texts.items()}
    core_lines = {
        name: [*filter(str.strip, text.splitlines())] for name, text in core_texts.items()
    }
    answer = Answer(
        {"turn": turn_evidence, "core": core_tokens, "core_lines": core_lines, "notes": note_texts},
        _reasons_view(turn_evidence, core_tokens, core_lines, note_texts),
    )
    return await _offer_to_open(context, turn_evidence, answer) if turn else answer


async def undo(context: ActionContext, words: Sequence[str], hunk: int, yes: bool) -> Answer:
    """Undo a commit of memory, or one hunk of it, after a preview and a question."""
    commit, hunk = _commit_and_hunk(words, hunk)
    plan = await context.memory(lambda memory: memory.timeline.plan_undo(commit, hunk))
    if not plan.edits:
        raise UsageError("Nothing is left to undo: the lines changed since.")
    # In a session a named commit is undone at once; the command line needs --yes.
    is_confirmed = yes or "yes" in words
    is_sure = is_confirmed or (context.session is not None and commit != "last")
    # The change is shown before it is undone, not once more by its event.
    if not is_confirmed:
        view: View = []
        for scope_plan in (plan, *plan.also):
            view += _plan_view(scope_plan)
        context.show(view)
    if not await confirm(context, f"Undo {plan.commit.id[:7]}?", "Undo it", assume_yes=is_sure):
        return Answer(None, [line("Nothing was undone.")], 1)

    return await context.memory(
        lambda memory: _undo_commit(memory, plan.commit.id, hunk), reports=False
    )


def _undo_commit(memory: MemoryAccess, commit_id: str, hunk: int) -> Answer:
    """Undo a commit, or one hunk of it if `hunk` is not 0; the answer names what was undone."""
    outcome = memory.editor.undo(commit_id, hunk)
    done_note = (
        f"Undone{f': hunk {hunk} of' if hunk else ':'}"
        f" {long_term.describe_commits(outcome.commits)}"
    )
    redo = (" · ", CommandText(f"memory undo {outcome.commit[:7]}")) if outcome.commit else ()
    return Answer(
        outcome,
        [
            line(done_note, *redo),
            *_conflict_lines(outcome.conflicts),
        ],
    )


def _commit_and_hunk(words: Sequence[str], hunk: int) -> tuple[str, int]:
    """The commit and the hunk in words such as `3f2a91c hunk 2`; without them `last` and `hunk`.
    Raises UsageError for other words.
    """
    names = [word for word in words if word not in ("hunk", "yes")]
    if len(names) > 2 or not all(word.isdigit() for word in names[1:]):
        raise UsageError(
            f"`{' '.join(words)}` is not a commit and a hunk.",
            commands=["memory undo 3f2a91c hunk 2"],
        )
    commit = names[0] if names else "last"
    return commit, int(names[1]) if names[1:] else hunk


async def _search_at(context: ActionContext, date: str, words: str) -> Answer:
    hits = await context.memory(lambda memory: memory.timeline.search_at(date, words))
    rows = [(CodeSpan(f"{hit.scope}/{hit.name}"), one_line(hit.text, _MAX_TEXT)) for hit in hits]
    return Answer(hits, table(rows) or [line("No matches.")], 0 if hits else 1)


async def show_at(context: ActionContext, when: Sequence[str]) -> Answer:
    """Memory as it was on a date: all of it, one file or note (`show`), or what has some words
    (`search`).
    """
    date, other_words = _split_date(" ".join(when).split())
    if other_words[:1] == ["search"]:
        return await _search_at(context, date, " ".join(other_words[1:]))
    file = " ".join(other_words[1:] if other_words[:1] == ["show"] else other_words)
    old_files = await context.memory(lambda memory: memory.timeline.as_of(date, file))
    if not old_files:
        missing_note = line(f"{file or 'Memory'} did not exist yet: {date}.", level="error")
        return Answer(old_files, [missing_note], 1)
    view: View = []
    for scope in dict.fromkeys(old.scope for old in old_files):
        scope_files = [old for old in old_files if old.scope == scope]
        view += _old_files(scope_files, is_whole=not file)
    return Answer(old_files, view)


def _split_date(words: list[str]) -> tuple[str, list[str]]:
    """The date at the beginning (`2026-11-21`, `yesterday`, `3 days ago`), and the other words."""
    size = 1
    if words[0].isdigit() and len(words) > 1:  # `3 days ago`
        size = 3 if words[2:3] == ["ago"] else 2
    return " ".join(words[:size]), words[size:]


def _old_files(files: Sequence[long_term.OldFile], *, is_whole: bool) -> View:
    """A view of the old files of one scope. If all of memory is shown, a note is one row."""
    commit = files[0].commit
    view: View = [Title(f"{files[0].scope}, as of {commit.id[:7]} ({local_time(commit.at)})")]
    rows = []
    for file in files:
        if is_whole and file.note_text:
            name = CodeSpan(file.name.removesuffix(".md"))
            rows.append((name, one_line(file.note_text, _MAX_TEXT)))
        else:
            view += [line(CodeSpan(file.name)), Quote(file.text, "markdown")]
    return [*view, *table(rows)]


async def _show_turn(context: ActionContext, commit: Commit) -> Answer | None:
    """Show the messages of the turn that the trailers of a commit name. Raises UsageError if they
    name none.
    """
    source = commit.source
    if not source.session or not source.turn:
        raise UsageError("It did not come from a turn: it was written outside of a session.")
    catalog = context.catalog
    turn_evidence = await catalog.turn(source.session, source.turn, source.message)
    turn_time, title = (
        local_time(turn_evidence.at),
        turn_evidence.title or turn_evidence.session_id[:8],
    )
    view: View = [
        line(
            f"Turn {turn_evidence.turn} (message {turn_evidence.number}) of ",
            CodeSpan(title),
            f", {turn_time}",
        )
    ]
    if turn_evidence.is_left:
        view.append(line("It is on a branch that a rewind left.", level="warning"))
    view += [
        line(f"{'You' if role == 'user' else 'ouro'}: {one_line(text, _MAX_TEXT)}")
        for role, text in turn_evidence.words
    ]
    return await _offer_to_open(
        context, turn_evidence, Answer(turn_evidence, [*view, *_resume_hint(turn_evidence)])
    )


async def _offer_to_open(
    context: ActionContext, turn_evidence: TurnEvidence, answer: Answer
) -> Answer | None:
    """Return the answer; in a session, show it, let the user go to the turn, and return None."""
    if context.session is None:
        return answer
    context.show(answer.view)
    is_here = turn_evidence.session_id == context.session.id
    label = "Go to it in this session" if is_here else "Open that session, read-only"
    choices = [Choice("no", "Stay here"), Choice("open", label)]
    if (
        await context.choose(
            f"Turn {turn_evidence.turn} of {turn_evidence.title or turn_evidence.session_id[:8]}",
            choices,
        )
        == "open"
    ):
        if is_here:
            await context.front_end.go_to(turn_evidence.number)
        else:
            await context.front_end.open(
                OpenRequest(turn_evidence.session_id, read_only=True, message=turn_evidence.number)
            )
    return None


def _resume_hint(turn_evidence: TurnEvidence) -> View:
    return [line("Open the session:"), Quote(f"  ouro --resume {turn_evidence.session_id}")]


def _core_texts(timeline: Timeline, versions: Mapping[str, str]) -> dict[str, str]:
    """The texts of the core files at the start of a session, by name.

    Args:
        versions: the version of each scope; one that is not a commit is left out.
    """
    texts: dict[str, str] = {}
    for store in timeline.stores:
        commit = versions.get(store.scope, "")
        if len(commit) != 40 or not store.repository.exists:
            continue
        for name in store.core:
            if text := store.text_at(commit, f"{name}.md"):
                texts[f"{store.scope}/{name}.md"] = text
    return texts


def _reasons_view(
    turn_evidence: TurnEvidence,
    core_tokens: Mapping[str, int],
    core_lines: Mapping[str, Sequence[str]],
    note_texts: Mapping[str, str],
) -> View:
    """A view of what memory put into a turn: core files, changes that were sent, recalled notes."""
    sent_notes = [note for note in turn_evidence.recalled if note.state == "loaded"]
    rows: list[tuple[str, ...]] = []
    for name, count in core_tokens.items():
        rows.append(("core", name, f"{count:,} tokens"))
        rows += [("", "", text) for text in core_lines[name]]
    rows += [("changed", row) for row in turn_evidence.told if row[:1] in "+-"]
    note_rows = [
        (
            note.state,
            f"{note.tokens} tokens",
            one_line(note_texts.get(note.id, _missing_text(note.reason)), _MAX_TEXT),
            f"{note.id[:12]}: {note.reason}",
        )
        for note in turn_evidence.recalled
    ]
    way_notes = {"timeout": " (timeout: the search took too long, the message went without notes)"}
    way_note = way_notes.get(
        turn_evidence.way, f" ({turn_evidence.way})" if turn_evidence.way else ""
    )
    tokens = sum(note.tokens for note in sent_notes)
    prompt = next((text for _role, text in turn_evidence.words), "")
    return [
        Title(f"Turn {turn_evidence.turn}: {one_line(prompt, _MAX_TEXT)}"),
        *table(rows),
        line(
            f"Recalled for this message{way_note}: {plural(len(sent_notes), 'note')}, {tokens:,} tokens"
        ),
        *table(note_rows),
        *_resume_hint(turn_evidence),
    ]


def _missing_text(reason: str) -> str:
    """The text to show for a note that is not in the memory here."""
    return "" if reason.startswith(long_term.FROM_PROJECT) else "no longer there"


def _plan_view(plan: long_term.UndoPlan) -> View:
    """A view of the changes that an undo would make, and of its conflicts."""
    rows: list[str] = []
    for edit in plan.edits:
        rows += (f"{edit.name}:", *changed_lines(edit.before or "", edit.after or ""))
    title = Title(
        f"Undo {plan.commit.id[:7]} ({plan.scope}): {long_term.describe_commits(plan.commits)}"
    )
    return [title, _diff_quote(rows), *_conflict_lines(plan.conflicts)]


def _diff_quote(rows: Sequence[str]) -> Quote:
    """The rows as a diff, of which at most `_MAX_DIFF_LINES` are shown."""
    cut_rows = len(rows) - _MAX_DIFF_LINES
    return Quote(
        "\n".join([*rows[:_MAX_DIFF_LINES], f"… {cut_rows} more lines"] if cut_rows > 0 else rows),
        "diff",
    )


def _conflict_lines(hunks: Sequence[DiffHunk]) -> View:
    """A warning that names the hunks which an undo leaves; empty if there are none."""
    names = ", ".join(f"{hunk.number} ({hunk.name})" for hunk in hunks)
    return (
        [line(f"Not undone, because its lines changed since: hunk {names}.", level="warning")]
        if hunks
        else []
    )


def writer(commit: Commit) -> str:
    """The word for the author of a commit."""
    return describe_writer(commit.origin)


def describe_writer(origin: str) -> str:
    """The word for an author; `origin` is what the trailers of a commit name."""
    return _WRITER_OF_ORIGIN.get(origin, origin)


def _origin(commit: Commit) -> tuple[str, str]:
    """Two cells about a commit: time and author; session and turn."""
    source = commit.source
    turn = f":{source.turn}" if source.turn else ""
    return f"{local_time(commit.at)} {writer(commit)}", f"{source.session[:8]}{turn}"
