"""SessionLabels: what lists show of a session: tags, a pin, the branch, the number of changed files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ouro.display import Diff
from ouro.errors import UsageError
from ouro.memory.backend import LabelRecord, SessionInfo
from ouro.memory.manager import MemoryManager
from ouro.messages import Message, ToolReply
from ouro.utils.git import git_branch
from ouro.utils.late_pattern import late_pattern

_TAG_WORD = late_pattern(r"[\w][\w.:/+-]{0,38}")


class SessionLabels:
    """The labels of the open session.

    Args:
        info: the session as lists have it; None for a new session.
        headless: whether a program uses the session, and no user.
    """

    def __init__(
        self, memory: MemoryManager, cwd: Path, info: SessionInfo | None, *, headless: bool = False
    ) -> None:
        self._memory = memory
        self._cwd = cwd
        self._is_headless = headless
        labels = memory.transcript.labels
        # The record of the labels may be in a part of the session that is not loaded.
        if labels is None and info is not None:
            labels = LabelRecord(
                info.tags,
                at="",
                pinned=info.pinned,
                branch=info.branch,
                files=info.files,
                headless=info.headless,
            )
        self._labels = labels or LabelRecord(tags=(), at="")
        self._is_new = info is None or info.id != memory.session_id  # a fork is new, too
        self._last_read: Message | None = None
        """The last message whose calls are in `_changed`, with those of all before it."""
        self._changed = set[str]()
        """The files that tools changed, according to the messages read so far."""
        self._read_new_messages()
        self._changed_before = max(0, self._labels.files - len(self._changed))
        """How many files were changed in messages that are not loaded."""

    @property
    def tags(self) -> tuple[str, ...]:
        return self._labels.tags

    @property
    def pinned(self) -> bool:
        return self._labels.pinned

    def begin(self) -> None:
        """Record that a new session is headless, so that lists know it during the first turn."""
        if self._is_headless and self._is_new:
            self._record_labels(replace(self._labels, headless=True))

    def after_turn(self) -> None:
        """Record the git branch, the number of files that tools changed, and that a user has used
        the session, unless that was recorded last.
        """
        self._read_new_messages()
        files = self._changed_before + len(self._changed)
        labels = replace(self._labels, branch=git_branch(self._cwd), files=files)
        if not self._is_headless:
            labels = replace(labels, headless=False)
        self._record_labels(labels)

    def tag(self, added: Sequence[str], removed: Sequence[str] = ()) -> None:
        """Add tags and remove others; each tag is there once, in the order in which they were
        added.
        """
        remaining_tags = [tag for tag in self.tags if tag not in removed]
        tags = tuple(dict.fromkeys([*remaining_tags, *added]))
        self._record_labels(replace(self._labels, tags=tags))

    def pin(self, *, pinned: bool) -> None:
        self._record_labels(replace(self._labels, pinned=pinned))

    def _record_labels(self, labels: LabelRecord) -> None:
        """Record labels in the session, unless they are the recorded ones."""
        if labels != self._labels:
            self._labels = replace(labels, at=self._memory.now())
            self._memory.record_later(self._labels)

    def _read_new_messages(self) -> None:
        """Add the files that tools changed in the messages after `_last_read` to `_changed`. If that
        message is gone, after a rewind or a compaction, all loaded messages are read.
        """
        messages = self._memory.messages()
        for message in reversed(messages):
            if message is self._last_read:
                break
            for reply in message.parts_of(ToolReply):
                body = reply.display.body if reply.display and not reply.failed else None
                if isinstance(body, Diff):
                    self._changed.update(change.path for change in body.changes)
        self._last_read = messages[-1] if messages else None


def read_tags(text: str) -> tuple[list[str], list[str]]:
    """The tags in a text that the user typed: first those to add, then those to remove, which begin
    with `-`. A tag may be written with `#`. Raises UsageError for a word that is no tag.
    """
    added, removed = list[str](), list[str]()
    for word in text.split():
        name = word.removeprefix("-").removeprefix("#")
        if not _TAG_WORD.fullmatch(name):
            raise UsageError(f"`{word}` is not a tag.", "A tag is one word: /tag parser")
        if word.startswith("-"):
            removed.append(name)
        else:
            added.append(name)
    return added, removed
