"""MessageTree: the messages of a session with their branches, as far as they are loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ouro.memory.backend import CompactionRecord, DropRecord, MessageRecord, NumberedRecord
from ouro.messages import Message

_NOT_LOADED = -1
"""Used as the number before an item if the preceding item is not loaded."""
OUTPUT_PREFIX = "call:"
"""The prefix of an item that is a tool output."""


class TranscriptBranch(msgspec.Struct, frozen=True):
    """A branch that a rewind left."""

    since: int
    """The number of the message after which it leaves the current branch; 0: the start."""
    entries: tuple[MessageRecord, ...]
    """The branch's own messages, oldest first; a rewind to the last one restores the branch."""


class _Node(msgspec.Struct, frozen=True):
    """An item with its predecessor."""

    item: NumberedRecord
    before: int
    """The number of the item before it; 0: it is the first item."""


def begins_turn(message: Message) -> bool:
    """Whether a message is one of the user, with text."""
    return message.role == "user" and bool(message.text)


class CurrentBranch(msgspec.Struct, frozen=True):
    """The loaded part of the current branch, with what is computed from it."""

    entries: tuple[MessageRecord, ...]
    """Its messages, oldest first."""
    compactions: tuple[CompactionRecord, ...]
    dropped: frozenset[str]
    """The items that are not sent, in the notation of DropRecord."""
    turns: int
    """How many of the messages begin a turn."""
    last_prompt: int
    """The number of the last message that begins a turn; 0: none does."""

    def followed_by(self, entry: MessageRecord) -> CurrentBranch:
        """Returns the branch with one more message. Not all is computed again: that took 2 ms for
        each tool call in a long session.
        """
        turns, last_prompt = self.turns, self.last_prompt
        if begins_turn(entry.message):
            turns, last_prompt = turns + 1, entry.number
        return CurrentBranch(
            (*self.entries, entry), self.compactions, self.dropped, turns, last_prompt
        )


