"""FileUndo: the checkpoints of a session's turns, and undo of what turns did to files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from ouro import safety
from ouro.errors import OuroError, UsageError, plain_error
from ouro.events import Notice
from ouro.memory.backend import Undoable
from ouro.memory.manager import MemoryManager
from ouro.safety import Effect
from ouro.session.session_tasks import SessionTasks
from ouro.utils.log import log
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import join_names, plural

if TYPE_CHECKING:
    from ouro.safety import Checkpoints, LateCheckpoints, Restored, TurnFiles
    from ouro.utils.git_diff import DiffedFile

_MAX_COMPARED = 16
"""The files of a turn that are compared while it runs."""
WAIT = 1.0
"""Seconds that a command waits for the checkpoint before its turn."""
UNDONE = "Undone"
"""The beginning of the line about what was undone; the other lines are about what was not."""
REDONE = "Changed again"
_NO_UNDO = "Changes of files cannot be undone"
"""The beginning of the warning about a checkpoint that failed."""
_MAX_NAMED = 3
_CLEAN_SECONDS = 86_400.0
"""The pause between two deletions of old checkpoints."""
_EFFECTS_ON_ANY_FILE = (Effect.RUN, Effect.MCP, Effect.TOOL)
"""The effects of tools that may change any file: their targets are no paths."""


class FileUndo(msgspec.Struct, eq=False):
    """Takes checkpoints of files in the background, and undoes what turns did to files. A turn without
    a tool call has no checkpoint, and imports none of their modules; neither the answer nor the exit
    waits for a checkpoint.
    """

    late_checkpoints: LateCheckpoints
    memory: MemoryManager
    tasks: SessionTasks
    keep_days: int
    max_bytes: int
    resolve: Callable[[str], Path]
    """The real path that the target of a tool names."""
    unsure: Mapping[str, Sequence[TurnFiles]] = msgspec.field(default_factory=dict)
    """Files that an undo left as they are, because others may have changed them, each with the
    turns to undo. They stay until the user has said what happens to them.
    """
    _number: int = 0
    """The number of the message that began the current turn, or steered it last: changes of files
    belong to it.
    """
    _checkpoint_before: asyncio.Task[bool] | None = None
    """The checkpoint before the current turn; None if there is none yet."""
    _last_checkpoint: asyncio.Task[bool] | None = None
    """The checkpoint that was started last; each waits for the one before it."""
    _off_until: Literal["", "next turn", "end"] = ""
    """Until when no checkpoints are taken, because one has failed: until the next turn, or the end of
    this session. Empty: they are taken.
    """
    _warnings_shown: set[str] = msgspec.field(default_factory=set)
    """The warnings of this session, and the names of the files that it was warned about."""

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints, opened at the first use. That blocks, because modules are imported."""
        return self.late_checkpoints.open()

    def begin_turn(self) -> None:
        """Begin a turn, which is known by the number of its message: from now on changes of files
        belong to it.
        """
        # First: so the part before it ends, too, with what is known of its changes.
        if self._off_until == "next turn":
            self._off_until = ""
        self._begin_part(self.memory.next_number)

    def on_message_added(self) -> None:
        """Called after a message of the turn was added. If it is not the first one, it steers the
        turn: from now on changes belong to it, and can be undone separately.
        """
        number = self.memory.transcript.last_number
        if number > self._number:
            self._begin_part(number)

    def begin_checkpoint(self) -> None:
        """Start the checkpoint before this turn, if it has none yet: a tool call may follow."""
        if self._checkpoint_before is None and not self._off_until:
            self._checkpoint_before = self._start_checkpoint(self._take_before)

    @asynccontextmanager
    async def changing(self, effect: Effect, targets: Sequence[str]) -> AsyncGenerator[None]:
        """In this context a tool may change files. If it names files, these are `targets`, and
        copies of them are kept. Otherwise it may change any file, and waits for the checkpoint.
        """
        # A message that steers the turn may change `_number` before the tool has ended.
        number = self._number
        paths: list[Path] = []
        if effect not in _EFFECTS_ON_ANY_FILE:
            paths = [self.resolve(name) for name in targets]
        is_command = not paths  # or another tool that may change any file
        self.begin_checkpoint()
        try:
            if is_command:
                await self._wait_before_command(number)
            else:
                await self._keep_copies(number, paths)
        except (OSError, OuroError) as error:
            self._turn_off(error)
        try:
            yield
        finally:
            # If the note cannot be written, later changes by others are not told from the tool's.
            # The result of the tool must not be lost for that.
            with suppress(OSError):
                if is_command:
                    self.checkpoints.note_command_end(number)
                else:
                    await asyncio.to_thread(self._note_writes, number, paths)

    async def _wait_before_command(self, number: int) -> None:
        """Wait at most `WAIT` seconds for the checkpoint before the turn, with a warning if that is
        not long enough. Then note in the journal of the turn that a command runs.
        """
        if self._checkpoint_before is None:
            return
        done, _ = await asyncio.wait([self._checkpoint_before], timeout=WAIT)
        if self._off_until:
            return
        if not done:
            self._warn(
                "The checkpoint of this folder takes long, so commands do not wait for it:"
                " what they change before it is complete may not be undone."
            )
        await asyncio.to_thread(self.checkpoints.note_command_start, number, is_early=not done)

    async def _keep_copies(self, number: int, paths: Sequence[Path]) -> None:
        """Copy files before a tool writes them. Warns if the disk has no room."""
        if self._off_until:
            return
        for path in paths:
            if not await asyncio.to_thread(self.checkpoints.keep, number, path):
                self._warn(f"`/undo` does not restore {path}: the disk has no room for a copy.")

    def _note_writes(self, number: int, paths: Sequence[Path]) -> None:
        """Note what a tool has written, so that later changes by others are recognized. Blocks."""
        for path in paths:
            self.checkpoints.keep_written(number, path)

    def _begin_part(self, number: int) -> None:
        """Begin the part of a turn that message `number` begins. The part before it ends now. That
        is also done at the start of a turn: a background subagent may have changed files since the
        end of the last turn, and these changes belong to that turn.
        """
        self._end_part()
        self._number = number
        self._checkpoint_before = None

    def end_turn(self) -> None:
        """Start the checkpoint after the turn, in the background."""
        self._end_part()

    def _end_part(self) -> None:
        """Start the checkpoint after the present part of the turn, if files may have changed in it."""
        if (
            self.late_checkpoints.opened is None or self._off_until
        ):  # not opened: no tool was called yet
            return
        if self.late_checkpoints.opened.may_have_changed(self._number):
            self._start_checkpoint(self._take_after)

    async def finish_checkpoints(self) -> None:
        """Wait until no checkpoint is being written."""
        while self._last_checkpoint is not None and not self._last_checkpoint.done():
            await asyncio.wait([self._last_checkpoint])

    async def close(self) -> None:
        """Stop the running checkpoint, so that the exit does not wait for it. Another process is
        started that finishes what is not stored yet.
        """
        if self._last_checkpoint is None:
            return
        self.checkpoints.repository.cancel()
        await self.finish_checkpoints()
        if self.checkpoints.release():
            await asyncio.to_thread(safety.finish_later, self.checkpoints)

    async def recover(self) -> None:
        """If a process was killed, store what its turns changed, and finish an undo that was cut
        off.
        """
        if await asyncio.to_thread(self._needs_recovery):
            self._last_checkpoint = asyncio.create_task(
                self._recover(self._last_checkpoint), name="checkpoint"
            )
            await self.finish_checkpoints()

    def _needs_recovery(self) -> bool:
        """Whether a killed process has left a turn or an undo that was cut off, or a question that
        this session has not loaded yet. Blocks.
        """
        if not self.late_checkpoints.folder.exists():  # no turn has taken a checkpoint here yet
            return False
        has_new_question = not self.unsure and safety.has_question(self.checkpoints)
        return has_new_question or safety.needs_recovery(self.checkpoints)

    async def _recover(self, earlier: asyncio.Task[bool] | None) -> bool:
        """Repair the checkpoints and finish an undo that was cut off, when the checkpoint `earlier`
        is complete. Then show the user the files that wait for their decision (`unsure`). Returns
        False if the recovery failed, or if checkpoints are off after that one.
        """
        if earlier is not None:
            await earlier
        if self._off_until:
            return False
        try:
            await asyncio.to_thread(self.checkpoints.recover)
            restored = await asyncio.to_thread(safety.Undo(self.checkpoints).finish)
        except (OSError, OuroError) as error:
            self._turn_off(error)
            return False
        await self._load_unsure()
        if restored is not None:
            lines = " ".join(_restored_lines(restored, "Restored"))
            self.tasks.emit(Notice(f"An undo that was cut off is finished now. {lines}".strip()))
        if self.unsure:
            self.tasks.emit(Notice(_unsure_notice(sorted(self.unsure))))
        return True

    def _start_checkpoint(self, take: Callable[[int], Awaitable[None]]) -> asyncio.Task[bool]:
        """Start a checkpoint of the present part of the turn in the background, which waits for the
        one before it; returns its task.
        """
        self._last_checkpoint = asyncio.create_task(
            self._run_checkpoint(take, self._number, self._last_checkpoint), name="checkpoint"
        )
        return self._last_checkpoint

    def changed_until_now(self) -> dict[Path, tuple[bytes | None, bytes | None]]:
        """The files that this turn has changed until now, each with its contents before the turn
        and now (None: there is no such file). Empty if it has changed more than _MAX_COMPARED
        files, if the checkpoint before the turn is missing, or if they cannot be compared. Blocks.
        """
        has_checkpoint = (
            self._checkpoint_before is not None
            and self._checkpoint_before.done()
            and not self._off_until
        )
        if not has_checkpoint:
            return {}
        try:
            return self.checkpoints.changed_until_now(self._number, _MAX_COMPARED)
        except (OSError, OuroError) as error:
            log.info("checkpoints: what the turn has changed is not known: %s", error)
            return {}

    async def find_undoable(self, number: int) -> Undoable | None:
        """What can be undone of the turns from message `number` of the current branch on; None if
        they changed no files. If they did so while the session was in another folder, the user gets
        a line about these files: they are not restored from here.
        """
        turns = await self._find_turns(lambda turn: turn.number >= number and not turn.undone)
        undoable = await self._as_undoable(turns, UNDONE)
        others = await asyncio.to_thread(self._other_workspaces, number)
        return _with_lines(undoable, [self._elsewhere_line(other) for other in others])

    def _other_workspaces(self, number: int) -> list[str]:
        """The folders in which turns from message `number` on have changed files, except the one in
        which the session works now. Blocks.
        """
        numbers = [entry.number for entry in self.memory.transcript.entries]
        return safety.workspaces_changed_by(
            self.late_checkpoints.folder.parent,
            self.memory.session_id,
            {turn_number for turn_number in numbers if turn_number >= number},
            other_than=self.late_checkpoints.folder,
        )

    def _elsewhere_line(self, workspace: str) -> str:
        """For the user: changes in another folder are not undone, and how to undo them."""
        import shlex  # imported late: rarely needed

        session = self.memory.session_id[:8]
        folder = shlex.quote(workspace)
        return (
            f"Not undone: what the session changed in {tilde(workspace)}. To undo it, use /redo, then"
            f" `ouro --cd {folder} --resume {session}` and /undo there."
        )

    async def find_redoable(self, numbers: Collection[int]) -> Undoable | None:
        """What can be redone of the turns that began with these messages; None if nothing was
        undone.
        """
        turns = await self._find_turns(lambda turn: bool(turn.undone), numbers)
        return await self._as_undoable(turns, REDONE)

    async def _as_undoable(self, turns: list[TurnFiles], verb: str) -> Undoable | None:
        """The undo of what these turns changed, or the redo if `verb` is REDONE instead of UNDONE.
        None if the turns changed no files.
        """
        changes_of_turns = [
            await asyncio.to_thread(self.checkpoints.turn_changes, turn) for turn in turns
        ]
        changed_files = set[str]()
        lost_files = dict[str, str]()
        for changes in changes_of_turns:
            changed_files.update(changes.files)
            lost_files.update(changes.lost)
        all_files = changed_files | set(lost_files)
        if not all_files:
            return None
        undo, is_redo = safety.Undo(self.checkpoints), verb != UNDONE

        async def carry_out() -> Sequence[str]:
            restored = await asyncio.to_thread(undo.redo if is_redo else undo.undo, turns)
            await self._load_unsure()
            return [*_restored_lines(restored, verb), *_lost_lines(lost_files)]

        async def prepare() -> None:
            await asyncio.to_thread(undo.prepare, turns, is_redo=is_redo)

        summary = plural(len(all_files), "file")
        return Undoable(summary, undo=carry_out, prepare=prepare, cancel=undo.cancel)

    async def diff(self, number: int) -> str:
        """The changes of files since before message `number`, also by others, as text with the ids
        of the hunks; empty if there are none. Raises UsageError if no turn since then has a
        checkpoint.
        """
        turns = await self._turns_since(number)
        return await asyncio.to_thread(safety.TurnDiffs(self.checkpoints).diff, turns)

    async def undo_in_file(self, number: int, path: str, hunk: str) -> Sequence[str]:
        """Undo what the turns since message `number` did to a file; or, if `hunk` is not empty,
        only the hunk with this id in `diff`. Returns lines for the user.

        Raises UsageError if they did not change the file.
        """
        undo = safety.Undo(self.checkpoints)

        # Undo one hunk. Its id is of the diff, which begins before the first of all these turns,
        # also of those that were undone.
        if hunk:
            turns = await self._turns_since(number)
            return _restored_lines(
                await asyncio.to_thread(undo.undo_hunk, turns, path, hunk), UNDONE
            )

        # Undo the whole file. Turns that were undone already are left out: their changes are not in
        # the file any more.
        turns = await self._find_turns(lambda turn: turn.number >= number and not turn.undone)
        restored = await asyncio.to_thread(undo.undo, turns, path)
        await self._load_unsure()

        # Say why it could not be restored; if several turns have a reason, the last one counts.
        lost: dict[str, str] = {}
        for turn in turns:
            changes = await asyncio.to_thread(self.checkpoints.turn_changes, turn)
            if path in changes.lost:
                lost[path] = changes.lost[path]
        lines = [*_restored_lines(restored, UNDONE), *_lost_lines(lost)]
        if not lines:
            raise UsageError(
                f"No turn since then changed a file `{path}`.",
                "`/diff 1` shows what the last one changed.",
            )
        return lines

    async def turns_with_changes(self) -> Sequence[int]:
        """The messages of this branch whose turns changed files, oldest first."""
        return [turn.number for turn in await self._find_turns(lambda turn: bool(turn.new))]

    async def shown_diff(self, number: int, *, only_that_turn: bool = False) -> str:
        """The changes of files since before message `number`, also by others, as git writes a diff.
        With `only_that_turn`, what the turn of that message changed. Raises UsageError if there is no
        checkpoint, or that turn changed no files.
        """
        diffs = safety.TurnDiffs(self.checkpoints)
        if not only_that_turn:
            return await asyncio.to_thread(diffs.shown_diff, await self._turns_since(number))
        turns = await self._find_turns(lambda turn: turn.number == number and bool(turn.new))
        if not turns:
            raise UsageError("That turn changed no files.")
        return await asyncio.to_thread(diffs.turn_diff, turns[0])

    async def blob_size(self, name: str) -> int | None:
        """The bytes of a content that `shown_diff` names; None if it is not known."""
        return await asyncio.to_thread(safety.TurnDiffs(self.checkpoints).blob_size, name)

    async def is_changed_by_others(self, path: str) -> bool:
        """Whether a file differs from what the last turn or undo of this session left. Also True if
        none of them changed it.
        """
        present_state = await asyncio.to_thread(
            self.checkpoints.state, self.checkpoints.root / path
        )
        # An undo of a part from a diff is newer than the turn it is about.
        for changes in reversed(self.checkpoints.undone_parts):
            for change in changes:
                if change.path == path:
                    return present_state != change.new
        turns = await self._find_turns(lambda turn: bool(turn.new))
        for turn in reversed(turns):
            turn_changes = await asyncio.to_thread(self.checkpoints.turn_changes, turn)
            if path in turn_changes.files:
                change = turn_changes.files[path]
                # An undo of the turn has left the file as it was before the turn.
                state_left_by_ouro = change.old if turn.undone else change.new
                return present_state != state_left_by_ouro
        return True

    async def undo_from_diff(self, file: DiffedFile, hunk: str = "") -> Sequence[str]:
        """Undo one hunk of a file, or all that the diff shows of it if `hunk` is empty; returns
        lines for the user. Raises UsageError if it cannot be undone.
        """
        await asyncio.to_thread(safety.PartUndo(self.checkpoints).undo, file, hunk)
        return [f"{UNDONE}: {'a hunk of ' if hunk else ''}{file.path}."]

    async def redo_from_diff(self) -> Sequence[str]:
        """Undo the last `undo_from_diff`; returns lines for the user. Raises UsageError if there is
        none.
        """
        outcomes = await asyncio.to_thread(safety.PartUndo(self.checkpoints).redo)
        # The outcome of a file is empty if it was redone, MERGED, or why it was left as it is.
        unchanged = {path: why for path, why in outcomes.items() if why and why != safety.MERGED}
        redone = tuple(path for path, why in outcomes.items() if not why)
        merged = tuple(path for path, why in outcomes.items() if why == safety.MERGED)
        return _restored_lines(safety.Restored(redone, merged, unchanged), REDONE)

    async def restore_unsure(self, path: str = "") -> Sequence[str]:
        """Restore the files of `unsure`, or only `path` among them. Returns lines for the user."""
        undo = safety.Undo(self.checkpoints)
        chosen = [path] if path else list(self.unsure)
        lines: list[str] = []
        for name in chosen:
            turns = self.unsure.get(name)
            if turns is None:
                continue
            # The last argument: the user is sure about this file.
            restored = await asyncio.to_thread(undo.undo, turns, name, [name])
            await asyncio.to_thread(undo.note_answers, [name])
            lines += _restored_lines(restored, UNDONE)
        await self._load_unsure()
        return lines

    async def keep_unsure(self) -> None:
        """Leave the files of `unsure` as they are, and ask no more about them."""
        await asyncio.to_thread(safety.Undo(self.checkpoints).note_answers, list(self.unsure))
        self.unsure = {}

    async def _load_unsure(self) -> None:
        """Read from the checkpoints which files wait for a decision of the user, and set `unsure`
        to them, each with the turns that would be undone in it. A file whose turns are gone is left
        out.
        """
        open_questions = await asyncio.to_thread(safety.Undo(self.checkpoints).open_questions)
        turns = await asyncio.to_thread(self.checkpoints.turns) if open_questions else ()
        self.unsure = {}
        for path, numbers in open_questions.items():
            if turns_to_undo := [turn for turn in turns if turn.number in numbers]:
                self.unsure[path] = turns_to_undo

    async def _turns_since(self, number: int) -> list[TurnFiles]:
        """The turns from message `number` on that have checkpoints, oldest first. Raises UsageError
        if there are none.
        """

        def has_checkpoint(turn: TurnFiles) -> bool:
            return bool(turn.new or turn.before)  # earlier versions wrote only `before`

        turns = await self._find_turns(lambda turn: turn.number >= number and has_checkpoint(turn))
        if not turns:
            raise UsageError("There is no checkpoint since that message: no turn changed files.")
        return turns

    async def _find_turns(
        self, matches: Callable[[TurnFiles], bool], numbers: Collection[int] | None = None
    ) -> list[TurnFiles]:
        """The turns for which `matches` is True, oldest first. Waits for running checkpoints, and
        recovers what a killed process has left.

        Args:
            numbers: only turns that begin with one of these messages; None: with any message of the
                current branch.
        """
        await self.finish_checkpoints()
        await self.recover()
        if numbers is None:
            numbers = {entry.number for entry in self.memory.transcript.entries}
        turns = await asyncio.to_thread(self.checkpoints.turns)
        return [turn for turn in turns if turn.number in numbers and matches(turn)]

    async def _run_checkpoint(
        self,
        take: Callable[[int], Awaitable[None]],
        number: int,
        earlier: asyncio.Task[bool] | None,
    ) -> bool:
        """Take a checkpoint when the checkpoint `earlier` is complete. Returns False if it failed, or
        if checkpoints are off after that one.
        """
        if earlier is not None:
            await earlier
        if self._off_until:
            return False
        try:
            await take(number)
        except (OSError, OuroError) as error:
            self._turn_off(error)
            return False
        # If a checkpoint fails again, that is news.
        self._warnings_shown -= {text for text in self._warnings_shown if text.startswith(_NO_UNDO)}
        return True

    async def _take_before(self, number: int) -> None:
        # In the lambda, because `checkpoints` opens the repository.
        await asyncio.to_thread(lambda: self.checkpoints.take_before(number))

    async def _take_after(self, number: int) -> None:
        """Take the checkpoint after a turn, and warn about files that it cannot restore."""
        changes = await asyncio.to_thread(lambda: self.checkpoints.take_after(number))
        await asyncio.to_thread(self._clean_old_checkpoints)
        self._warn_about_lost(changes.lost)

    def _warn_about_lost(self, lost: Mapping[str, str]) -> None:
        """Warn about files that cannot be restored, each once in this session.

        Args:
            lost: the reason of each file, by its name.
        """
        new_names = sorted(set(lost) - self._warnings_shown)
        self._warnings_shown.update(new_names)
        for line in _lost_lines({name: lost[name] for name in new_names}):
            self.tasks.warn(line)

    def _turn_off(self, error: OSError | OuroError) -> None:
        """Take no more checkpoints in this turn, and warn. If the reason may pass, as a full disk,
        the next turn takes them again; otherwise none are taken in this session. Does nothing if
        the session is closing.
        """
        if (
            self.late_checkpoints.opened is not None
            and self.late_checkpoints.opened.repository.is_cancelled
        ):
            return
        may_pass = isinstance(error, OSError | safety.GitFailed)
        self._off_until = "next turn" if may_pass else "end"
        period = "turn" if may_pass else "session"
        self._warn(f"{_NO_UNDO} in this {period}: {plain_error(error)}")

    def _clean_old_checkpoints(self) -> None:
        """Delete old checkpoints of all folders, once a day."""
        base = self.late_checkpoints.folder.parent
        stamp = base / "cleaned"
        if not stamp.exists() or time.time() - stamp.stat().st_mtime > _CLEAN_SECONDS:
            stamp.touch(mode=0o600)
            # An error concerns another workspace, which this session does not need.
            with suppress(OSError, OuroError):
                safety.clean_checkpoints(
                    base,
                    days=self.keep_days,
                    max_bytes=self.max_bytes,
                    keep=self.late_checkpoints.folder,
                )

    def _warn(self, text: str) -> None:
        """Show a warning once in this session."""
        if text not in self._warnings_shown:
            self._warnings_shown.add(text)
            self.tasks.warn(text)


