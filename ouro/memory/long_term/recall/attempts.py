"""Attempts: what turns changed and ran, and which changes failed and were undone.

A change counts as undone if its file is again as it was before, by git, an edit, `/undo` or any
other means: contents are compared, no wording is. It is a dead end if a command failed before that,
and did not pass again with the change; or if the user says why it was undone. What commands changed
is known from a look at the files after a command that failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.display import CommandOutput, Diff, FileChange
from ouro.memory.long_term.recall.command_ledger import describe_command, is_check
from ouro.memory.message_tree import begins_turn
from ouro.messages import Message, ToolCall, ToolReply
from ouro.utils.late_pattern import late_pattern

if TYPE_CHECKING:
    from ouro.memory.long_term.notes.note import Tried

MAX_TURNS = 10
"""The turns among which an undone change is looked for."""
MAX_MARKS = 48
"""The marks that are kept of a change: those with the lowest hashes are a fair sample of all."""
SIMILAR = 0.5
"""The share of common marks from which on two changes of a file are the same attempt."""
_SHOWN_PARTS = 64_000
"""Larger files are shown by their changed part only (`files_seen`): they are compared in part."""
_STOPPED_BY_USER = (130, 143)
"""Exit codes after an interrupt and after the end of a session: they say nothing."""
_WORD = late_pattern(r"\w+")
_UNDOES = {"checkout", "restore", "revert", "reset", "stash"}
"""The commands of git that restore files."""
_MOVES = {"rm", "mv", "cp", "unlink"}

ReadFile = Callable[[str], str | None]
"""Returns the text of a file as it is now; None: it does not exist, or is no text."""


class EditStep(msgspec.Struct, frozen=True):
    turn: int
    call_id: str
    change: FileChange
    is_by_command: bool = False


class CommandStep(msgspec.Struct, frozen=True):
    turn: int
    call_id: str
    line: str
    code: int | None
    output: str = ""

    @property
    def failed(self) -> bool:
        return self.code not in (0, None, *_STOPPED_BY_USER)


Step = EditStep | CommandStep


class Failure(msgspec.Struct, frozen=True):
    name: str
    """The command without file names and texts, as in the command ledger."""
    code: int
    line: str
    output: str


class DeadEnd(msgspec.Struct, frozen=True):
    """A change that was tried, failed and was undone."""

    turn: int
    """The turn in which it was tried."""
    edits: tuple[EditStep, ...]
    commands: tuple[CommandStep, ...]
    """The commands that were tried, if no file tool made the change."""
    failures: tuple[Failure, ...]
    reason: str = ""
    """Why it was undone, in the words of the user."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.change.path for step in self.edits))


class Undone(msgspec.Struct):
    """Changes after which their files are again as they were before."""

    edits: list[EditStep]
    first: int
    end: int
    """The index of the step before which they were undone."""
    commands: DeadEnd | None = None
    """Set if a command made the change."""

    @property
    def calls(self) -> set[str]:
        steps: Sequence[Step] = self.commands.commands if self.commands else self.edits
        return {step.call_id for step in steps}

    def judge(self, steps: Sequence[Step], reason: str = "") -> DeadEnd | None:
        """The dead end, if a command failed with the change, or the user gives a reason."""
        if self.commands is not None:
            return self.commands
        ran = steps[self.first : _end_of_attempt(self, steps)]
        if self.edits[0].is_by_command:
            return _judge_commands(self._commands_before(steps), _commands_in(ran), reason)
        failures = _failures(ran)
        if not failures and not reason:
            return None
        return DeadEnd(self.edits[0].turn, tuple(self.edits), (), failures, reason)

    def _commands_before(self, steps: Sequence[Step]) -> list[CommandStep]:
        """The commands of the turn that may have made the change; else those that failed with it."""
        turn = self.edits[0].turn
        before = [step for step in _commands_in(steps[: self.first]) if step.turn == turn]
        changers = [step for step in before if may_change(step.line)]
        return changers or _commands_in(steps[self.first : self.end])


# What happened


