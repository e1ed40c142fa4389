"""The history of memory: log, diff, blame, evidence, why, undo, as-of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ouro.commands import memory_views as views
from ouro.commands.action import ActionContext, Answer, MemoryAccess, confirm
from ouro.commands.render import line
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.memory.long_term import Commit, MemoryDiff, Timeline, TurnEvidence

_MAX_SEARCHED = 200


async def log(context: ActionContext, file: str, limit: int) -> Answer:
    """The latest commits of memory, or of one file or note."""
    found = await context.memory(lambda memory: memory.timeline.log(limit if limit > 0 else 1, file))
    empty = line(f"There are no commits{f' of {file}' if file else ''} yet.", level="error")
    return Answer(found, views.commits(found) or [empty], 0 if found else 1)


async def diff(context: ActionContext, commits: Sequence[str], since: str) -> Answer:
    """What a commit changed, or what differs between two, or since a date or the start of the session."""
    if commits[:1] == ["since"]:
        commits, since = [], " ".join(commits[1:])
    if len(commits) > 2:
        raise UsageError(f"{plural(len(commits), 'commit')} are too many.", "Name one or two.", ["memory diff 3f2a91c"])

    def work(memory: MemoryAccess) -> Sequence[MemoryDiff]:
        if since:
            return memory.timeline.since(since)
        if len(commits) == 2:
            return [memory.timeline.between(*commits)]
        if not commits and memory.began_with:
            return memory.timeline.since_commits(memory.began_with)
        return [memory.timeline.changes(commits[0] if commits else "last")]

    found = await context.memory(work)
    none = [line("Memory has not changed.")]
    return Answer(found, [item for part in found for item in views.difference(part)] or none)


async def blame(context: ActionContext, file: str, number: int) -> Answer | None:
    """Each line of a file with its commit, session and turn; with a line number the turn that taught it."""

    def work(memory: MemoryAccess) -> Answer | Commit:
        found = memory.timeline.blame(file)
        if not number:
            return Answer(found, views.blame(found, file))
        if not 0 < number <= len(found.lines):
            raise UsageError(f"There is no line {number}: {found.name} has {plural(len(found.lines), 'line')}.")
        return memory.timeline.origin_of(file, found.lines[number - 1])

    result = await context.memory(work)
    return result if isinstance(result, Answer) else await _show_turn(context, *turn_of(result))


async def evidence(context: ActionContext, what: str) -> Answer | None:
    """The turn that taught a note or made a commit."""
    taught = await context.memory(lambda memory: taught_by(memory.timeline, what))
    return await _show_turn(context, *taught)


async def why(context: ActionContext, turn: int, session: str) -> Answer | None:
    """What memory put into the prompt of a turn (the last one)."""
    catalog = await context.catalog()
    session_id = context.session.id if context.session and not session else (await catalog.find(session or "latest")).id
    said = await catalog.turn(session_id, turn)

    def work(memory: MemoryAccess) -> tuple[dict[str, int], dict[str, str]]:
        texts = memory.timeline.texts_of([item.id for item in said.recalled])
        return _core_tokens(memory.timeline, said.began_with), texts

    core, texts = await context.memory(work)
    value = {"turn": said, "core": core, "notes": texts}
    answer = Answer(value, views.reasons(said, core, texts))
    return await _offer_to_open(context, said, answer) if turn else answer


async def undo(context: ActionContext, words: Sequence[str], hunk: int, yes: bool) -> Answer:
    """Undo a commit with all of its turn, or one hunk of it."""
    commit, hunk, yes = _undo_words(words, hunk, yes)
    planned = await context.memory(lambda memory: memory.timeline.plan_undo(commit, hunk))
    if not planned.edits:
        raise UsageError("Nothing is left to undo: the lines changed since.")
    # A session undoes a named commit at once; the command line needs --yes.
    is_sure = yes or (context.session is not None and commit != "last")
    if not is_sure:
        context.show(views.undo_plan(planned))
    if not await confirm(context, f"Undo {planned.commit.id[:7]}?", "Undo it", assume_yes=is_sure):
        return Answer(None, [line("Nothing was undone.")], 1)

    def work(memory: MemoryAccess) -> Answer:
        from ouro.memory.long_term import undo_commit as undo_in

        done, events = undo_in(memory.editor.scopes, planned.commit.id, memory.editor.moment, hunk)
        memory.editor.events += events
        what = f"Undone{f': hunk {hunk} of' if hunk else ':'} {views.commits_text(done.commits)}"
        return Answer(done, [line(what), *views.conflicts(done.conflicts), *views.undo_hint(context, done.commit)])

    return await context.memory(work)


async def as_of(context: ActionContext, when: Sequence[str]) -> Answer:
    """Memory as it was on a date."""
    date, file = date_and_file(" ".join(when))
    found = await context.memory(lambda memory: memory.timeline.as_of(date, file))
    if not found:
        return Answer(found, [line(f"There was no {file or 'memory'} yet on {date}.", level="error")], 1)
    return Answer(found, views.old_files(found, is_whole=bool(file)))


def date_and_file(text: str) -> tuple[str, str]:
    """`2026-11-21 facts` or `3 days ago facts` as a date and a file; the file may be missing."""
    words = text.split()
    is_long = words[0].isdigit() and len(words) > 1
    size = (3 if words[2:3] == ["ago"] else 2) if is_long else 1
    return " ".join(words[:size]), " ".join(words[size:])


def taught_by(timeline: Timeline, named: str) -> tuple[str, int, int]:
    """Session, turn and message of a commit, or of the commit that made a file or note. Blocks.

    Raises:
        UsageError: there is no such commit, file or note.
    """
    try:
        commit = timeline.find(named).commit
    except UsageError:
        found = [entry.commit for entry in reversed(timeline.log(_MAX_SEARCHED, named))]
        taught = [commit for commit in found if commit.trailers.get("Ouro-Session")]
        if not taught:
            raise
        commit = taught[0]
    return turn_of(commit)


def turn_of(commit: Commit) -> tuple[str, int, int]:
    """The session, turn and message in the trailers of a commit; empty and 0 where it has none."""
    turn, message = (commit.trailers.get(name, "") for name in ("Ouro-Turn", "Ouro-Message"))
    numbers = [int(text) if text.isdigit() else 0 for text in (turn, message)]
    return commit.trailers.get("Ouro-Session", ""), numbers[0], numbers[1]


def _undo_words(words: Sequence[str], hunk: int, yes: bool) -> tuple[str, int, bool]:
    """`3f2a91c hunk 2 yes`: commit, number of the hunk (0: all), and whether it is confirmed."""
    rest = [word for word in words if word not in ("hunk", "yes")]
    if len(rest) > 2 or not all(word.isdigit() for word in rest[1:]):
        raise UsageError(f"`{' '.join(words)}` is not a commit and a hunk.", commands=["memory undo 3f2a91c hunk 2"])
    return rest[0] if rest else "last", int(rest[1]) if rest[1:] else hunk, yes or "yes" in words


async def _show_turn(context: ActionContext, session_id: str, turn: int, message: int) -> Answer | None:
    if not session_id or not turn:
        raise UsageError("No turn taught it: it was written outside of a session.")
    catalog = await context.catalog()
    said = await catalog.turn(session_id, turn, message)
    return await _offer_to_open(context, said, Answer(said, views.turn(said)))


async def _offer_to_open(context: ActionContext, said: TurnEvidence, answer: Answer) -> Answer | None:
    """In a session: show the answer, then offer to go to the turn."""
    if context.session is None:
        return answer
    context.show(answer.view)
    is_here = said.session_id == context.session.id
    label = "Go to it in this session" if is_here else "Open that session, read-only"
    choices = [Choice("no", "Stay here"), Choice("open", label)]
    if await context.choose(f"Turn {said.turn} of {said.title or said.session_id[:8]}", choices) == "open":
        await context.open_turn(said.session_id, said.number)
    return None


def _core_tokens(timeline: Timeline, versions: Mapping[str, str]) -> dict[str, int]:
    """The core files as a session began with them, with their tokens; a version without a commit is left out."""
    from ouro.memory.tokens import estimate

    found: dict[str, int] = {}
    for store in timeline.stores:
        commit = versions.get(store.scope, "")
        if len(commit) != 40 or not store.repository.exists:
            continue
        for name in store.core:
            if text := store.text_at(commit, f"{name}.md"):
                found[f"{store.scope}/{name}.md"] = estimate(text)
    return found
