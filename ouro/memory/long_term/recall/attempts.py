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
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.display import CommandOutput, Diff, FileChange
from ouro.memory.message_tree import begins_turn
from ouro.messages import Message, ToolCall, ToolReply
from ouro.utils.late_pattern import late_pattern

if TYPE_CHECKING:
    from ouro.memory.long_term.notes.note import Tried

MAX_TURNS = 10
"""The turns among which an undone change is looked for."""
MAX_MARKS = 48
"""The marks that are kept of a change: those with the lowest hashes are a fair sample of all."""
MIN_SIMILARITY = 0.5
"""The share of common marks from which on two changes of a file are the same attempt."""
_MAX_WHOLE_TEXT = 64_000
"""Larger files are shown by their changed part only (`files_seen`): they are compared in part."""
_CODES_AFTER_INTERRUPT = (130, 143)
"""Exit codes after an interrupt and after the end of a session: they say nothing."""
_WORD = late_pattern(r"\w+")
_GIT_COMMANDS_THAT_RESTORE = {"checkout", "restore", "revert", "reset", "stash"}
"""The commands of git that restore files."""
_PROGRAMS_THAT_MOVE = {"rm", "mv", "cp", "unlink"}

ReadFile = Callable[[str], str | None]
"""Returns the text of a file as it is now; None: it does not exist, or is no text."""


class EditStep(msgspec.Struct, frozen=True):
    """A change of one file."""

    turn: int
    call_id: str
    change: FileChange
    is_by_command: bool = False
    """Whether a command made it, and no file tool. `call_id` is then the command at which it was
    seen.
    """


class CommandStep(msgspec.Struct, frozen=True):
    """A command that ran, with its exit code; None if it has none."""

    turn: int
    call_id: str
    line: str
    code: int | None
    output: str = ""

    @property
    def failed(self) -> bool:
        """Whether it ended with an error, and was not interrupted."""
        return self.code not in (0, None, *_CODES_AFTER_INTERRUPT)


Step = EditStep | CommandStep


class Failure(msgspec.Struct, frozen=True):
    """A command that failed."""

    name: str
    """The command without file names and texts, as in the command ledger."""
    code: int
    line: str
    output: str


