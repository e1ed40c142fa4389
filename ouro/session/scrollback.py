"""Scrollback: shows a session from its end as events; earlier events follow when the user scrolls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ouro.agent.compactor import compaction_event
from ouro.display import CommandOutput, Display, Plain
from ouro.errors import UsageError
from ouro.events import (
    Event,
    NotesRecalled,
    Notice,
    Prompted,
    RecalledNote,
    Replied,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from ouro.memory.backend import (
    CompactionRecord,
    DropRecord,
    MessageRecord,
    ModelRecord,
    RecalledRecord,
    RewindRecord,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.transcript import ShownItem
from ouro.messages import SHELL_NOTE, Image, Message, Text, Thinking, ToolCall, ToolReply
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import plural

_STATUS_LINE = late_pattern(
    r"\n\[(?P<status>exit code (?P<exit_code>\d{1,9})|ended by signal \d+), [^\n]*\](?:\n[^\n]*)?\Z"
)
"""The last line of a command's output, possibly with a remark below."""
PAGE = 100
"""Messages that are read when the user scrolls to the top."""


class Reached(msgspec.Struct, frozen=True):
    """The position of a message that the user wants to see."""

    prompts: int
    """The number of user messages from there to the end, including that of its turn."""
    is_left: bool = False
    """Whether it is on a branch that a rewind left."""


class Scrollback(msgspec.Struct, frozen=True, eq=False):
    """The transcript of a session as events: those shown, and earlier ones when they are needed."""

    memory: MemoryManager
    title: Callable[[ToolCall], str]
    """Returns the title of a tool call."""

    @property
    def has_more(self) -> bool:
        return self.memory.pager.has_hidden

    def shown_events(self) -> Iterator[Event]:
        """The events of the messages that are shown now."""
        return _events_of_items(self.memory.pager.shown(), self.title)

    async def show_more(self, count: int = PAGE) -> list[Event]:
        """The events before the shown ones, which then count as shown. Raises SessionError if they
        cannot be read.
        """
        return list(_events_of_items(await self.memory.pager.show_more(count), self.title))

    def last_prompts(self, count: int) -> list[tuple[int, str]]:
        """The number and the text of each of the last `count` messages of the user that are loaded,
        oldest first.
        """
        entries = [entry for entry in self.memory.transcript.entries if _is_prompt(entry.message)]
        return [(entry.number, entry.message.text) for entry in entries[-count:]]

    def hide_before(self, number: int) -> bool:
        """Mark the messages before message `number` as not shown, so that `show_more` reads them again.
        Returns False, and marks nothing, if that is not possible: then a screen must keep them.
        """
        return self.memory.pager.hide_before(number)

    async def reach(self, number: int) -> Reached:
        """Load and show earlier messages until message `number` is shown; returns where it is.

        If a rewind has left the message and the session is open read-only, the session changes to
        the branch that has it.

        Raises:
            UsageError: the session has no such message, or a rewind has left it and the session is
                not read-only.
            SessionError: it cannot be read.
        """
        memory = self.memory
        await memory.pager.finish_loading()
        if prompts := await self._show_from(number):
            return Reached(prompts)
        left_branch = self._find_left_branch(number)
        if not left_branch:
            raise UsageError(f"Message {number} is not in this session any more.")
        if not memory.read_only:
            raise UsageError(
                f"Message {number} is on a branch that a rewind has left.", commands=["rewind"]
            )
        # In a read-only session the rewind holds only here: it is not written to the file.
        await memory.record(RewindRecord(left_branch[-1], memory.now()))
        return Reached(await self._show_from(number), is_left=True)

    def _find_left_branch(self, number: int) -> list[int]:
        """The numbers of all messages of the branch that has message `number` and that a rewind has
        left; empty if there is no such branch.
        """
        for branch in self.memory.transcript.branches:
            numbers = [entry.number for entry in branch.entries]
            if number in numbers:
                return numbers
        return []

    async def _show_from(self, number: int) -> int:
        """Load and show earlier messages until message `number` is shown. Returns how many messages
        of the user there are from it to the end, including that which began its turn; 0 if the
        message is not on this branch.
        """
        while True:
            shown_messages = [
                item for item in self.memory.pager.shown() if isinstance(item, MessageRecord)
            ]
            numbers = [entry.number for entry in shown_messages]
            if number in numbers:
                break
            if not self.memory.pager.has_hidden:
                return 0
            await self.memory.pager.show_more(PAGE)
        next_index = numbers.index(number) + 1
        up_to_it, after_it = shown_messages[:next_index], shown_messages[next_index:]
        count = sum(_is_prompt(entry.message) for entry in after_it)
        if any(_is_prompt(entry.message) for entry in up_to_it):
            count += 1  # the message that began its turn, or itself
        return count


