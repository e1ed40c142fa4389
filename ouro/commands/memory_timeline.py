"""/memory log, diff, blame, why, undo, as-of: where what is remembered comes from, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import TypeVar

from ouro.commands.command import FrontEnd
from ouro.commands.markdown import block, code, escape
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.session import (
    BlamedLine,
    Browsing,
    Commit,
    DiffHunk,
    LongTermMemoryManager,
    MemoryDiff,
    OldFile,
    OpenRequest,
    Timeline,
    TimelineEntry,
    TurnEvidence,
    UndoPlan,
    named,
)
from ouro.utils.text import one_line, plural

_Told = TypeVar("_Told")
_LOGGED = 30
_SHOWN_LINES = 200
_LONGEST_WORDS = 400
LEFT = "This was said on a branch that was left by going back."


async def log(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """The latest commits of memory, or of one file or note."""
    entries = await _ask(known, lambda timeline: timeline.log(_LOGGED, rest))
    if not entries:
        raise UsageError(f"Nothing was ever remembered{f' in {rest}' if rest else ' yet'}.")
    front_end.show("\n".join(["**What memory learned**, newest first\n", *map(log_line, entries)]))


async def diff(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """What a commit changed; what differs between two, since a date, or since the session began."""
    found = await _ask(known, lambda timeline: differences(timeline, rest, known.receipt().versions))
    if not found:
        raise UsageError("Nothing of memory has changed.", "`/memory diff COMMIT` shows an earlier change.")
    front_end.show("\n\n".join(map(difference_markdown, found)))


async def blame(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """Each line of a file with the commit, session and turn that it is from; one line of it can be opened."""
    file, _, line = rest.partition(" ")
    if not file:
        raise UsageError("Say which file: `/memory blame facts`, and a line number to open what taught it.")
    found = await _ask(known, lambda timeline: timeline.blame(file))
    if line.strip():
        opened = _line(found.lines, line.strip())
        await show_turn(front_end, *turn_of(await _ask(known, lambda timeline: timeline.taught(file, opened))))
        return
    lines = [f"{each.number:>4}  {each.commit.id[:7]}  {whence(each.commit)}  {each.text}" for each in found.lines]
    front_end.show(
        f"**{escape(f'{found.scope}/{found.name}')}**\n\n{block(chr(10).join(lines))}\n\n"
        f"`/memory blame {file} LINE` shows the words that taught a line."
    )


async def evidence(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """The words of the session turn that taught a note, or a commit."""
    if not rest:
        raise UsageError("Say which note or commit: `/memory evidence mem_…`.")
    entries = await _ask(known, lambda timeline: taught_by(timeline, rest))
    await show_turn(front_end, *entries)


async def why(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """What in the prompt of the last turn, or of that one, came from memory."""
    if rest and not rest.isdigit():
        raise UsageError("Say the number of a turn: `/memory why 3`; without one it is the last.")
    session = front_end.session
    said = await asyncio.to_thread(session.session_catalog.turn, session.id, int(rest or 0))
    texts = await asyncio.to_thread(known.timeline().texts_of, [each.id for each in said.recalled])
    receipt = known.receipt()
    loaded = [line for line in receipt.lines if line.state == "loaded"]
    parts = [
        f"**Turn {said.turn}**: {escape(one_line(said.words[0][1], _LONGEST_WORDS))}\n",
        f"- at the start of the session: {plural(len(loaded), 'entry', 'entries')} "
        f"of the core, {receipt.tokens:,} tokens (`/memory receipt` lists them)",
        *(f"- told with this message, as memory had changed: {code(line)}" for line in said.told if line[:1] in "+-"),
        *_recalled(said, texts),
    ]
    front_end.show("\n".join(parts))
    if rest:
        await _offer_to_go(front_end, said)


async def undo(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """Take back a commit with all of its turn, or one hunk of it; the latest, once its preview was agreed to."""
    commit, hunk, is_named = undo_words(rest)
    if not is_named:
        planned = await _ask(known, lambda timeline: timeline.plan_undo(commit, hunk))
        if not planned.edits:
            raise UsageError("Nothing of that is left to take back: its lines have changed since.")
        commit = planned.commit.id  # what was agreed to, whatever is committed meanwhile
        front_end.show(undo_markdown(planned))
        choices = [Choice("yes", "Take it back"), Choice("no", "Leave it as it is")]
        if await front_end.choose(f"Take back {planned.commit.id[:7]}?", choices) != "yes":
            front_end.say("Nothing was taken back.")
            return
    done = await Browsing(front_end.session.memory, front_end.session.session_catalog).take_back(commit, hunk)
    front_end.say(f"Taken back{f' hunk {hunk} of' if hunk else ''}: {named(done.commits)}.")
    if done.conflicts:
        front_end.say(_conflicts(done.conflicts), "warning")


async def as_of(front_end: FrontEnd, known: LongTermMemoryManager, rest: str) -> None:
    """Memory as it was on a date; one file, or all of the core with the names of the notes."""
    date, file = date_and_file(rest)
    found = await _ask(known, lambda timeline: timeline.as_of(date, file))
    if not found:
        raise UsageError(f"There was no {file or 'memory'} yet on {date}.")
    front_end.show(as_of_markdown(found, whole=bool(file)))


def log_line(entry: TimelineEntry) -> str:
    """A commit, in one line of Markdown."""
    commit = entry.commit
    return f"- {code(commit.id[:7])} {entry.scope} · {escape(whence(commit).strip())} · {escape(commit.subject)}"


def whence(commit: Commit) -> str:
    """When, by whom, and in which session and turn, in columns."""
    session, turn = commit.trailers.get("Ouro-Session", ""), commit.trailers.get("Ouro-Turn", "")
    taught = f"{session[:8]}{f':{turn}' if turn else ''}"
    return f"{commit.at[:16].replace('T', ' ')}  {WRITERS.get(commit.origin, commit.origin):<10}  {taught:<12}"


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
"""Who wrote it, in the reader's words, by the origin of a commit."""