class DeadEnd(msgspec.Struct, frozen=True):
    """A change that was tried, failed and was undone."""

    turn: int
    """The turn in which it was tried."""
    edits: tuple[EditStep, ...] = ()
    commands: tuple[CommandStep, ...] = ()
    """The commands that were tried, if no file tool made the change."""
    failures: tuple[Failure, ...] = ()
    reason: str = ""
    """Why it was undone, in the words of the user."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.change.path for step in self.edits))


class Undone(msgspec.Struct):
    """Changes after which their files are again as they were before."""

    edits: list[EditStep] = []
    first_step: int = 0
    """The index of the first of these edits among the steps."""
    end_step: int = 0
    """The index of the step before which they were undone."""
    command_dead_end: DeadEnd | None = None
    """Set if commands made the change and no edit was seen; the other fields are then empty."""

    @property
    def call_ids(self) -> set[str]:
        """The ids of the tool calls that made the changes."""
        if self.command_dead_end:
            return {step.call_id for step in self.command_dead_end.commands}
        return {step.call_id for step in self.edits}

    def judge(self, steps: Sequence[Step], reason: str = "") -> DeadEnd | None:
        """The dead end that these changes were: a command failed while they were in force, or the
        user gave a `reason` for the undo. None if there was neither a failure nor a reason.
        """
        if self.command_dead_end is not None:
            return self.command_dead_end  # it was judged when it was found
        steps_with_change = steps[self.first_step : _end_of_attempt(self, steps)]
        if self.edits[0].is_by_command:
            return _judge_commands(
                self._possible_causes(steps), _commands_in(steps_with_change), reason
            )
        failures = _find_failures(steps_with_change)
        if not failures and not reason:
            return None
        return DeadEnd(
            self.edits[0].turn, edits=tuple(self.edits), failures=failures, reason=reason
        )

    def _possible_causes(self, steps: Sequence[Step]) -> list[CommandStep]:
        """The commands that may have made the change. They are those of its turn before it was
        seen. If none of these changes files, they are the commands from then on until the undo: a
        change is placed before the first command that failed, which may itself have made it.
        """
        turn = self.edits[0].turn
        earlier_commands = _commands_in(steps[: self.first_step])
        changers = [
            step for step in earlier_commands if step.turn == turn and may_change_files(step.line)
        ]
        return changers or _commands_in(steps[self.first_step : self.end_step])


# What happened


def steps_of(
    messages: Iterable[Message], last_turn: int, relative: Callable[[str], str] = str
) -> list[Step]:
    """The changes and commands in these messages, oldest first; only those of the last `MAX_TURNS`
    turns.

    Args:
        messages: oldest first.
        last_turn: the number of the turn in which the last message is.
        relative: returns the path of a file in the repository; empty if it is outside.
    """
    message_list = list(messages)
    begun_turns = len([message for message in message_list if begins_turn(message)])
    turn = last_turn - begun_turns
    calls: dict[str, ToolCall] = {}
    steps: list[Step] = []
    for message in message_list:
        if begins_turn(message):
            turn += 1
        calls.update({call.id: call for call in message.tool_calls})
        for reply in message.parts_of(ToolReply):
            steps += _read_steps(reply, calls.get(reply.call_id), turn, relative)
    return [step for step in steps if step.turn > last_turn - MAX_TURNS]


def _read_steps(
    reply: ToolReply, call: ToolCall | None, turn: int, relative: Callable[[str], str]
) -> list[Step]:
    """The steps that a tool result shows: the changes of files of the project, or the command that
    ran. Empty for other tools, and for a change that failed.
    """
    body = reply.display.body if reply.display else None
    if isinstance(body, Diff) and not reply.failed:
        changes = [replace(change, path=relative(change.path)) for change in body.changes]
        project_changes = [change for change in changes if _is_of_project(change)]
        return [EditStep(turn, reply.call_id, change) for change in project_changes]
    if isinstance(body, CommandOutput) and call is not None and call.name == "shell":
        return [CommandStep(turn, reply.call_id, body.command, body.exit_code, body.output)]
    return []


def _is_of_project(change: FileChange) -> bool:
    """Whether a change is about a file of the project: not outside of it, and not of its memory. A
    file that was moved does not count.
    """
    return bool(change.path) and not change.moved_to and not change.path.startswith(".ouro/")


# What was undone


def find_undone(steps: Sequence[Step], read: ReadFile) -> list[Undone]:
    """The changes among the steps that were undone: their file has an earlier content again, after
    a later step or now, as `read` returns it. What commands changed and git restored comes last.
    """
    edits_by_path: dict[str, list[tuple[int, EditStep]]] = {}
    for index, step in enumerate(steps):
        if isinstance(step, EditStep):
            edits_by_path.setdefault(step.change.path, []).append((index, step))
    undone_by_file: list[Undone] = []
    for path, edits in edits_by_path.items():
        undone_by_file += _FileVersions(edits).find_undone(len(steps), partial(read, path))
    undone = _merge_overlapping(undone_by_file)
    commands = _find_undone_commands(steps)
    if commands is not None:
        undone.append(Undone(command_dead_end=commands))
    return undone


def dead_end_of_commands(steps: Sequence[Step], reason: str) -> DeadEnd | None:
    """The dead end of a turn in which only commands changed files, and the user undid that. None if
    no command may have changed files, or if no command failed and the user gave no reason.
    `reason`: why the user undid it; empty if nothing was said.
    """
    commands = _commands_in(steps)
    return _judge_commands(tried=commands, ran=commands, reason=reason)


def _commands_in(steps: Sequence[Step]) -> list[CommandStep]:
    return [step for step in steps if isinstance(step, CommandStep)]


class _SeenContent(NamedTuple):
    """A content that a file had."""

    text: str | None
    """None: the file did not exist."""
    edit_count: int
    """The number of edits in force that led to it."""


class _FileVersions:
    """The contents that one file had, and the edits between them. An edit is in force until the
    file has a content again that it had before the edit.
    """

    def __init__(self, edits: Sequence[tuple[int, EditStep]]) -> None:
        self._edits = edits
        self._edits_in_force: list[tuple[int, EditStep]] = []
        """The edits in force, each with the index of its step."""
        self._seen_contents: list[_SeenContent] = []
        """The different contents that the file has had, oldest first."""
        self._undone: list[Undone] = []
        """The groups of edits that were undone."""

    def find_undone(self, end: int, read: Callable[[], str | None]) -> list[Undone]:
        """Find the edits that were undone by a later edit, or until now, when `read` returns what
        the file contains. `end` is the number of all steps.
        """
        for index, step in self._edits:
            self._record_content(step.change.before, index)
            seen_texts = [content.text for content in self._seen_contents]
            # An edit to a content that was seen undoes others, and cannot be undone itself.
            if step.change.after not in seen_texts:
                self._edits_in_force.append((index, step))
            self._record_content(step.change.after, index)
        if self._edits_in_force:
            self._compare_with_now(read(), end)
        return self._undone

    def _record_content(self, text: str | None, index: int) -> None:
        """Record that the file has this content at the step `index`. If it had the same content
        before, the edits since the last such time are undone.
        """
        for number in reversed(range(len(self._seen_contents))):
            if self._seen_contents[number].text == text:
                self._record_undone(number, index)
                return
        self._seen_contents.append(_SeenContent(text, len(self._edits_in_force)))

    def _compare_with_now(self, text: str | None, end: int) -> None:
        """Compare the present `text` of the file, after all steps, with the contents that it had,
        the newest first. The edits after the first equal one are undone.
        """
        _, last_edit = self._edits_in_force[-1]
        for number in reversed(range(len(self._seen_contents))):
            if _has_content_again(text, self._seen_contents[number].text, last_edit.change):
                self._record_undone(number, end)
                return

    def _record_undone(self, content_number: int, end: int) -> None:
        """Record the edits after a content as undone: the file has this content again before the
        step `end`. Forget these edits and the contents after it.
        """
        count = self._seen_contents[content_number].edit_count
        undone_edits = self._edits_in_force[count:]
        del self._edits_in_force[count:], self._seen_contents[content_number + 1 :]
        if undone_edits:
            first_index, _ = undone_edits[0]
            edits = [step for _, step in undone_edits]
            self._undone.append(Undone(edits, first_index, end))


def _has_content_again(present: str | None, content: str | None, change: FileChange) -> bool:
    """Whether a file with the text `present` has the `content` of a change again; None stands for
    no file. `content` is the whole text, or of a long file only the part from `change.first_line`
    on: then only this part is compared.
    """
    if present is None or content is None:
        return present == content
    if len(content) == len(present):  # both are the whole text
        return present == content
    is_part = change.first_line > 1 or len(present) > _MAX_WHOLE_TEXT
    if not is_part:
        return False
    start = change.first_line - 1
    lines = content.splitlines(keepends=True)
    present_lines = present.splitlines(keepends=True)
    return present_lines[start : start + len(lines)] == lines


def _merge_overlapping(undone: Sequence[Undone]) -> list[Undone]:
    """Join undone changes of several files into one group if one began before the other was undone,
    so that they are judged together. Returns the groups in the order of their first steps. The
    first change of a group is changed itself.
    """
    groups: list[Undone] = []
    for change in sorted(undone, key=lambda change: change.first_step):
        if groups and change.first_step < groups[-1].end_step:
            groups[-1].edits += change.edits
            groups[-1].end_step = max(groups[-1].end_step, change.end_step)
        else:
            groups.append(change)
    return groups


# What failed


def _end_of_attempt(undone: Undone, steps: Sequence[Step]) -> int:
    """The index of the step with which the attempt ends: the first step after these edits that is
    another edit, or a command that may have restored their files; `undone.end_step` if there is none.
    Failures from there on are not due to the edits.
    """
    # By identity: the same edit may have been made, and undone, before.
    edit_ids = {id(step) for step in undone.edits}
    last_edit = max(index for index, step in enumerate(steps) if id(step) in edit_ids)
    paths = [step.change.path for step in undone.edits]
    for index in range(last_edit + 1, undone.end_step):
        step = steps[index]
        if isinstance(step, EditStep) or _restores(step.line, paths):
            return index
    return undone.end_step


def _restores(line: str, paths: Sequence[str]) -> bool:
    """Whether a shell line may restore files: by git, or by moving, copying or removing one of
    `paths`.
    """
    from ouro.safety import parse_line

    for command in parse_line(line).commands:
        words = [word.text for word in command.words]
        if command.program == "git" and not _GIT_COMMANDS_THAT_RESTORE.isdisjoint(words):
            return True
        if command.program in _PROGRAMS_THAT_MOVE and not set(paths).isdisjoint(words):
            return True
    return False


def _find_failures(steps: Sequence[Step]) -> tuple[Failure, ...]:
    """The commands that failed in their last run among the steps. Only commands that
    `describe_command` names count: not, for example, one that only looks at files.
    """
    from ouro.memory.long_term.recall.command_names import describe_command

    last_runs: dict[str, CommandStep] = {}
    for step in steps:
        if isinstance(step, CommandStep) and (name := describe_command(step.line)):
            last_runs[name] = step
    failures: list[Failure] = []
    for name, step in last_runs.items():
        if step.failed and step.code is not None:
            failures.append(Failure(name, step.code, step.line, step.output))
    return tuple(failures)


def _find_undone_commands(steps: Sequence[Step]) -> DeadEnd | None:
    """The dead end of the last turn, if commands named a file and changed it, and a later `git
    restore FILE` or `git checkout FILE` passed. None if that did not happen, or if an edit was seen
    in the turn: then `_FileVersions` finds what was undone, by the contents of the files.
    """
    if not steps:
        return None
    turn_steps = [step for step in steps if step.turn == steps[-1].turn]
    commands = _commands_in(turn_steps)
    has_edit = len(commands) < len(turn_steps)
    if has_edit:
        return None
    restores = [
        (index, _find_restored_files(step.line))
        for index, step in enumerate(commands)
        if step.code == 0
    ]
    if not any(files for _, files in restores):
        return None
    # Each line is parsed once: a turn may have thousands.
    named_files = [_find_words_of_change(step.line) for step in commands]
    for index, files in restores:
        changers = [
            step
            for step, words in zip(commands[:index], named_files, strict=False)
            if not words.isdisjoint(files)
        ]
        if changers:
            return _judge_commands(changers, commands[:index])
    return None


def _judge_commands(
    tried: Sequence[CommandStep], ran: Sequence[CommandStep], reason: str = ""
) -> DeadEnd | None:
    """The dead end of the commands among `tried` that may have changed files; None if nothing
    failed and the user gave no reason.

    Args:
        tried: the commands whose effect was undone.
        ran: all commands up to the undo. Those that failed say why it was undone: a test, or a
            command of `tried` itself.
    """
    failures = _find_failures(ran)
    if not failures and not reason:
        return None
    changers = [step for step in tried if may_change_files(step.line)]
    if not changers:
        return None
    failed_lines = {failure.line for failure in failures}
    # What passed is what was tried and undone. A command that failed is it only if nothing passed:
    # most often it changed nothing.
    passed_changers = [step for step in changers if step.line not in failed_lines]
    changers = passed_changers or changers
    return DeadEnd(changers[-1].turn, commands=tuple(changers), failures=failures, reason=reason)


def _find_restored_files(line: str) -> set[str]:
    """The files that git restores in a shell line: the words after `git restore` and `git
    checkout`, without options. After `git checkout` it may also be a branch; no command changes a
    file with that name.
    """
    from ouro.safety import parse_line

    files: set[str] = set()
    for command in parse_line(line).commands:
        words = [word.text for word in command.words]
        subcommand = words[1] if len(words) > 1 else ""
        if command.program == "git" and subcommand in ("restore", "checkout"):
            files.update(word for word in words[2:] if not word.startswith("-"))
    return files


def _find_words_of_change(line: str) -> set[str]:
    """All words of a shell line, among them the files that it names; none if the line cannot change
    files.
    """
    from ouro.safety import parse_line

    if not may_change_files(line):
        return set()
    words: set[str] = set()
    for command in parse_line(line).commands:
        words.update(word.text for word in command.words)
    return words


def may_change_files(line: str) -> bool:
    """Whether a shell line may have changed files. A line with git does not count: it is how
    changes are undone.
    """
    from ouro.safety import parse_line
    from ouro.utils.prohibitions import only_reads

    is_git = any(command.program == "git" for command in parse_line(line).commands)
    return not is_git and not only_reads(line)


def find_checked_turns(messages: Iterable[Message], last_turn: int) -> frozenset[int]:
    """The numbers of the turns in these messages that ended with passing checks; `last_turn` is the
    number of the last one.
    """
    return turns_with_passing_checks(steps_of(messages, last_turn))


def turns_with_passing_checks(steps: Sequence[Step]) -> frozenset[int]:
    """The numbers of the turns that ran checks, and in which the last run of each check passed."""
    from ouro.memory.long_term.recall.command_names import describe_command, is_check

    last_runs: dict[tuple[int, str], CommandStep] = {}
    for step in _commands_in(steps):
        name = describe_command(step.line)
        if name and is_check(name):
            last_runs[step.turn, name] = step
    turns = frozenset(turn for turn, _ in last_runs)
    failed_turns = {turn for (turn, _), step in last_runs.items() if step.code != 0}
    return turns - failed_turns


# What repeats it


def describe_tried(dead_end: DeadEnd) -> tuple[Tried, ...]:
    """What a note keeps of a dead end, to recognize its repetition: for each changed file its path
    and hashes of the words that changed, for each command a hash. No text of the change is kept.
    """
    from ouro.memory.long_term.notes.note import Tried

    tried: list[Tried] = []
    for path in dead_end.paths:
        changes = [step.change for step in dead_end.edits if step.change.path == path]
        tried.append(Tried(path=path, marks=" ".join(marks_of(changes))))
    failed_lines = {failure.line for failure in dead_end.failures}
    tried += [
        Tried(command=digest(step.line), failed=step.line in failed_lines)
        for step in dead_end.commands
    ]
    return tuple(tried)


def marks_of(changes: Sequence[FileChange]) -> list[str]:
    """Hashes of the words that changes add (`+word`) and remove (`-word`); the lowest `MAX_MARKS`
    of them. If the changes only move words, hashes of these words without a sign.
    """
    added: set[str] = set()
    removed: set[str] = set()
    for change in changes:
        old_lines, new_lines = change.texts()
        for start, end, new_start, new_end in change.line_changes():
            removed.update(_words_of(old_lines[start:end]))
            added.update(_words_of(new_lines[new_start:new_end]))
    words = {f"+{word}" for word in added - removed} | {f"-{word}" for word in removed - added}
    return sorted(map(digest, words or added))[:MAX_MARKS]


def repeats(tried: Sequence[Tried], steps: Sequence[Step], new_steps: Sequence[Step]) -> bool:
    """Whether `new_steps` repeat one of the things that were tried. They are the newest of `steps`,
    the steps of a turn.
    """
    return any(_repeats_attempt(attempt, steps, new_steps) for attempt in tried)


def _repeats_attempt(tried: Tried, steps: Sequence[Step], new_steps: Sequence[Step]) -> bool:
    """Whether the new steps run the command again that was tried, or change the file again in the
    same way.
    """
    if tried.command:
        return any(_runs_again(tried, step) for step in _commands_in(new_steps))
    changes = _changes_of(tried.path, new_steps)
    if not changes:
        return False
    # A change may be made again by one call, or by all calls of the turn together.
    new_marks = [marks_of([change]) for change in changes]
    new_marks.append(marks_of(_changes_of(tried.path, steps)))
    earlier_marks = tried.marks.split()
    return any(similarity(earlier_marks, marks) >= MIN_SIMILARITY for marks in new_marks)


def _runs_again(tried: Tried, step: CommandStep) -> bool:
    """Whether a step runs the command again. A command that failed itself must fail again: a run
    that passes repeats nothing.
    """
    is_same_result = step.failed or not tried.failed
    return tried.command == digest(step.line) and is_same_result


def _changes_of(path: str, steps: Sequence[Step]) -> list[FileChange]:
    edits = [step.change for step in steps if isinstance(step, EditStep)]
    return [change for change in edits if change.path == path]


def is_same_attempt(first: Sequence[Tried], second: Sequence[Tried], min_similarity: float) -> bool:
    """Whether both attempts ran the same commands, and changed the same files: each file with a
    similarity of at least `min_similarity` between the marks of both changes.
    """
    if {tried.command for tried in first} != {tried.command for tried in second}:
        return False
    second_marks = {tried.path: tried.marks.split() for tried in second}
    if {tried.path for tried in first} != second_marks.keys():
        return False
    return all(
        similarity(tried.marks.split(), second_marks[tried.path]) >= min_similarity
        for tried in first
    )


def similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """The share of the marks that both have, from 0 to 1; 1 if both are empty. Estimated from the
    lowest hashes of both together: the Jaccard similarity by MinHash (Broder 1997).
    """
    if not first and not second:
        return 1.0
    lowest = sorted({*first, *second})[:MAX_MARKS]
    common = {*first} & {*second}
    return len(common.intersection(lowest)) / len(lowest)


def digest(text: str) -> str:
    """A short hash of a text. Texts that differ only in spaces and line breaks have the same one."""
    return hashlib.sha256(" ".join(text.split()).encode(errors="replace")).hexdigest()[:8]


def _words_of(lines: Sequence[str]) -> list[str]:
    return _WORD.findall("".join(lines))
