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
from ouro.utils.text import local_time, one_line, plural, whole_number

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
    of_file = f" of {file}" if file else ""
    empty_note = line(f"There are no commits{of_file} yet.", level="error")
    return Answer(entries, table(rows) or [empty_note], 0 if entries else 1)


async def diff(
    context: ActionContext, commits: Sequence[str], since: str, agent: str = ""
) -> Answer:
    """Show the changes of commits or since a date; with `agent`, the differences from what that agent
    remembers.

    Args:
        commits: at most two; or `since` and a date.
        since: a date; empty for none.
    """
    if agent:
        return await diff_with_agent(context, agent)
    if commits[:1] == ["since"]:
        commits, since = [], " ".join(commits[1:])
        if not since:
            raise UsageError("Name a date.", commands=["memory diff since yesterday"])
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
    """The changes since a date, between two commits, or of one commit. Without a date and commits,
    those since this session began; outside of a session, those of the last commit.
    """
    if since:
        return memory.timeline.since(since)
    match commits:
        case [first, second]:
            return [memory.timeline.between(first, second)]
        case [commit]:
            return [memory.timeline.changes(commit)]
    if memory.began_with:
        return memory.timeline.since_commits(memory.began_with)
    return [memory.timeline.changes("last")]


async def blame(context: ActionContext, file: str, number: int, opened: int) -> Answer | None:
    """Show the commit of each line of a file; with a line number, the turn that this line came from.
    None if a session has shown the turn already.

    Args:
        number: the line number from 1, or 0.
        opened: the same, as `--open` passes it.
    """
    line_number = number or opened
    if not line_number:
        return await context.memory(lambda memory: _annotate(memory, file))
    commit = await context.memory(lambda memory: _origin_of_line(memory, file, line_number))
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
    """Show the turn that a commit, a note or a file came from. None if a session has shown it already.
    Raises UsageError if it is not known.
    """
    commit = await context.memory(lambda memory: _commit_of(memory, what))
    return await _show_turn(context, commit)


def _commit_of(memory: MemoryAccess, what: str) -> Commit:
    """The commit of that name. If `what` is no commit but a file or a note: the oldest commit of it
    that a session made, else its oldest. Only the last _MAX_SEARCHED commits of it are searched.
    Raises UsageError if there is none.
    """
    try:
        return memory.timeline.find(what).commit
    except UsageError:
        newest_first = memory.timeline.log(_MAX_SEARCHED, what)
        if not newest_first:
            raise
    oldest_first = [entry.commit for entry in reversed(newest_first)]
    for commit in oldest_first:
        if commit.source.session:
            return commit
    return oldest_first[0]


async def why(context: ActionContext, turn: int, session: str) -> Answer | None:
    """Show what memory put into the prompt of a turn: core files and recalled notes. None if a session
    has shown it already.

    Args:
        turn: its number; 0 for the last turn. Only for a turn with a number the user is asked
            whether to go to it.
        session: its id or words of it; empty for this session, or on the command line the latest.
    """
    catalog = context.catalog
    session_id = context.session.id if context.session else ""
    if session or not session_id:
        session_id = (await catalog.find(session or "latest")).id
    try:
        turn_evidence = await catalog.find_turn(session_id, turn)
    except SessionNotFound as error:
        raise UsageError(
            "There is no turn in this session yet.", commands=["memory why --session latest"]
        ) from error

    def read_texts(memory: MemoryAccess) -> tuple[dict[str, str], Mapping[str, str]]:
        """The texts of the core files as the turn began, by name, and of the notes, by id."""
        note_texts = memory.editor.notebook.texts([item.id for item in turn_evidence.recalled])
        return _core_texts(memory.timeline, turn_evidence.began_with), note_texts

    core_texts, note_texts = await context.memory(read_texts)
    from ouro.memory.tokens import estimate

    core_tokens = {name: estimate(text) for name, text in core_texts.items()}
    core_lines = {
        name: [*filter(str.strip, text.splitlines())] for name, text in core_texts.items()
    }
    value = {
        "turn": turn_evidence,
        "core": core_tokens,
        "core_lines": core_lines,
        "notes": note_texts,
    }
    view = _reasons_view(turn_evidence, core_tokens, core_lines, note_texts)
    answer = Answer(value, view)
    return await _offer_to_open(context, turn_evidence, answer) if turn else answer


async def undo(context: ActionContext, words: Sequence[str], hunk: int, yes: bool) -> Answer:
    """Undo a commit of memory, or one hunk of it, after a preview and a question.

    Args:
        words: the commit, and the hunk after the word `hunk`; none for the last commit. The word
            `yes` among them is the flag.
        hunk: the number of the hunk, as `--hunk` passes it; 0 for the whole commit.
        yes: show no preview, and do not ask.
    """
    commit, hunk = _commit_and_hunk(words, hunk)
    plan = await context.memory(lambda memory: memory.timeline.plan_undo(commit, hunk))
    if not plan.edits:
        raise UsageError("Nothing is left to undo: the lines changed since.")
    is_confirmed = yes or "yes" in words
    if not is_confirmed:
        view: View = []
        for scope_plan in (plan, *plan.also):
            view += _plan_view(scope_plan)
        context.show(view)
    # In a session a named commit is undone without a question; the command line needs --yes.
    is_named_in_session = context.session is not None and commit != "last"
    is_sure = is_confirmed or is_named_in_session
    if not await confirm(context, f"Undo {plan.commit.id[:7]}?", "Undo it", assume_yes=is_sure):
        return Answer(value=None, view=[line("Nothing was undone.")], exit_code=1)
    # The preview has shown the change: no event shows it once more.
    return await context.memory(
        lambda memory: _undo_commit(memory, plan.commit.id, hunk), reports=False
    )