def _with_lines(undoable: Undoable | None, lines: Sequence[str]) -> Undoable | None:
    """The undo with lines for the user after it. Without an undo only the lines are shown."""
    if not lines:
        return undoable
    if undoable is None:
        undoable = Undoable("0 files here", undo=_undo_nothing)
    undo = undoable.undo

    async def undo_with_lines() -> Sequence[str]:
        return [*await undo(), *lines]

    return replace(undoable, undo=undo_with_lines)


async def _undo_nothing() -> Sequence[str]:
    return ()


def _restored_lines(restored: Restored, verb: str) -> list[str]:
    """What an undo or redo did, as lines for the user: the files it changed, those with changes of
    the user that stay, and those that it left as they are, with the reason.

    Args:
        verb: the beginning of the first line: UNDONE, REDONE or `Restored`.
    """
    lines = [f"{verb}: {join_names(restored.paths, _MAX_NAMED)}."] if restored.paths else []
    if restored.merged:
        lines.append(f"Your own changes stay in {join_names(restored.merged, _MAX_NAMED)}.")
    return [*lines, *(f"{path} is left as it is: {why}." for path, why in restored.left.items())]


def _unsure_notice(paths: Sequence[str]) -> str:
    """The notice about files that wait for the user."""
    names = join_names(paths, _MAX_NAMED)
    return f"An undo did not restore {names}: {safety.NOT_KNOWN}. `/undo {paths[0]}` restores it."


def _lost_lines(lost: dict[str, str]) -> list[str]:
    """One line for each reason why files cannot be restored, with their names.

    Args:
        lost: the reason of each file, by its name.
    """
    by_reason: dict[str, list[str]] = {}
    for name, why in sorted(lost.items()):
        by_reason.setdefault(why, []).append(name)
    return [
        f"`/undo` does not restore {join_names(names, _MAX_NAMED)}: {why}."
        for why, names in by_reason.items()
    ]
