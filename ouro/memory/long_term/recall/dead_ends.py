"""DeadEnds: notes of what was tried, failed and was undone; they come with the tool result that
repeats it.

A note holds what ouro saw itself: file names, commands as in the ledger, exit codes, and the words
of the user. What a command printed is words of others: it waits for approval (M1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.errors import NoteError, OuroError
from ouro.events import Event
from ouro.memory.long_term.git.values import FileEdit, TurnRef
from ouro.memory.long_term.recall.command_looks import UNREADABLE, CommandLooks
from ouro.memory.long_term.recall.note_finder import NoteFinder
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import begins_turn
from ouro.memory.side_calls import AskModel, SessionChannel
from ouro.messages import Message
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.text import clean, cut, one_line

if TYPE_CHECKING:
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.long_term.notes.note import Note, Tried
    from ouro.memory.long_term.notes.notebook import Notebook, WrittenNote
    from ouro.memory.long_term.recall.attempts import DeadEnd, Step
    from ouro.memory.long_term.recall.selection import Recalled

_MAX_NAMES = 4
_MAX_FILE_BYTES = 1 << 20
_PRINTED_WIDTH = 200
_MIN_SAME_MARKS = 0.9
"""The share of common marks from which on a change was tried before in the same way."""
_CONFIDENCE = 0.9
_PLAIN_FILE_NAME = late_pattern(r"[\w./+@-]{1,100}")
"""A file name that can be no sentence."""
_TRACEBACK_LINE = late_pattern(r'File "[^"]*", line \d+|at \S+.*:\d+|--> \S+:\d+')
"""Where a traceback of Python, JavaScript, Java or Rust was, above or below what went wrong."""
_LOOK_TIMEOUT = 1.0
"""Seconds that a turn waits until the files are compared after a command that failed."""


class _NewNote(NamedTuple):
    """A note that was written or proposed."""

    note: Note
    event: Event | None
    """Shows it to the user; None: the user wants to see none."""


class DeadEnds(msgspec.Struct, eq=False):
    """Finds dead ends in one session, keeps a note of each, and reminds the model of a dead end
    that it repeats.
    """

    memory: MemoryManager
    manager: LongTermMemoryManager
    finder: NoteFinder
    repo: ScopeMemory
    channel: SessionChannel
    write: Literal["tell", "ask", "silent"]
    """How the user learns of each note: an event, a question before it, or nothing."""
    looks: CommandLooks
    ask: AskModel | None = None
    """Asks a model why a change failed; None: none may be asked."""
    _judged_call_ids: set[str] = msgspec.field(default_factory=set)
    """The ids of the tool calls whose undoing was judged."""
    _reminded_note_ids: set[str] = msgspec.field(default_factory=set)
    """The ids of notes of which the model was reminded."""
    _pending_searches: set[asyncio.Future[None]] = msgspec.field(default_factory=set)
    """A future for each search in the background that has not ended."""
    _undo_note_ids: list[str] = msgspec.field(default_factory=list)
    """The notes that the last undo of the user made."""

    def start(self) -> None:
        """Record which branch is in use: a later change of the branch undoes nothing."""
        self.looks.record_branch()

    # What failed

    async def compare_files_after_tools(self) -> None:
        """Record what commands changed in files, if a command of the last answer failed, or the
        files still differed at the last look. A timeout and errors are logged.
        """
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT):
                await asyncio.to_thread(self._compare_files)
        except (TimeoutError, OuroError, OSError, ValueError) as error:
            log.warning("dead ends: the files are not compared: %s", error)

    def _compare_files(self) -> None:
        """Record what the turn has changed in files until now, after the steps of the last answer."""
        self.looks.look(self.memory.transcript.turns, self._read_last_steps())

    def turn_ended(self) -> None:
        """Search for dead ends of the last turns in the background; returns at once."""
        messages = [entry.message for entry in self.memory.transcript.entries]
        self._search_in_background(self._find_and_note(messages, self.memory.transcript.turns))

    def on_files_undone(self, messages: Sequence[Message], turn: int, reason: str) -> None:
        """Search in the background for dead ends among these messages, after the user undid their
        changes of files. Returns at once.

        Args:
            turn: the number of the turn in which the last message is.
            reason: why it was undone, in the words of the user; empty if none was given.
        """
        self._search_in_background(self._find_and_note(messages, turn, reason, by_user=True))

    def on_files_redone(self) -> None:
        """Archive the notes of the last undo in the background: the user redid the change, so it is
        no dead end. Returns at once.
        """
        if self._undo_note_ids:
            self.channel.start("dead ends", self._archive_notes_of_undo())

    async def wait_until_settled(self) -> None:
        """Wait until the searches in the background have ended: `ouro -p` calls it before it ends."""
        if self._pending_searches:
            await asyncio.wait(self._pending_searches)

    def _search_in_background(self, search: Coroutine[None, None, None]) -> None:
        """Start a search; `wait_until_settled` waits for its end."""
        ended = asyncio.get_running_loop().create_future()
        self._pending_searches.add(ended)
        self.channel.start("dead ends", self._run_search(search, ended))

    async def _run_search(
        self, search: Coroutine[None, None, None], ended: asyncio.Future[None]
    ) -> None:
        """Run a search, and report its end to `wait_until_settled`: `ended` is cancelled, because it
        has no result.
        """
        try:
            await search
        finally:
            self._pending_searches.discard(ended)
            ended.cancel()

    async def _find_and_note(
        self, messages: Sequence[Message], turn: int, reason: str = "", *, by_user: bool = False
    ) -> None:
        """Find the dead ends among these messages, and keep a note of each; errors are logged. The
        notes of an undo `by_user` are remembered, because a redo archives them.
        """
        try:
            dead_ends = await asyncio.to_thread(
                self._find_dead_ends, messages, turn, reason, by_user=by_user
            )
        except (OuroError, OSError) as error:
            log.warning("dead ends: %s", error)
            return
        if by_user:
            self._undo_note_ids = []
        for dead_end in dead_ends:
            try:
                note_id = await self._write_and_show_note(dead_end)
            except (OuroError, OSError) as error:  # such as a secret in one of them
                log.warning("dead ends: %s", error)
                continue
            if by_user and note_id:
                self._undo_note_ids.append(note_id)

    def _find_dead_ends(
        self, messages: Sequence[Message], turn: int, reason: str, *, by_user: bool
    ) -> list[DeadEnd]:
        """Returns the dead ends among the changes that were undone. Reads files. The calls that
        were judged are recorded, so that each change is judged once.

        Another branch has other files, although nothing was undone. So if the branch has changed
        since the last look, there are no dead ends, unless the user undid something (`by_user`). If
        no undone change is found then, commands may have made the change: all commands of the
        messages are judged together.
        """
        steps = self.looks.add_changes(self._read_steps(messages, turn))
        if not steps:
            self.looks.record_branch()
            return []
        from ouro.memory.long_term.recall.attempts import (
            dead_end_of_commands,
            find_undone,
        )

        candidates: list[DeadEnd | None] = []
        for undone in find_undone(steps, self._read_project_file):
            if self._judged_call_ids.isdisjoint(undone.call_ids):
                candidates.append(undone.judge(steps, reason))
            self._judged_call_ids.update(undone.call_ids)
        is_other_branch = self.looks.record_branch()
        if by_user:
            if not candidates:
                candidates.append(dead_end_of_commands(steps, reason))
            self._judged_call_ids.update(step.call_id for step in steps)
        elif is_other_branch:
            return []
        return [dead_end for dead_end in candidates if dead_end is not None]

    def _read_steps(self, messages: Sequence[Message], turn: int) -> list[Step]:
        """The changes and commands in these messages; `turn` is the number of the turn in which the
        last message is.
        """
        if not any(message.tool_calls for message in messages):
            return []
        from ouro.memory.long_term.recall.attempts import steps_of

        return steps_of(messages, turn, self.finder.make_relative)

    def _read_project_file(self, path: str) -> str | None:
        """The text of a file of the project; None if there is no such file, UNREADABLE if it is
        too large or no text.
        """
        file_path = self.finder.root / path
        try:
            if file_path.stat().st_size > _MAX_FILE_BYTES:
                return UNREADABLE
            with file_path.open(encoding="utf-8", newline="") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return UNREADABLE

    # What is kept of it

    async def _write_and_show_note(self, dead_end: DeadEnd) -> str:
        """Write or propose a note of the dead end, and show it to the user as the settings say.
        Returns its id; empty if there was a note of the same attempt already. Raises what
        `Notebook` raises.

        Why the commands failed is not in the written note: it is text of others. A second version
        with this reason is proposed, and waits for approval.
        """
        new_note = await self.manager.run_under_lock(partial(self._write_note, dead_end))
        if new_note is None:
            return ""
        if new_note.event:
            self.channel.emit(new_note.event)
        note = new_note.note
        is_written = self.write != "ask"
        if is_written and _telling_output_line(dead_end):
            await self._propose_reason(note, dead_end)
        return note.id

    async def _propose_reason(self, note: Note, dead_end: DeadEnd) -> None:
        """Propose to add to the note why the commands failed. If there is a model, it is asked for
        the reason in the background. Without a model, what a command printed is added.
        """
        if self.ask is not None:
            self.channel.start("dead ends", self._add_models_reason(self.ask, note, dead_end))
        else:
            await self._propose_addition(note, dead_end, _quote_output(dead_end))

    async def _add_models_reason(self, ask: AskModel, note: Note, dead_end: DeadEnd) -> None:
        """Ask a model why the commands failed, and propose to add its answer to the note. Without a
        usable answer, propose what a command printed.
        """
        from ouro.memory.long_term.recall.failure_reason import ask_reason

        why = await ask_reason(ask, dead_end, self.finder.mark)
        addition = f"Why, by a model: “{why}”" if why else _quote_output(dead_end)
        await self._propose_addition(note, dead_end, addition)

    async def _propose_addition(self, note: Note, dead_end: DeadEnd, addition: str) -> None:
        """Propose the note with a sentence added to its text, and show the proposal to the user."""
        propose = partial(self._propose_longer_note, note, addition, dead_end)
        for event in await self.manager.run_under_lock(propose):
            self.channel.emit(event)

    def _write_note(self, dead_end: DeadEnd) -> _NewNote | None:
        """Write a note of the dead end, or propose it if the user is asked about each note. If
        there is a note of the same attempt, returns None; that note is confirmed, unless the user
        is asked about each note.
        """
        from ouro.memory.long_term.notes.note import DEAD_ENDS, Note, new_id
        from ouro.memory.long_term.notes.notebook import note_event
        from ouro.memory.long_term.recall.attempts import describe_tried
        from ouro.memory.long_term.trust.approval import ASKS

        turn = TurnRef(self.memory.session_id, dead_end.turn)
        notebook, tried = self._notebook, describe_tried(dead_end)
        if same_note := self._find_same_note(tried):
            if self.write != "ask":
                notebook.confirm(same_note, "capture", turn.trailers("capture"))
            return None
        note = Note(
            id=new_id(),
            text=_describe(dead_end),
            category=DEAD_ENDS,
            session_id=turn.session,
            turn=turn.turn,
            trigger="agent",
            source="assistant",
            confidence=_CONFIDENCE,
            tried=tried,
        )
        if self.write == "ask":
            note = notebook.add_times(note)
            reason = f"{ASKS}: “{cut(note.text, _PRINTED_WIDTH)}”"
            return _NewNote(note, self._propose(note, reason, turn))
        change = notebook.add(note, "capture", turn.trailers("capture"))
        is_shown = self.write != "silent"
        return _NewNote(change.note, note_event(change) if is_shown else None)

    def _propose_longer_note(self, note: Note, addition: str, dead_end: DeadEnd) -> list[Event]:
        """Propose the note with a sentence added to its text. Returns the event of the proposal;
        none if the note was changed or archived meanwhile, or on an error, which is logged.
        """
        turn = TurnRef(self.memory.session_id, dead_end.turn)
        longer_note = replace(note, text=f"{note.text} {addition}")
        sources = [f"`{failure.name}`" for failure in dead_end.failures]
        reason = f"a command printed “{_telling_output_line(dead_end)}”"
        try:
            file = self._notebook.find(note.id)
            if file.archived or file.note.text != note.text:
                return []  # it was changed or archived meanwhile
            return [self._propose(longer_note, reason, turn, before=note, sources=sources)]
        except OuroError as error:
            log.info("dead ends: the output is not kept: %s", error)
            return []

    def _propose(
        self,
        note: Note,
        reason: str,
        turn: TurnRef,
        *,
        before: Note | None = None,
        sources: Sequence[str] = (),
    ) -> Event:
        """Store a pending proposal: of the new `note`, or that it replaces the version `before`.
        Returns the event of the proposal. Raises SecretInMemory.
        """
        from ouro.memory.long_term.notes.note import note_text
        from ouro.memory.long_term.notes.notebook import proposal_event

        earlier_text = note_text(before) if before else None
        edit = FileEdit(note.file_name, earlier_text, note_text(note))
        self.repo.store.demand_no_secret([edit.after])
        self.repo.propose([edit], reason, sources, turn)
        return proposal_event([note])

    async def _archive_notes_of_undo(self) -> None:
        """Archive the notes that the last undo of the user made, except those that are gone. This is
        tried once: an error is logged.
        """
        from ouro.memory.long_term.notes.notebook import notes_event

        ids, self._undo_note_ids = self._undo_note_ids, []
        notebook = self._notebook

        def archive() -> list[WrittenNote]:
            return notebook.archive(filter(self._is_trusted, ids), "capture")

        try:
            archived = await self.manager.run_under_lock(archive)
        except (OuroError, OSError) as error:
            log.warning("dead ends: %s", error)
            return
        if self.write == "tell":
            for event in notes_event("archive", archived, "of what was redone"):
                self.channel.emit(event)

    def _find_same_note(self, tried: Sequence[Tried]) -> str:
        """The id of the trusted note of an attempt that is the same as `tried`; empty if there is
        none.
        """
        from ouro.memory.long_term.recall.attempts import is_same_attempt

        for note in self.finder.find_dead_ends():
            is_same = is_same_attempt(note.tried, tried, _MIN_SAME_MARKS)
            if is_same and self._is_trusted(note.id):
                return note.id
        return ""

    def _is_trusted(self, note_id: str) -> bool:
        """Whether the note exists and is approved: `_notebook` does not find untrusted files."""
        try:
            return bool(self._notebook.find(note_id))
        except NoteError:
            return False

    @property
    def _notebook(self) -> Notebook:
        from ouro.memory.long_term.notes.notebook import Notebook

        stores = {self.repo.name: self.repo.store}
        return Notebook(stores, untrusted=lambda _scope: self.repo.untrusted)

    # What repeats it

    @property
    def has_notes(self) -> bool:
        """Whether the project has notes, of which some may be dead ends."""
        return bool(self.repo.loaded.notes)

    def find_repeated(self, room: int) -> Recalled | None:
        """The notes of the dead ends that the last tool calls repeated, for at most `room` tokens.
        Each is sent once in a session. None if no dead end was repeated. Blocks.
        """
        if not self.has_notes:
            return None
        steps, last_steps = self._read_steps_of_turn()
        if not last_steps:
            return None
        from ouro.memory.long_term.recall.attempts import repeats

        sent_ids = self._reminded_note_ids | self._read_sent_note_ids()
        candidates = [note for note in self.finder.find_dead_ends() if note.id not in sent_ids]
        ids = [note.id for note in candidates if repeats(note.tried, steps, last_steps)]
        if not ids:
            return None
        recalled = self.finder.select_repeated(ids, room)
        self._reminded_note_ids.update(item.id for item in recalled.items if item.state == "loaded")
        return recalled if recalled.text else None

    def _read_last_steps(self) -> list[Step]:
        """The steps of the last answer. Only its messages are read: the cost does not grow with the
        turn.
        """
        messages: list[Message] = []
        for entry in reversed(self.memory.transcript.entries):
            messages.append(entry.message)
            if entry.message.role == "assistant":
                break
        messages.reverse()
        return self._read_steps(messages, self.memory.transcript.turns)

    def _read_steps_of_turn(self) -> tuple[list[Step], list[Step]]:
        """All steps of the current turn, and those of its last answer alone."""
        turn_messages: list[Message] = []
        for entry in reversed(self.memory.transcript.entries):
            turn_messages.append(entry.message)
            if begins_turn(entry.message):
                break
        turn_messages.reverse()
        answers = [message for message in turn_messages if message.role == "assistant"]
        steps = self._read_steps(turn_messages, self.memory.transcript.turns)
        last_calls = {call.id for call in answers[-1].tool_calls} if answers else set()
        last_steps = [step for step in steps if step.call_id in last_calls]
        return steps, last_steps

    def _read_sent_note_ids(self) -> set[str]:
        """The ids of all notes that were sent in this session, also before a resume, by the records
        of the transcript.
        """
        note_ids: set[str] = set()
        for record in self.memory.transcript.recalled.values():
            note_ids.update(item.id for item in record.items if item.state == "loaded")
        return note_ids


def _describe(dead_end: DeadEnd) -> str:
    """The text of the note about a dead end: what was tried, which commands failed, and why the
    user undid it. Nothing that a command printed is in it.
    """
    from ouro.memory.long_term.recall.command_names import name_programs, normalize_command

    if dead_end.edits:
        attempt = f"a change of {_join_names(dead_end.paths)}"
    else:
        lines = [step.line for step in dead_end.commands]
        names = [normalize_command(line) or name_programs(line) for line in lines]
        attempt = f"the command {_join_names(names, is_file=False)}"
    failures = [
        f"`{failure.name}` failed with exit code {failure.code}" for failure in dead_end.failures
    ]
    sentences = [f"Tried and undone: {attempt}."]
    if failures:
        sentences.append(f"{' and '.join(failures[:_MAX_NAMES])}.")
    if dead_end.reason:
        sentences.append(f"The user undid it: “{dead_end.reason}”")
    return " ".join(sentences)


def _join_names(names: Sequence[str], *, is_file: bool = True) -> str:
    """The first `_MAX_NAMES` file names or commands in one line, and the number of the others. `…`
    stands for a file name that could be a sentence: a note must hold no words of others.
    """
    shown_names = [
        f"`{name}`" if not is_file or _PLAIN_FILE_NAME.fullmatch(name) else "…" for name in names
    ]
    left_out = len(shown_names) - _MAX_NAMES
    joined = ", ".join(dict.fromkeys(shown_names[:_MAX_NAMES]))
    return f"{joined} and {left_out} more" if left_out > 0 else joined


def _quote_output(dead_end: DeadEnd) -> str:
    return f"It printed: “{_telling_output_line(dead_end)}”"


def _telling_output_line(dead_end: DeadEnd) -> str:
    """The line of output that says most about why a dead end failed. It is from the first failed
    command that printed a line which is not only a place in a traceback: the first line that names
    a changed file, else the last line. Empty if no failed command printed such a line.
    """
    names = [path.rpartition("/")[2] for path in dead_end.paths]
    for failure in dead_end.failures:
        output_lines = map(str.strip, failure.output.splitlines())
        lines = [line for line in output_lines if line and not _TRACEBACK_LINE.match(line)]
        if lines:
            telling_line = next((line for line in lines if _names_any(line, names)), lines[-1])
            return one_line(clean(telling_line), _PRINTED_WIDTH)
    return ""


def _names_any(line: str, names: Sequence[str]) -> bool:
    return any(name in line for name in names)