def _undo_commit(memory: MemoryAccess, commit_id: str, hunk: int) -> Answer:
    """Undo a commit, or one hunk of it if `hunk` is not 0. The answer names what was undone, the
    command that undoes this again, and the hunks that were left.
    """
    outcome = memory.editor.undo(commit_id, hunk)
    hunk_note = f"hunk {hunk} of " if hunk else ""
    spans = [f"Undone: {hunk_note}{long_term.describe_commits(outcome.commits)}"]
    if outcome.commit:
        spans += [" · ", CommandText(f"memory undo {outcome.commit[:7]}")]
    return Answer(outcome, [line(*spans), *_conflict_lines(outcome.conflicts)])


def _commit_and_hunk(words: Sequence[str], hunk: int) -> tuple[str, int]:
    """The commit and the number of the hunk in words such as `3f2a91c hunk 2`. Without a commit it
    is `last`; without a number it is the given `hunk`. The word `yes`, which the caller reads, is
    left out. Raises UsageError for other words.
    """
    match [word for word in words if word not in ("hunk", "yes")]:
        case []:
            return "last", hunk
        case [commit]:
            return commit, hunk
        case [commit, number] if (written_hunk := whole_number(number)) is not None:
            return commit, written_hunk
    raise UsageError(
        f"`{' '.join(words)}` is not a commit and a hunk.",
        commands=["memory undo 3f2a91c hunk 2"],
    )


async def _search_at(context: ActionContext, date: str, words: str) -> Answer:
    """The texts of memory that had these words on a date. The exit code is 1 without any."""
    hits = await context.memory(lambda memory: memory.timeline.search_at(date, words))
    rows = [(CodeSpan(f"{hit.scope}/{hit.name}"), one_line(hit.text, _MAX_TEXT)) for hit in hits]
    return Answer(hits, table(rows) or [line("No matches.")], 0 if hits else 1)


async def show_at(context: ActionContext, when: Sequence[str]) -> Answer:
    """Show memory as it was on a date. The exit code is 1 if nothing was there.

    Args:
        when: the date, then what to show: nothing for all of memory; a file or note, with or
            without the word `show` before it; or `search` and words.
    """
    date, other_words = _split_date(" ".join(when).split())
    match other_words:
        case ["search", *words]:
            return await _search_at(context, date, " ".join(words))
        case ["show", *words]:
            file = " ".join(words)
        case words:
            file = " ".join(words)
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
    """The date at the beginning, and the other words. A date is one word (`2026-11-21`, `yesterday`),
    or a number with its unit, and `ago` if it follows (`3 days ago`). Raises UsageError without words.
    """
    match words:
        case [number, unit, "ago", *others] if number.isdecimal():
            return f"{number} {unit} ago", others
        case [number, unit, *others] if number.isdecimal():
            return f"{number} {unit}", others
    if not words:
        raise UsageError("Name a date.", commands=["memory at yesterday"])
    return words[0], words[1:]


def _old_files(files: Sequence[long_term.OldFile], *, is_whole: bool) -> View:
    """A view of the old files of one scope, at least one. If all of memory is shown (`is_whole`), the
    notes are a table at the end, a row each; else each file is shown as a whole.
    """
    commit = files[0].commit
    view: View = [Title(f"{files[0].scope}, as of {commit.id[:7]} ({local_time(commit.at)})")]
    note_rows = []
    for file in files:
        if is_whole and file.note_text:
            name = CodeSpan(file.name.removesuffix(".md"))
            note_rows.append((name, one_line(file.note_text, _MAX_TEXT)))
        else:
            view += [line(CodeSpan(file.name)), Quote(file.text, "markdown")]
    return [*view, *table(note_rows)]


async def _show_turn(context: ActionContext, commit: Commit) -> Answer | None:
    """Show the messages of the turn that a commit came from, and in a session offer to open it. None if
    a session has shown all already. Raises UsageError if the commit did not come from a turn.
    """
    source = commit.source
    if not source.session or not source.turn:
        raise UsageError("It did not come from a turn: it was written outside of a session.")
    catalog = context.catalog
    turn_evidence = await catalog.find_turn(source.session, source.turn, source.message)
    title = CodeSpan(turn_evidence.title or turn_evidence.session_id[:8])
    place = f"Turn {turn_evidence.turn} (message {turn_evidence.number}) of "
    view: View = [line(place, title, f", {local_time(turn_evidence.at)}")]
    if turn_evidence.is_left:
        view.append(line("It is on a branch that a rewind left.", level="warning"))
    for role, text in turn_evidence.words:
        speaker = "You" if role == "user" else "ouro"
        view.append(line(f"{speaker}: {one_line(text, _MAX_TEXT)}"))
    view += _resume_hint(turn_evidence)
    return await _offer_to_open(context, turn_evidence, Answer(turn_evidence, view))


