"""TurnDiffs: what turns changed in files, as diffs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from ouro.safety.checkpoints.checkpoint_repository import CheckpointError
from ouro.safety.checkpoints.checkpoints import Checkpoints, TurnFiles, state_and_content
from ouro.safety.checkpoints.trees import TreeChange, changes_between, small_trees
from ouro.utils.git import PREFIXES


class TurnDiffs:
    """The diffs of turns in the workspace of `checkpoints`. Everything blocks: use from a thread."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._repository = checkpoints.repository

    def diff(self, turns: Sequence[TurnFiles]) -> str:
        """Returns what changed since the first of `turns`, also by others, as a unified diff. After
        `@@ … @@` each hunk has its id, for `Undo.undo_hunk`.
        """
        with self._repository.lock():
            return "".join(self.pieces(turns))

    def shown_diff(self, turns: Sequence[TurnFiles]) -> str:
        """Returns what changed since the first of `turns`, also by others, as git writes it."""
        with self._repository.lock():
            return self._diff_text(self._changes_since(turns).values())

    def turn_diff(self, turn: TurnFiles) -> str:
        """Returns what one turn changed, as a diff of git."""
        with self._repository.lock():
            return self._diff_text(self._checkpoints.turn_changes(turn).files.values())

    def blob_size(self, name: str) -> int | None:
        """Returns the number of bytes of a content by its id, which a diff names; None if the
        repository does not have it.
        """
        try:
            return int(self._repository.git("cat-file", "-s", name))
        except (CheckpointError, ValueError):
            return None

    def pieces(self, turns: Sequence[TurnFiles], path: str = "") -> Iterator[str]:
        """Yields the text of `diff` in pieces: the head of a file, then each of its hunks with its
        id, which is a hash of the lines. The caller holds the lock of the repository.

        Args:
            path: the only file to show; empty: all.
        """
        changes = self._changes_since(turns)
        if path:
            changes = {path: changes[path]} if path in changes else {}
        text = self._diff_text(changes.values(), "--no-renames")
        for piece in re.split(r"^(?=diff --git |@@ )", text, flags=re.MULTILINE):
            head, newline, body = piece.partition("\n")
            if piece.startswith("@@ "):
                hunk_id = hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:4]
                # Without the line of the file that git writes after the second `@@`.
                ranges = head.split("@@")[1]
                yield f"@@{ranges}@@ #{hunk_id}{newline}{body}"
            else:
                yield piece

    def _diff_text(self, changes: Iterable[TreeChange], *options: str) -> str:
        """Returns the changes as a diff of git, with these `options`."""
        old, new = small_trees(self._repository, tuple(changes))
        words = ("diff", "--no-ext-diff", "--no-color", *PREFIXES, *options, old, new, "--")
        return self._repository.git(*words, strip=False)

    def _changes_since(self, turns: Sequence[TurnFiles]) -> dict[str, TreeChange]:
        """Returns the files that differ now from what they were before the first of `turns`, by
        their names. The present contents are written into the repository.
        """
        changes: dict[str, TreeChange] = {}
        first = next((turn.before for turn in turns if turn.before), "")
        if first:
            now = self._checkpoints.index.refresh()
            for change in changes_between(self._repository, first, now.tree):
                if change.path not in now.left_out:
                    changes[change.path] = change
        # The last turn first: the state before the first one that changed a file remains.
        for turn in sorted(turns, key=lambda turn: -turn.number):
            for name, change in self._checkpoints.turn_changes(turn).files.items():
                state, content = state_and_content(self._checkpoints.root / name)
                changes.pop(name, None)
                if state is not None and state != change.old:
                    self._repository.write_object("blob", content)
                    changes[name] = TreeChange(name, *change.old, *state)
        return changes