def _is_prompt(message: Message) -> bool:
    """Whether the user wrote the message to the agent. A shell line of the user is not one: it is
    shown in another form.
    """
    return (
        message.role == "user"
        and bool(message.text or message.parts_of(Image))
        and not _is_shell_line(message)
    )


def _is_shell_line(message: Message) -> bool:
    return message.role == "user" and message.text.startswith(SHELL_NOTE)


def _events_of_items(
    items: Iterable[ShownItem], title: Callable[[ToolCall], str]
) -> Iterator[Event]:
    """Yields the events that a live session emitted for these saved items, in order. No tool is
    run.

    Args:
        title: returns the title of a tool call.
    """
    for item in items:
        match item:
            case MessageRecord(message=message) if _is_shell_line(message):
                yield from _shell_line_events(item)
            case MessageRecord():
                yield from _message_events(item.message, title)
            case CompactionRecord():
                yield compaction_event(item)
            case DropRecord(items=dropped, restored=restored, tokens=(before, after)):
                done = "restored to the request" if restored else "left out of the request"
                yield Notice(
                    f"{plural(len(dropped), 'item')} {done}: {before:,} → {after:,} tokens."
                )
            case RecalledRecord():
                yield _recall_event(item)
            case ModelRecord(model):
                yield Notice(f"Model: {model}")
            case RewindRecord():
                yield Notice("Rewound to here. What followed is kept: /rewind lists it.")


def _recall_event(record: RecalledRecord) -> NotesRecalled:
    """The event of notes that were recalled, without their texts: the record has only their ids."""
    notes = [
        RecalledNote(
            note.id,
            text="",
            state=note.state,
            reason=note.reason,
            score=note.score,
            tokens=note.tokens,
        )
        for note in record.items
    ]
    return NotesRecalled(tuple(notes), record.way)


def _shell_line_events(item: MessageRecord) -> Iterator[Event]:
    """Yields the events of a shell line of the user, as when it ran. Its message has the line, then
    the output, then `[exit code N, …]`.
    """
    shell_line, _, output = item.message.text.removeprefix(SHELL_NOTE).partition("\n")
    status, exit_code = "", None
    if match := _STATUS_LINE.search(output):
        output = output[: match.start()]
        status = match["status"]
        if match["exit_code"] is not None:  # otherwise a signal has ended the command
            exit_code = int(match["exit_code"])
    if output == "(no output)":
        output = ""
    has_failed = bool(status) and exit_code != 0
    line_count = output.count("\n") + 1
    details = [status] if has_failed else []
    if line_count > 1:
        details.append(plural(line_count, "line"))
    display = Display(", ".join(details), CommandOutput(shell_line, output, exit_code))
    call = ToolCall(f"own_{item.number}", "shell", {"command": shell_line})
    yield ToolStarted(call, shell_line)
    yield ToolFinished(call.id, call.name, display, has_failed, seconds=0.0)


def _message_events(message: Message, title: Callable[[ToolCall], str]) -> Iterator[Event]:
    """Yields the events of a saved message: those of its text, then its calls, then its results. No
    event for a message that only ouro has added.
    """
    if _is_prompt(message):
        yield Prompted(message.text, message.parts_of(Image))
    elif message.role == "assistant":
        for part in message.parts:
            if isinstance(part, Thinking) and part.text:
                yield ThinkingDelta(part.text)
            elif isinstance(part, Text):
                yield TextDelta(part.text)
        yield Replied(message)
        yield from (ToolStarted(call, title(call)) for call in message.tool_calls)
    for result in message.parts_of(ToolReply):
        display = result.display or Display(
            result.text.partition("\n")[0][:120], Plain(result.text)
        )
        yield ToolFinished(result.call_id, result.name, display, result.failed, seconds=0.0)