def differences(timeline: Timeline, rest: str, began: Mapping[str, str]) -> Sequence[MemoryDiff]:
    """What `/memory diff …` asks for: of one commit, between two, `since DATE`, since the session began. Blocks."""
    words = rest.split()
    if words[:1] == ["since"]:
        return timeline.since(" ".join(words[1:]))
    if len(words) > 2:
        raise UsageError("`/memory diff` takes no more than two commits, or `since DATE`.")
    if len(words) == 2:
        return [timeline.between(*words)]
    return [timeline.changes(words[0])] if words else timeline.since_commits(began)


def difference_markdown(found: MemoryDiff) -> str:
    """A difference, hunk by hunk with their numbers."""
    between = f"{found.before[:7] or 'nothing'} → {found.after[:7]}"
    return f"**{found.scope} · {between}**\n\n{block(chr(10).join(hunk_lines(found.hunks)), 'diff')}"


def hunk_lines(hunks: Sequence[DiffHunk]) -> list[str]:
    """As a diff is written, each hunk under its file and number."""
    lines = [
        line
        for hunk in hunks
        for line in (
            f"@@ {hunk.number} · {hunk.name} · line {hunk.start + 1} @@",
            *(f"-{each.rstrip(chr(10))}" for each in hunk.before),
            *(f"+{each.rstrip(chr(10))}" for each in hunk.after),
        )
    ]
    more = len(lines) - _SHOWN_LINES
    return [*lines[:_SHOWN_LINES], f"… {more} more lines"] if more > 0 else lines


def undo_words(rest: str) -> tuple[str, int, bool]:
    """Commit, number of the hunk (0: all), and whether it was named or agreed to: then nothing is asked.

    Raises:
        UsageError: it is said otherwise.
    """
    words = [word for word in rest.split() if word not in ("hunk", "yes")]
    numbers = [word for word in words[1:] if word.isdigit()]
    if len(words) > 2 or len(numbers) != len(words[1:]):
        raise UsageError("Say `/memory undo COMMIT`, or `/memory undo COMMIT hunk 2`.")
    commit = words[0] if words else "last"
    return commit, int(numbers[0]) if numbers else 0, commit != "last" or "yes" in rest.split()


def undo_markdown(planned: UndoPlan) -> str:
    """What taking it back would do, in each scope."""
    lines = [f"**Taking back** {code(planned.commit.id[:7])} ({planned.scope}), {escape(named(planned.commits))}\n"]
    shown = [line for edit in planned.edits for line in edit_lines(edit.name, edit.before or "", edit.after or "")]
    lines.append(block("\n".join(shown[:_SHOWN_LINES]), "diff"))
    if planned.conflicts:
        lines.append(f"\n{escape(_conflicts(planned.conflicts))}")
    return "\n".join([*lines, *(f"\n{undo_markdown(each)}" for each in planned.also)])


def date_and_file(rest: str) -> tuple[str, str]:
    """`2026-11-21 facts` or `3 days ago facts` taken apart.

    Raises:
        UsageError: no date is said.
    """
    words = rest.split()
    if not words:
        raise UsageError("Say a date: `/memory as-of 2026-11-21`, or `/memory as-of 3 days ago facts`.")
    is_long = words[0].isdigit() and len(words) > 1
    size = (3 if words[2:3] == ["ago"] else 2) if is_long else 1
    return " ".join(words[:size]), " ".join(words[size:])


def as_of_markdown(found: Sequence[OldFile], *, whole: bool) -> str:
    """Files as they were; of notes, their names alone unless one was asked for."""
    parts: list[str] = []
    for scope in dict.fromkeys(each.scope for each in found):
        files = [each for each in found if each.scope == scope]
        commit = files[0].commit
        parts.append(f"**{scope}**, as of {code(commit.id[:7])} ({escape(commit.at[:16].replace('T', ' '))})")
        shown = [each for each in files if whole or not each.name.rpartition("/")[2].startswith("mem_")]
        parts += [f"{code(each.name)}\n\n{block(each.text, 'markdown')}" for each in shown]
        if len(shown) < len(files):
            parts.append(f"and {len(files) - len(shown)} notes: {escape(', '.join(_names(files)[:20]))}")
    return "\n\n".join(parts)