class MessageTree:
    """Messages, compactions and drops, each with its number and its predecessor.

    `is_whole`: nothing precedes the first item.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self.items: list[NumberedRecord] = []
        """The items of the current branch, oldest first."""
        self._nodes: dict[int, _Node] = {}
        self._positions: dict[int, int] = {}
        """Number -> position in `items`."""
        self._current: CurrentBranch | None = None
        """The branch of `items`; None if they have changed since."""
        self._before_next = 0 if is_whole else _NOT_LOADED
        """With an empty branch, the number before the next item. That item may not be loaded."""
        self.unloaded: set[int] = set()
        """The numbers that a rewind named while they were not loaded: no other item may get one of
        them.
        """

    @property
    def current(self) -> CurrentBranch:
        """The current branch; computed at the first use after a change."""
        if self._current is None:
            entries = tuple(item for item in self.items if isinstance(item, MessageRecord))
            compactions = tuple(item for item in self.items if isinstance(item, CompactionRecord))
            dropped = self._find_dropped()
            prompts = [entry.number for entry in entries if begins_turn(entry.message)]
            last_prompt = prompts[-1] if prompts else 0
            self._current = CurrentBranch(
                entries,
                compactions,
                dropped=frozenset(dropped),
                turns=len(prompts),
                last_prompt=last_prompt,
            )
        return self._current

    def _find_dropped(self) -> set[str]:
        """Returns the items of the branch that are not sent any more, in the notation of
        DropRecord.
        """
        dropped: set[str] = set()
        for item in self.items:
            if isinstance(item, CompactionRecord):
                dropped.update(f"{OUTPUT_PREFIX}{call}" for call in item.dropped)
            elif isinstance(item, DropRecord):
                if item.restored:
                    dropped.difference_update(item.items)
                else:
                    dropped.update(item.items)
        return dropped

    @property
    def entries(self) -> tuple[MessageRecord, ...]:
        """The loaded messages of the current branch, oldest first."""
        return self.current.entries

    @property
    def dropped_items(self) -> frozenset[str]:
        """The items of the loaded branch that are not sent, in the notation of DropRecord."""
        return self.current.dropped

    @property
    def last_prompt(self) -> int:
        """The number of the message that began the last turn; 0 if none is loaded."""
        return self.current.last_prompt

    @property
    def last_number(self) -> int:
        """The number of the last item of the branch; 0 if it is empty."""
        return self.items[-1].number if self.items else 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing precedes the first loaded item."""
        return self._before_first == 0

    @property
    def _before_first(self) -> int:
        """The number before the first item of the branch, or before the next one if it is empty."""
        return self._nodes[self.items[0].number].before if self.items else self._before_next

    def __contains__(self, number: int) -> bool:
        return number in self._nodes

    def get(self, number: int) -> NumberedRecord | None:
        """Returns the item with a number, on any branch; None if it is not loaded."""
        node = self._nodes.get(number)
        return node.item if node else None

    def append(self, item: NumberedRecord) -> None:
        """Add an item after the last one of the current branch."""
        number_before = self.last_number or self._before_next
        self._nodes[item.number] = _Node(item, number_before)
        self._positions[item.number] = len(self.items)
        self.items.append(item)
        # After a message the computed branch is only extended. After a compaction or a drop it is
        # computed again at its next use.
        branch_before, self._current = self._current, None
        if branch_before and isinstance(item, MessageRecord):
            self._current = branch_before.followed_by(item)

    def prepend_items(self, items: Sequence[NumberedRecord], *, is_whole: bool) -> None:
        """Add items that are older than all loaded ones; `items` has the oldest first. `is_whole`
        is whether nothing precedes them.

        The current branch begins with those of them that it follows. If it continues after an older
        item, because a rewind went back to that, these are the items up to that one.
        """
        number_before = 0 if is_whole else _NOT_LOADED
        # The first loaded item: its predecessor is the last new item.
        first_loaded = next(
            (number for number, node in self._nodes.items() if node.before == _NOT_LOADED), None
        )
        for item in items:
            self._nodes[item.number] = _Node(item, number_before)
            number_before = item.number
        if first_loaded is not None:
            self._nodes[first_loaded] = replace(self._nodes[first_loaded], before=number_before)
        elif self._before_next == _NOT_LOADED:
            self._before_next = number_before

        # The new items on the current branch: from where it begins back to the oldest.
        items_before, _start = self._path(self._before_first, until=())
        self._set_items([*items_before, *self.items])

    def unload_before(self, position: int) -> None:
        """Remove the items before `items[position]` from memory, and the branches that start before
        it. What follows that item on any branch stays.
        """
        self._set_items(self.items[position:])
        first = self.items[0].number
        followers: dict[int, list[int]] = {}  # number -> the numbers of the items after it
        for number, node in self._nodes.items():
            followers.setdefault(node.before, []).append(number)
        kept_nodes: dict[int, _Node] = {}
        numbers_to_visit = [first]
        while numbers_to_visit:
            number = numbers_to_visit.pop()
            kept_nodes[number] = self._nodes[number]
            numbers_to_visit += followers.get(number, ())
        kept_nodes[first] = replace(kept_nodes[first], before=_NOT_LOADED)
        self._nodes = kept_nodes

    def insert_answers(self, answers: Mapping[int, MessageRecord]) -> None:
        """Insert tool results that are not in the session file. Each is inserted after the message
        whose number is its key; the result has the same number.
        """
        items: list[NumberedRecord] = []
        for item in self.items:
            items.append(item)
            answer = answers.get(item.number)
            if answer is not None:
                items.append(answer)
        self._set_items(items)

    def go_to(self, number: int) -> None:
        """Let the current branch end with the item of that number, which may be on another branch;
        0 is the start, without items. If the item is not loaded, the loaded part is empty.
        """
        path, since = self._path(number, self._positions)
        # Go back to `since`: there the branch of the item leaves the current one.
        self._before_next = since
        if since > 0 and since not in self._nodes:
            self.unloaded.add(since)
        kept_count = self._positions[since] + 1 if since in self._positions else 0
        for item in self.items[kept_count:]:
            self._positions.pop(item.number, None)
        del self.items[kept_count:]
        self._current = None

        # Then forward to the item.
        for item in path:
            self._positions[item.number] = len(self.items)
            self.items.append(item)

    def find_rewind_target(self, number: int) -> int:
        """Returns the number that a rewind to `number` goes to: itself if there is such an item;
        otherwise the next lower number, or 0, the start.

        It is `number` too if no lower one is loaded, but items are missing: it may be one of them.
        """
        if number == 0 or number in self._nodes:
            return number
        lower = [other for other in self._nodes if other < number]
        if lower:
            return max(lower)
        predecessors = {node.before for node in self._nodes.values()} or {self._before_next}
        are_all_loaded = predecessors <= self._nodes.keys() | {0}
        return 0 if are_all_loaded else number

    def entries_to(self, number: int) -> tuple[MessageRecord, ...]:
        """Returns the messages, oldest first, that would be added to the current branch by a call
        of `go_to` with this number.
        """
        path, _branch_point = self._path(number, self._positions)
        return tuple(item for item in path if isinstance(item, MessageRecord))

    @property
    def branches(self) -> tuple[TranscriptBranch, ...]:
        """The loaded branches that a rewind left and that have messages, in the order in which they
        leave the current branch.
        """
        positions = self._positions
        followed = {node.before for node in self._nodes.values()}
        # A branch ends with an item that no other follows, and that is not on the current branch.
        last_numbers = self._nodes.keys() - followed - positions.keys()
        branches: list[TranscriptBranch] = []
        for number in last_numbers:
            path, since = self._path(number, positions)
            if entries := tuple(item for item in path if isinstance(item, MessageRecord)):
                branches.append(TranscriptBranch(max(since, 0), entries))
        branches.sort(
            key=lambda branch: (positions.get(branch.since, -1), branch.entries[0].number)
        )
        return tuple(branches)

    def _set_items(self, items: list[NumberedRecord]) -> None:
        """Replace the items of the current branch."""
        self.items = items
        self._current = None
        self._positions = {item.number: position for position, item in enumerate(items)}

    def _path(self, number: int, until: Collection[int]) -> tuple[list[NumberedRecord], int]:
        """Follow the items back from the item `number`, until one in `until` is reached.

        Returns the items on the way, oldest first, without the one in `until`; and the number where
        the path ended. This is a number in `until`, 0 at the start of the session, or the number of
        an item that is not loaded (`_NOT_LOADED` if it is not known).
        """
        path: list[NumberedRecord] = []
        while number in self._nodes and number not in until:
            node = self._nodes[number]
            path.append(node.item)
            number = node.before
        return path[::-1], number