def steps_of(
    messages: Iterable[Message], last_turn: int, relative: Callable[[str], str] = str
) -> list[Step]:
    """The changes and commands in these messages.

    Args:
        last_turn: the number of their last turn.
        relative: returns a path as in the repository; empty if it is outside.
    """
    listed = list(messages)
    turn = last_turn - sum(map(begins_turn, listed))
    calls: dict[str, ToolCall] = {}
    found: list[Step] = []
    for message in listed:
        turn += begins_turn(message)
        calls.update({call.id: call for call in message.tool_calls})
        for reply in message.parts_of(ToolReply):
            found += _steps_in(reply, calls.get(reply.call_id), turn, relative)
    return [step for step in found if step.turn > last_turn - MAX_TURNS]


def _steps_in(
    reply: ToolReply, call: ToolCall | None, turn: int, relative: Callable[[str], str]
) -> list[Step]:
    """The step of a tool result: the changes of files of the project, or the command that ran; none
    of other tools.
    """
    body = reply.display.body if reply.display else None
    if isinstance(body, Diff) and not reply.failed:
        placed = [replace(change, path=relative(change.path)) for change in body.changes]
        of_project = [change for change in placed if _is_of_project(change)]
        return [EditStep(turn, reply.call_id, change) for change in of_project]
    if isinstance(body, CommandOutput) and call is not None and call.name == "shell":
        return [CommandStep(turn, reply.call_id, body.command, body.exit_code, body.output)]
    return []


def _is_of_project(change: FileChange) -> bool:
    """Whether a change is about a file of the project, and not of its memory."""
    return bool(change.path) and not change.moved_to and not change.path.startswith(".ouro/")


# What was undone


def find_undone(steps: Sequence[Step], read: ReadFile) -> list[Undone]:
    """What was undone among the steps, with the files as they are now. Reads files."""
    by_path: dict[str, list[tuple[int, EditStep]]] = {}
    for index, step in enumerate(steps):
        if isinstance(step, EditStep):
            by_path.setdefault(step.change.path, []).append((index, step))
    found: list[Undone] = []
    for path, edits in by_path.items():
        found += _Versions(edits).find_undone(len(steps), partial(read, path))
    undone = _group(found)
    commands = _undone_command(steps)
    if commands is not None:
        undone.append(Undone([], 0, 0, commands))
    return undone


def dead_end_of_commands(steps: Sequence[Step], reason: str) -> DeadEnd | None:
    """The dead end of a turn whose files were changed by commands alone, and undone by the user."""
    commands = _commands_in(steps)
    return _judge_commands(commands, commands, reason)


def _commands_in(steps: Sequence[Step]) -> list[CommandStep]:
    return [step for step in steps if isinstance(step, CommandStep)]


class _Versions:
    """The contents that one file had, and the edits between them."""

    def __init__(self, edits: Sequence[tuple[int, EditStep]]) -> None:
        self._edits = edits
        self._held: list[tuple[int, EditStep]] = []
        self._known: list[tuple[str | None, int]] = []
        """Each content, and the number of held edits that led to it."""
        self._undone: list[Undone] = []

    def find_undone(self, end: int, read: Callable[[], str | None]) -> list[Undone]:
        """The edits that were undone, with the file as `read` returns it now."""
        for index, step in self._edits:
            self._see(step.change.before, index)
            if step.change.after not in [text for text, _ in self._known]:
                self._held.append((index, step))
            self._see(step.change.after, index)
        if self._held:
            self._see_now(read(), end)
        return self._undone

    def _see(self, text: str | None, index: int) -> None:
        """The file has this content at a step: edits since an equal earlier content are undone."""
        for at in reversed(range(len(self._known))):
            if self._known[at][0] == text:
                self._undo_edits_since(at, index)
                return
        self._known.append((text, len(self._held)))

    def _see_now(self, text: str | None, end: int) -> None:
        """The file has this content now: edits since an equal earlier content are undone."""
        for at in reversed(range(len(self._known))):
            if _is_content(text, self._known[at][0], self._held[-1][1].change):
                self._undo_edits_since(at, end)
                return

    def _undo_edits_since(self, at: int, index: int) -> None:
        """The content number `at` is back before step `index`: the edits after it are undone."""
        count = self._known[at][1]
        dropped = self._held[count:]
        del self._held[count:], self._known[at + 1 :]
        if dropped:
            edits = [step for _, step in dropped]
            self._undone.append(Undone(edits, dropped[0][0], index))


