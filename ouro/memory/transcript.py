"""Transcript: the state of a session, computed from its records: the current branch, what is sent
of it, and the usage. Also the default title of a session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.memory.backend import (
    CapturedRecord,
    CompactionRecord,
    CostRecord,
    DropRecord,
    ForkRecord,
    LabelRecord,
    LoadedSession,
    MessageRecord,
    ModelRecord,
    ModeRecord,
    NumberedRecord,
    PinRecord,
    RecalledRecord,
    Record,
    RewindRecord,
    SummaryRecord,
    TitleRecord,
)
from ouro.memory.message_tree import OUTPUT_PREFIX, MessageTree, begins_turn
from ouro.memory.short_term import (
    DROPPED_MESSAGE,
    answer_open_calls,
    remove_notes,
    remove_outputs,
    replace_by_summary,
)
from ouro.memory.tokens import estimate_messages, reported_tokens
from ouro.messages import (
    ATTACHED,
    PIPED,
    SHELL_NOTE,
    Message,
    PerMessage,
    Usage,
    end_reasoning,
)
from ouro.utils.text import clean

_TITLE_WIDTH = 60


def make_title(text: str) -> str:
    """Returns the title for a session that begins with this message: its first words, at most
    `_TITLE_WIDTH` characters. Piped and attached text is left out. For a shell line of the user it
    is the line.
    """
    if text.startswith(SHELL_NOTE):
        text = "! " + text.removeprefix(SHELL_NOTE).partition("\n")[0]
    elif text.startswith((PIPED, ATTACHED)):
        text = text.rstrip().rpartition("\n\n")[2]  # the user's words come last
    words = " ".join(clean(text).split())
    if len(words) <= _TITLE_WIDTH:
        return words
    shortened = words[:_TITLE_WIDTH]
    return (shortened.rpartition(" ")[0] or shortened).rstrip(",;:") + "…"


ShownItem = (
    MessageRecord | CompactionRecord | DropRecord | RecalledRecord | ModelRecord | RewindRecord
)
"""What a user sees of a session, in its order."""


class _Mark(msgspec.Struct, frozen=True):
    """A change of the model, or a rewind, that is shown between messages."""

    record: ModelRecord | RewindRecord
    number_left: int = 0
    """The last number before a rewind; 0 for a change of the model. While that number is on the
    branch again, the rewind is not shown.
    """


class _SentHead(NamedTuple):
    """The beginning of what is sent, as it was made last: it is made again if something changes."""

    compaction: CompactionRecord | None
    kept: list[MessageRecord]
    """The entries that the compaction keeps."""
    messages: list[Message]
    """Both as messages."""


class _Shortener(NamedTuple):
    """Removes from messages the items that the user dropped."""

    dropped: frozenset[str]
    """The items."""
    shorten_all: PerMessage[Message]
    """Returns messages without these items."""


class Transcript(MessageTree):
    """Takes records in the order of the file. Only the order counts; numbers are ids.

    A message without a number, or with a used one, gets a new one.

    Args:
        kept: messages from before the first record that a compaction keeps.
        is_whole: nothing precedes the first record.
        above: new numbers are greater than this.
    """

    def __init__(
        self, kept: Iterable[MessageRecord] = (), *, is_whole: bool = True, above: int = 0
    ) -> None:
        super().__init__(is_whole=is_whole)
        self.title = ""
        self.model = ""
        self.mode = ""
        self.labels: LabelRecord | None = None
        """None: none were saved, or they are not loaded."""
        self.usage = Usage()
        """The usage of all model calls of the session, also in the background and on branches."""
        self.side_calls: dict[str, tuple[int, Usage]] = {}
        """Purpose -> number and usage of model calls outside of turns; only from loaded records."""
        self.pins: frozenset[int] = frozenset()
        """Numbers of messages that survive every compaction word for word."""
        self.captured = 0
        """Capture has read up to the message of this number."""
        self.summary: SummaryRecord | None = None
        self.recalled: dict[int, RecalledRecord] = {}
        """The receipts of recall, by the number of the message."""
        self.fork: ForkRecord | None = None
        """The session from which this one was copied."""
        self.undone: list[int] = []
        """The last number before each rewind, until a message is added."""
        self.notices: list[str] = []
        self.last_at = ""
        self.next_number = above + 1
        """The number for the next message or compaction."""
        self.call_ids: set[str] = set()
        """The ids of all loaded tool calls, also on branches."""
        self.unloaded_turns = 0
        """The number of turns of the branch that were loaded and then removed from memory."""
        self.lacks_branches = not is_whole
        """Whether `branches` may be incomplete: records that are loaded later come without their
        branches.
        """
        self._highest = 0
        """The highest number so far, on any branch."""
        self._asked_since = 0
        """The first message of the current model: token counts of another model come from another
        tokenizer.
        """
        self._marks: dict[int, list[_Mark]] = {}
        """The number of the item before -> the marks."""
        self._head = _SentHead(compaction=None, kept=[], messages=[])
        self._without_reasoning = PerMessage(end_reasoning)
        # It knows the shortened messages, and is used as long as the same items are dropped.
        self._shortener = _Shortener(
            dropped=frozenset(), shorten_all=PerMessage(lambda message: message)
        )
        self._kept = {item.number: item for item in kept}

    @classmethod
    def of(cls, loaded: LoadedSession) -> Transcript:
        """Returns the transcript of a session as it was read. Tool calls without a result get
        one.
        """
        numbered = (record for record in loaded.records if isinstance(record, NumberedRecord))
        highest = max((item.number for item in (*numbered, *loaded.kept)), default=0)
        # New numbers are above all that were read, also on branches that a rewind left.
        transcript = cls(loaded.kept, is_whole=loaded.offset == 0, above=max(0, highest))
        transcript.lacks_branches |= loaded.is_gapped
        transcript.last_at = loaded.header.created_at
        for record in loaded.records:
            transcript.add_record(record)
        transcript.answer_open_calls()
        return transcript

    @property
    def compaction(self) -> CompactionRecord | None:
        """The last compaction with a summary; None if there is none."""
        return next((item for item in reversed(self.current.compactions) if item.summary), None)

    @property
    def dropped(self) -> frozenset[str]:
        """The ids of the calls whose outputs are not sent."""
        return frozenset(
            item.removeprefix(OUTPUT_PREFIX)
            for item in self.dropped_items
            if item.startswith(OUTPUT_PREFIX)
        )

    @property
    def is_complete(self) -> bool:
        """Whether everything that is sent is loaded."""
        compaction = self.compaction
        if self.is_whole or compaction is None:
            return self.is_whole
        items, last_covered = self.items, compaction.covers[1]
        before = items[: items.index(compaction)]
        # The messages between the last covered one and the compaction are sent, too. They are all
        # loaded if a covered message is loaded, which is before them; or if there are none.
        are_none_between = last_covered >= compaction.number - 1
        has_covered = any(item.number <= last_covered for item in before)
        if not are_none_between and not has_covered:
            return False
        return all(self._message_entry(number) is not None for number in compaction.kept)

    def sent_entries(self) -> list[MessageRecord]:
        """Returns the messages that are sent, oldest first: those that the compaction keeps, and
        those that it does not cover. Messages that the user dropped are left out.
        """
        dropped = self.dropped_items
        return [entry for entry in self.sendable_entries() if str(entry.number) not in dropped]

    def sendable_entries(self) -> list[MessageRecord]:
        """Returns the messages that are sent, and those that would be if the user had not dropped
        them, oldest first.
        """
        kept, following = self._kept_and_following()
        return [*kept, *following]

    def sent(self) -> list[Message]:
        """Returns what is sent, before `make_sendable`: the messages that the compaction keeps, its
        summary, and the messages that it does not cover.

        What the user dropped is left out; for a dropped message of the user there is a short text
        instead. Unchanged messages are the same objects as at the last call, so that they are not
        converted again for each request.
        """
        kept, following = self._kept_and_following()
        dropped = self.dropped_items
        messages = self._sent_head([entry for entry in kept if str(entry.number) not in dropped])
        tail = self._tail(following, self.compaction)
        if dropped != self._shortener.dropped:
            self._shortener = _Shortener(dropped, PerMessage(self._make_shorten(following)))
        if not dropped:
            return messages + tail
        for entry, message in zip(following, tail, strict=True):
            if str(entry.number) not in dropped:
                messages.append(message)
            elif entry.message.role == "user" and messages[-1:] != [DROPPED_MESSAGE]:
                # A request must begin with a user message, and have one between two answers.
                messages.append(DROPPED_MESSAGE)
        return self._shortener.shorten_all(messages)

    def _sent_head(self, kept: list[MessageRecord]) -> list[Message]:
        """Returns the `kept` messages and the summary as messages: the same objects as at the last
        call if neither has changed.
        """
        compaction = self.compaction
        if compaction is not self._head.compaction or kept != self._head.kept:
            summary = compaction.summary if compaction else ""
            messages = replace_by_summary([item.message for item in kept], summary, following=[])
            self._head = _SentHead(compaction, kept, messages)
        return list(self._head.messages)

    def _tail(
        self, following: Sequence[MessageRecord], compaction: CompactionRecord | None
    ) -> list[Message]:
        """Returns the messages that the compaction does not cover. Those that are older than the
        compaction come without their reasoning, which belongs to a request that is no longer sent.
        """
        first_new = compaction.number if compaction else 0
        old_messages = [entry.message for entry in following if entry.number < first_new]
        new_messages = [entry.message for entry in following if entry.number >= first_new]
        return [*self._without_reasoning(old_messages), *new_messages]

    def number_before(self, number: int) -> int:
        """Returns the number of the item before the message `number` on the branch. 0 if it is the
        first loaded one, or not on the branch.
        """
        numbers = [item.number for item in self.items]
        position = numbers.index(number) if number in numbers else 0
        return numbers[position - 1] if position > 0 else 0

    def is_loaded(self, number: int) -> bool:
        """Whether the message or compaction with this number is loaded; with 0, whether the start
        of the session is.
        """
        return number in self or (number == 0 and self.is_whole)

    def shown_items(self) -> list[ShownItem]:
        """Returns the loaded branch as it is shown: its items, each followed by the receipt of
        recall and by the changes of the model and rewinds after it.
        """
        items = self.items
        shown: list[ShownItem] = list(self._marks_after(number=0)) if self.is_whole else []
        for position, item in enumerate(items):
            shown.append(item)
            has_next = position + 1 < len(items)
            if has_next and items[position + 1].number == item.number:
                continue  # an inserted tool result with the same number belongs to this item
            if receipt := self.recalled.get(item.number):
                shown.append(receipt)
            shown += self._marks_after(item.number)
        return shown

    def count_tokens(self, constant: int) -> int:
        """Returns the number of tokens of the next request: the last known figure of the current
        model, plus an estimate of the messages that are newer. An answer has the figure that the
        provider reported with it; a compaction has the one after it. Without a figure all messages
        are estimated.

        Args:
            constant: the tokens that every request has besides the messages. A figure of the
                provider includes them.
        """
        newer: list[Message] = []
        for item in reversed(self.items):
            if isinstance(item, MessageRecord):
                figure = reported_tokens(item.message)
            else:
                _tokens_before, figure = item.tokens
            if figure and item.number >= self._asked_since:
                return figure + estimate_messages(newer)
            if isinstance(item, MessageRecord):
                newer.append(item.message)
        return constant + estimate_messages(self.sent())

    @property
    def turns(self) -> int:
        """The number of turns of the branch."""
        return self.unloaded_turns + self.current.turns

    @property
    def kept_entries(self) -> list[MessageRecord]:
        """The messages that the compaction keeps and that are not on the loaded branch."""
        kept, _ = self._kept_and_following()
        return [item for item in kept if item.number not in self]

    def first_needed_message(self, count: int) -> MessageRecord | None:
        """Returns the first message that must stay in memory: the first that is sent, or the first
        of the last `count`, whichever is earlier. None if nothing in memory is before it.
        """
        entries = self.entries
        _, following = self._kept_and_following()
        position = max(0, len(entries) - max(count, len(following)))
        while position and entries[position].message.role == "tool":
            position -= 1  # tool results stay together with their calls
        return entries[position] if position else None

    def release_before(self, first: MessageRecord) -> None:
        """Remove the messages before `first` from memory. Those that the compaction keeps are sent,
        so they stay in `_kept`. Marks, receipts of recall and branches of the removed messages are
        removed, too.
        """
        kept, _ = self._kept_and_following()
        position = self.items.index(first)
        self._kept = {item.number: item for item in kept}
        before = (item.message for item in self.items[:position] if isinstance(item, MessageRecord))
        self.unloaded_turns += sum(map(begins_turn, before))
        self.unload_before(position)
        self.lacks_branches = True
        self.recalled = {
            number: record for number, record in self.recalled.items() if number in self
        }
        self._marks = {number: marks for number, marks in self._marks.items() if number in self}

    def add_record(self, record: Record) -> None:
        """Add the next record of the session, and change the state as its kind demands."""
        self.last_at = max(self.last_at, record.at)
        match record:
            case MessageRecord() | CompactionRecord() | DropRecord() | RewindRecord():
                self._add_to_branch(record)
            case TitleRecord() | ModelRecord() | ModeRecord() | LabelRecord() | PinRecord():
                self._set(record)
            case CostRecord() | ForkRecord():
                self._count(record)
            case CapturedRecord(message):
                self.captured = message
            case SummaryRecord():
                self.summary = record
            case RecalledRecord(message):
                self.recalled[message] = record

    def _add_to_branch(
        self, record: MessageRecord | CompactionRecord | DropRecord | RewindRecord
    ) -> None:
        """Add an item to the current branch, or go to the item that a rewind names."""
        match record:
            case MessageRecord():
                self.append(self._with_unused_number(record, self.unloaded))
                self.call_ids.update(call.id for call in record.message.tool_calls)
                self.undone.clear()
                self.usage += record.message.usage or Usage()
            case CompactionRecord():
                self.append(self._with_unused_number(record, self.unloaded))
                self._take_state_of_compaction(record)
            case DropRecord():
                self.append(self._with_unused_number(record, self.unloaded))
            case RewindRecord():
                self._take_rewind(record)

    def _take_state_of_compaction(self, record: CompactionRecord) -> None:
        """Take what a compaction repeats of earlier records, because these may not be loaded."""
        self.usage = record.spent or self.usage + (record.usage or Usage())
        self.title = self.title or record.title
        self.model = self.model or record.chosen
        self.pins |= frozenset(record.pins)
        self.captured = self.captured or record.captured

    def _set(
        self, record: TitleRecord | ModelRecord | ModeRecord | LabelRecord | PinRecord
    ) -> None:
        """Set what the user, or ouro, has chosen for the session."""
        match record:
            case TitleRecord(title):
                self.title = title
            case ModelRecord(model):
                self.model, self._asked_since = model, self._highest + 1
                self._marks.setdefault(self.last_number, []).append(_Mark(record))
            case ModeRecord(mode):
                self.mode = mode
            case LabelRecord():
                self.labels = record
            case PinRecord(message, _, pinned):
                self.pins = self.pins | {message} if pinned else self.pins - {message}

    def _count(self, record: CostRecord | ForkRecord) -> None:
        """Count the cost of a model call outside of turns. After a fork all counts begin at 0: the
        source session has paid for the copied part.
        """
        match record:
            case CostRecord(purpose, usage=usage):
                self.usage += usage
                calls, spent = self.side_calls.get(purpose, (0, Usage()))
                self.side_calls[purpose] = (calls + 1, spent + usage)
            case ForkRecord():
                self.fork = record
                self.usage = Usage()
                self.side_calls.clear()

    def prepend(self, records: Sequence[Record], *, is_whole: bool) -> tuple[MessageRecord, ...]:
        """Add older records of the branch before those that are loaded; returns their messages.

        Args:
            records: oldest first.
            is_whole: whether nothing precedes them in the session.
        """
        items: list[NumberedRecord] = []
        numbers: set[int] = set()
        for record in records:
            match record:
                case MessageRecord() | CompactionRecord() | DropRecord():
                    items.append(self._with_unused_number(record, numbers))
                    numbers.add(items[-1].number)
                # A mark before the first item is only shown at the start of the session. The branch
                # that an older rewind left is not loaded, so its mark has no `number_left`.
                case ModelRecord() | RewindRecord() if items or is_whole:
                    self._marks.setdefault(items[-1].number if items else 0, []).append(
                        _Mark(record)
                    )
                case RecalledRecord(message):
                    self.recalled.setdefault(message, record)
        self.prepend_items(items, is_whole=is_whole)
        entries = tuple(item for item in items if isinstance(item, MessageRecord))
        for entry in entries:
            self.call_ids.update(call.id for call in entry.message.tool_calls)
        loaded_turns = sum(begins_turn(entry.message) for entry in entries)
        self.unloaded_turns = max(0, self.unloaded_turns - loaded_turns)
        return entries

    def answer_open_calls(self) -> None:
        """Insert results for the tool calls that have none, so that the messages can be sent. A
        result gets the number of the message before it.
        """
        entry_by_message = {id(entry.message): entry for entry in self.entries}
        last_number, answers = 0, dict[int, MessageRecord]()
        for message in answer_open_calls([entry.message for entry in self.entries]):
            if entry := entry_by_message.get(id(message)):
                last_number = entry.number
            else:  # a new result
                answers[last_number] = MessageRecord(last_number, at="", message=message)
        if answers:
            self.insert_answers(answers)

    def _take_rewind(self, record: RewindRecord) -> None:
        """Go to the message that a rewind names. If it does not exist, nothing changes but for a
        notice.

        The number that was the last one before the rewind is added to `undone`, so that a redo can
        return to it. A redo is a rewind to the last number in `undone`, and removes it there.
        """
        if not 0 <= record.to < self.next_number:
            self.notices.append(
                f"A rewind to message {record.to}, which does not exist, is skipped."
            )
            return
        number_before, target = self.last_number, self.find_rewind_target(record.to)
        if self.undone and self.undone[-1] == target:
            self.undone.pop()
        elif number_before not in (0, target):
            self.undone.append(number_before)
        self.go_to(target)
        if number_before:  # else the branch was empty: this rewind has left nothing
            self._marks.setdefault(target, []).append(_Mark(record, number_before))

    def _with_unused_number(self, record: NumberedRecord, used: Collection[int]) -> NumberedRecord:
        """Returns the record, with the next free number if its own is missing, in the transcript,
        or in `used`. New numbers are higher than this one from now on.
        """
        number = record.number
        if number <= 0 or number in self or number in used:
            number = self.next_number
        self.next_number = max(self.next_number, number + 1)
        self._highest = max(self._highest, number)
        return record if number == record.number else replace(record, number=number)

    def _kept_and_following(self) -> tuple[list[MessageRecord], list[MessageRecord]]:
        """Returns two lists, each oldest first: the messages that the compaction keeps, and all
        messages that it does not cover. Without a compaction the second has all messages.
        """
        compaction, items = self.compaction, self.items
        if compaction is None:
            return [], list(self.entries)
        _first_covered, last_covered = compaction.covers
        # The messages between the last covered one and the compaction stay unchanged, too.
        begin = items.index(compaction)
        while begin and items[begin - 1].number > last_covered:
            begin -= 1
        following = [item for item in items[begin:] if isinstance(item, MessageRecord)]
        following_numbers = {item.number for item in following}
        kept_entries = (
            self._message_entry(number)
            for number in compaction.kept
            if number not in following_numbers
        )
        return [item for item in kept_entries if item is not None], following

    def _make_shorten(self, following: Sequence[MessageRecord]) -> Callable[[Message], Message]:
        """Returns a function that removes from a message what the user dropped: outputs of tool
        calls, and notes that were sent with it. A dropped note is named by the number of its
        message and its id, such as `12:mem_…`.

        Args:
            following: the messages whose notes may have been dropped.
        """
        calls = self.dropped
        notes: dict[int, frozenset[str]] = {}  # by the identity of the message
        for entry in following:
            prefix = f"{entry.number}:"
            dropped_notes = [
                item.removeprefix(prefix) for item in self.dropped_items if item.startswith(prefix)
            ]
            if dropped_notes:
                notes[id(entry.message)] = frozenset(dropped_notes)

        def shorten(message: Message) -> Message:
            [without_outputs] = remove_outputs([message], calls)
            return remove_notes(without_outputs, notes.get(id(message), frozenset()))

        return shorten

    def _marks_after(self, number: int) -> Iterable[ModelRecord | RewindRecord]:
        """Returns what is shown after the item with this number: the changes of the model, and the
        last rewind to it. A rewind is not shown if the item that it left (the last one before the
        rewind) is on the branch again.
        """
        marks = self._marks.get(number, ())
        last_rewind = None
        for mark in marks:
            if mark.number_left and mark.number_left not in self._positions:
                last_rewind = mark
        return [mark.record for mark in marks if mark is last_rewind or not mark.number_left]

    def _message_entry(self, number: int) -> MessageRecord | None:
        """Returns the message with this number, on any branch or kept by the compaction; None if it
        is not loaded, or not a message.
        """
        item = self.get(number) or self._kept.get(number)
        return item if isinstance(item, MessageRecord) else None