async def show_turn(front_end: FrontEnd, session_id: str, turn: int, message: int = 0) -> None:
    """Show the words of a turn, and offer to go there: its session is opened to be looked at."""
    if not session_id or not turn:
        raise UsageError("No session taught it: it was written outside of a turn.")
    said = await asyncio.to_thread(front_end.session.session_catalog.turn, session_id, turn, message)
    front_end.show(turn_markdown(said))
    await _offer_to_go(front_end, said)


async def _offer_to_go(front_end: FrontEnd, said: TurnEvidence) -> None:
    is_here = said.session_id == front_end.session.id
    way = "Go to it in this conversation" if is_here else "Open that session there, to look only"
    choices = [Choice("no", "Stay here"), Choice("look", way)]
    if await front_end.choose(f"Turn {said.turn} of {said.title or said.session_id[:8]}", choices) != "look":
        return
    if is_here:
        await front_end.go_to(said.number)
    else:
        await front_end.open(OpenRequest(said.session_id, read_only=True, message=said.number))


def turn_markdown(said: TurnEvidence) -> str:
    """The words of a turn."""
    words = [
        f"**{'You' if who == 'user' else 'ouro'}**: {escape(one_line(text, _LONGEST_WORDS))}"
        for who, text in said.words
    ]
    at = said.at[:16].replace("T", " ")
    head = f"Turn {said.turn} (message {said.number}) of {code(said.title or said.session_id[:8])}, {at}"
    left = [LEFT] if said.is_left else []
    look = f"`ouro --resume {said.session_id[:8]}` opens it."
    return "\n\n".join([head, *left, *words, look])


def taught_by(timeline: Timeline, named: str) -> tuple[str, int, int]:
    """Session, turn and message of the commit that is named, or of the one that made that file or note. Blocks.

    Raises:
        UsageError: there is neither.
    """
    try:
        commit = timeline.find(named).commit
    except UsageError:
        entries = timeline.log(_SHOWN_LINES, named)
        taught = [each.commit for each in reversed(entries) if each.commit.trailers.get("Ouro-Session")]
        if not taught:
            raise
        commit = taught[0]
    return turn_of(commit)


def turn_of(commit: Commit) -> tuple[str, int, int]:
    """The session, turn and message that a commit says it is from; empty and 0 where it says nothing."""
    turn, message = (commit.trailers.get(name, "") for name in ("Ouro-Turn", "Ouro-Message"))
    numbers = (int(each) if each.isdigit() else 0 for each in (turn, message))
    return commit.trailers.get("Ouro-Session", ""), next(numbers), next(numbers)


def _line(lines: Sequence[BlamedLine], number: str) -> BlamedLine:
    found = next((each for each in lines if str(each.number) == number), None)
    if found is None:
        raise UsageError(f"There is no line {number}: the file has {len(lines)}.")
    return found


def _recalled(said: TurnEvidence, texts: Mapping[str, str]) -> Iterator[str]:
    if not said.recalled:
        yield "- recalled for this message: no notes"
        return
    loaded = [each for each in said.recalled if each.state == "loaded"]
    tokens = sum(each.tokens for each in loaded)
    yield f"- recalled for this message ({said.way}): {len(loaded)} notes, {tokens:,} tokens"
    for each in said.recalled:
        text = escape(one_line(texts.get(each.id, ""), _LONGEST_WORDS))
        yield f"    - {each.state} · {each.tokens} tokens · {text} ({code(each.id[:12])}: {escape(each.reason)})"


def edit_lines(name: str, before: str, after: str) -> Iterator[str]:
    """What becomes of a file, as a diff without surroundings."""
    yield f"{name}:"
    for line in list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]:
        if not line.startswith("@@"):
            yield line


def _conflicts(conflicts: Sequence[DiffHunk]) -> str:
    named = ", ".join(f"{each.number} ({each.name})" for each in conflicts)
    return f"Left as it is, because its lines have changed since: hunk {named}."


def _names(files: Sequence[OldFile]) -> list[str]:
    return [each.name for each in files if each.name.rpartition("/")[2].startswith("mem_")]


async def _ask(known: LongTermMemoryManager, question: Callable[[Timeline], _Told]) -> _Told:
    return await asyncio.to_thread(lambda: question(known.timeline()))


COMMANDS: Mapping[str, Callable[[FrontEnd, LongTermMemoryManager, str], Awaitable[None]]] = {
    "log": log,
    "diff": diff,
    "blame": blame,
    "why": why,
    "evidence": evidence,
    "undo": undo,
    "as-of": as_of,
}
"""What `/memory` knows of the history."""