def _is_content(now: str | None, shown: str | None, change: FileChange) -> bool:
    """Whether a file has the content that a change shows; of a long file it shows one part."""
    if now is None or shown is None or len(shown) == len(now):
        return now == shown
    is_part = change.first_line > 1 or len(now) > _SHOWN_PARTS
    if not is_part:
        return False
    start, lines = change.first_line - 1, shown.splitlines(keepends=True)
    return now.splitlines(keepends=True)[start : start + len(lines)] == lines


def _group(undone: Sequence[Undone]) -> list[Undone]:
    """Changes of several files that were undone together, as one."""
    groups: list[Undone] = []
    for item in sorted(undone, key=lambda item: item.first):
        if groups and item.first < groups[-1].end:
            groups[-1].edits += item.edits
            groups[-1].end = max(groups[-1].end, item.end)
        else:
            groups.append(item)
    return groups


# What failed


def _end_of_attempt(undone: Undone, steps: Sequence[Step]) -> int:
    """Where the change was over: at the next edit, or the command that restored the files."""
    edits = {id(step) for step in undone.edits}
    last = max(index for index, step in enumerate(steps) if id(step) in edits)
    paths = [step.change.path for step in undone.edits]
    for index in range(last + 1, undone.end):
        step = steps[index]
        if isinstance(step, EditStep) or _restores(step.line, paths):
            return index
    return undone.end


def _restores(line: str, paths: Sequence[str]) -> bool:
    """Whether a command may restore files: by git, or by moving or removing one of these."""
    from ouro.safety import parse_line

    for command in parse_line(line).commands:
        words = [word.text for word in command.words]
        if command.program == "git" and not _UNDOES.isdisjoint(words):
            return True
        if command.program in _MOVES and not set(paths).isdisjoint(words):
            return True
    return False


def _failures(steps: Sequence[Step]) -> tuple[Failure, ...]:
    """The commands whose last run failed; those that only look at files do not count."""
    last: dict[str, CommandStep] = {}
    for step in steps:
        if isinstance(step, CommandStep) and (name := describe_command(step.line)):
            last[name] = step
    found: list[Failure] = []
    for name, step in last.items():
        if step.failed and step.code is not None:
            found.append(Failure(name, step.code, step.line, step.output))
    return tuple(found)


def _undone_command(steps: Sequence[Step]) -> DeadEnd | None:
    """A file that a command of the last turn changed, as its words show, and git restored by name."""
    turn = steps[-1].turn if steps else 0
    in_turn = [step for step in steps if step.turn == turn]
    commands = _commands_in(in_turn)
    if len(commands) < len(in_turn):
        return None  # a file tool changed something, too
    passed = [index for index, step in enumerate(commands) if step.code == 0]
    for index in passed:
        files = _restored_by_name(commands[index].line)
        changers = [step for step in commands[:index] if _may_change_any(step.line, files)]
        if changers:
            return _judge_commands(changers, commands[:index], "")
    return None


def _judge_commands(
    tried: Sequence[CommandStep], ran: Sequence[CommandStep], reason: str
) -> DeadEnd | None:
    """The dead end of commands that changed files: one that ran then failed, or the user gives a
    reason. None otherwise.
    """
    failures = _failures(ran)
    failed = {failure.line for failure in failures}
    named = [step for step in tried if may_change(step.line)]
    changers = [step for step in named if step.line not in failed] or named
    if not changers or not (failures or reason):
        return None
    return DeadEnd(changers[-1].turn, (), tuple(changers), failures, reason)


def _restored_by_name(line: str) -> set[str]:
    """The files that `git restore FILE` or `git checkout -- FILE` names."""
    from ouro.safety import parse_line

    files: set[str] = set()
    for command in parse_line(line).commands:
        words = [word.text for word in command.words]
        if command.program == "git" and words[1:2] in (["restore"], ["checkout"]):
            files.update(word for word in words[2:] if not word.startswith("-"))
    return files


def _may_change_any(line: str, files: set[str]) -> bool:
    """Whether a command that may change files names one of these."""
    from ouro.safety import parse_line

    named: set[str] = set()
    for command in parse_line(line).commands:
        named.update(word.text for word in command.words)
    return may_change(line) and not named.isdisjoint(files)


def may_change(line: str) -> bool:
    """Whether a command may have changed files, and is none of git."""
    from ouro.safety import parse_line
    from ouro.utils.prohibitions import only_reads

    is_git = any(command.program == "git" for command in parse_line(line).commands)
    return not is_git and not only_reads(line)