async def _offer_to_open(
    context: ActionContext, turn_evidence: TurnEvidence, answer: Answer
) -> Answer | None:
    """In a session, show the answer, let the user go to the turn, and return None. Outside of a
    session, return the answer.
    """
    if context.session is None:
        return answer
    context.show(answer.view)
    session_id, message_number = turn_evidence.session_id, turn_evidence.number
    is_here = session_id == context.session.id
    label = "Go to it in this session" if is_here else "Open that session, read-only"
    question = f"Turn {turn_evidence.turn} of {turn_evidence.title or session_id[:8]}"
    choices = [Choice("no", "Stay here"), Choice("open", label)]
    if await context.choose(question, choices) != "open":
        return None
    if is_here:
        await context.front_end.go_to(message_number)
    else:
        request = OpenRequest(session_id, read_only=True, message=message_number)
        await context.front_end.open(request)
    return None


def _resume_hint(turn_evidence: TurnEvidence) -> View:
    return [line("Open the session:"), Quote(f"  ouro --resume {turn_evidence.session_id}")]


def _core_texts(timeline: Timeline, versions: Mapping[str, str]) -> dict[str, str]:
    """The texts of the core files in the given versions, by name (`user/facts.md`); empty files are
    left out.

    Args:
        versions: the version of each scope. One that is not the id of a commit has no texts.
    """
    texts: dict[str, str] = {}
    for store in timeline.stores:
        version = versions.get(store.scope, "")
        is_commit = len(version) == 40
        if not is_commit or not store.repository.exists:
            continue
        for name in store.core:
            text = store.text_at(version, f"{name}.md")
            if text:
                texts[f"{store.scope}/{name}.md"] = text
    return texts


def _reasons_view(
    turn_evidence: TurnEvidence,
    core_tokens: Mapping[str, int],
    core_lines: Mapping[str, Sequence[str]],
    note_texts: Mapping[str, str],
) -> View:
    """A view of what memory put into a turn: the core files with their lines, changes that were sent,
    and the notes that recall considered, each with the reason.

    Args:
        core_tokens, core_lines: by the name of the core file.
        note_texts: by the id of the note.
    """
    rows: list[tuple[str, ...]] = []
    for name, count in core_tokens.items():
        rows.append(("core", name, f"{count:,} tokens"))
        rows += [("", "", text) for text in core_lines[name]]
    # `told` has the lines of a diff: those that were added (`+`) or removed (`-`) are shown.
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
    way_note = f" ({turn_evidence.way})" if turn_evidence.way else ""
    if turn_evidence.way == "timeout":
        way_note = " (timeout: the search took too long, the message went without notes)"
    sent_notes = [note for note in turn_evidence.recalled if note.state == "loaded"]
    tokens = sum(note.tokens for note in sent_notes)
    recalled = f"{plural(len(sent_notes), 'note')}, {tokens:,} tokens"
    prompt = turn_evidence.words[0][1] if turn_evidence.words else ""
    return [
        Title(f"Turn {turn_evidence.turn}: {one_line(prompt, _MAX_TEXT)}"),
        *table(rows),
        line(f"Recalled for this message{way_note}: {recalled}"),
        *table(note_rows),
        *_resume_hint(turn_evidence),
    ]


def _missing_text(reason: str) -> str:
    """The text to show for a recalled note that is not in the memory here: it was removed since.
    Empty for a note of another project, which the reason of its recall names: it never was in this
    memory.
    """
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
    """The rows as a diff; after `_MAX_DIFF_LINES` only the number of the others is shown."""
    shown = list(rows[:_MAX_DIFF_LINES])
    left_out = len(rows) - len(shown)
    if left_out:
        shown.append(f"… {left_out} more lines")
    return Quote("\n".join(shown), "diff")


def _conflict_lines(hunks: Sequence[DiffHunk]) -> View:
    """A warning that names the hunks which an undo leaves; empty if there are none."""
    if not hunks:
        return []
    names = ", ".join(f"{hunk.number} ({hunk.name})" for hunk in hunks)
    return [line(f"Not undone, because its lines changed since: hunk {names}.", level="warning")]


def writer(commit: Commit) -> str:
    """The word for the author of a commit: `you`, `the agent`, or what its trailers name."""
    return describe_writer(commit.origin)


def describe_writer(origin: str) -> str:
    """The word for an author; `origin` is what the trailers of a commit name."""
    return _WRITER_OF_ORIGIN.get(origin, origin)


def _origin(commit: Commit) -> tuple[str, str]:
    """Two cells about a commit: its time and author, then its session and turn (`3f6c1e0b:4`)."""
    source = commit.source
    turn = f":{source.turn}" if source.turn else ""
    return f"{local_time(commit.at)} {writer(commit)}", f"{source.session[:8]}{turn}"