def find_checked_turns(messages: Iterable[Message], last_turn: int) -> frozenset[int]:
    """As `checked_turns`, of the turns in these messages; `last_turn` is the number of the last."""
    return checked_turns(steps_of(messages, last_turn))


def checked_turns(steps: Sequence[Step]) -> frozenset[int]:
    """The turns that ended with passing checks: the last run of each check passed."""
    last: dict[tuple[int, str], CommandStep] = {}
    for step in _commands_in(steps):
        name = describe_command(step.line)
        if name and is_check(name):
            last[step.turn, name] = step
    failed = {turn for (turn, _), step in last.items() if step.code != 0}
    return frozenset(turn for turn, _ in last) - failed


# What repeats it


def tried_of(dead_end: DeadEnd) -> tuple[Tried, ...]:
    """What a note keeps of an attempt, to recognize it: no text of the change."""
    from ouro.memory.long_term.notes.note import Tried

    tried: list[Tried] = []
    for path in dead_end.paths:
        changes = [step.change for step in dead_end.edits if step.change.path == path]
        tried.append(Tried(path=path, marks=" ".join(marks_of(changes))))
    failed = {failure.line for failure in dead_end.failures}
    tried += [
        Tried(command=digest(step.line), failed=step.line in failed) for step in dead_end.commands
    ]
    return tuple(tried)


def marks_of(changes: Sequence[FileChange]) -> list[str]:
    """Hashes of the words that changes add and remove; the lowest `MAX_MARKS` of them."""
    added: set[str] = set()
    removed: set[str] = set()
    for change in changes:
        old, new = change.texts()
        for start, end, new_start, new_end in change.line_changes():
            removed.update(_words_of(old[start:end]))
            added.update(_words_of(new[new_start:new_end]))
    words = [f"+{word}" for word in added - removed] + [f"-{word}" for word in removed - added]
    return sorted(map(digest, words or sorted(added)))[:MAX_MARKS]


def repeats(tried: Sequence[Tried], steps: Sequence[Step], new: Sequence[Step]) -> bool:
    """Whether the new ones of the steps of a turn do again what was tried."""
    return any(_repeats_any(one, steps, new) for one in tried)


def _repeats_any(tried: Tried, steps: Sequence[Step], new: Sequence[Step]) -> bool:
    """Whether the new steps do again what was tried."""
    if tried.command:
        return any(_runs_again(tried, step) for step in _commands_in(new))
    changes = _changes_of(tried.path, new)
    if not changes:
        return False
    # A change may be made again in one call, or little by little.
    ways = [marks_of([change]) for change in changes]
    ways.append(marks_of(_changes_of(tried.path, steps)))
    known = tried.marks.split()
    return any(similarity(known, marks) >= SIMILAR for marks in ways)


def _runs_again(tried: Tried, step: CommandStep) -> bool:
    """A command that failed by itself counts as repeated only if it fails again."""
    return tried.command == digest(step.line) and (step.failed or not tried.failed)


def _changes_of(path: str, steps: Sequence[Step]) -> list[FileChange]:
    edits = [step.change for step in steps if isinstance(step, EditStep)]
    return [change for change in edits if change.path == path]


def is_same_attempt(one: Sequence[Tried], other: Sequence[Tried], least: float) -> bool:
    """Whether the same files were changed in the same way, and the same commands tried."""
    marks = {tried.path: tried.marks.split() for tried in other}
    commands = {tried.command for tried in other}
    if {tried.path for tried in one} != marks.keys() or {t.command for t in one} != commands:
        return False
    return all(similarity(tried.marks.split(), marks[tried.path]) >= least for tried in one)


def similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of common marks (Jaccard), from the lowest hashes of both (Broder 1997)."""
    if not one and not other:
        return 1.0
    lowest = sorted({*one, *other})[:MAX_MARKS]
    common = {*one} & {*other}
    return len(common.intersection(lowest)) / len(lowest)


def digest(text: str) -> str:
    """A short hash of a text, without differences of space."""
    return hashlib.sha256(" ".join(text.split()).encode(errors="replace")).hexdigest()[:8]


def _words_of(lines: Sequence[str]) -> list[str]:
    return _WORD.findall("".join(lines))
