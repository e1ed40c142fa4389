"""ApprovalLedger: the approved contents of a memory, written by ouro or accepted by the user.

The ledger is in the state folder, outside of the memory folder: a program can forge a commit with
any author and trailer, or plant a git directory, but it cannot change the ledger by writing into
the memory folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path

from ouro.utils.files import append_private, write_private
from ouro.utils.git import read_git_file

GONE = "-"
"""Stands for the content of a file that was removed."""
APPROVED, _ACCEPTED, _BEFORE = LEDGER_FILES = ("vouched", "accepted", "accepted.before")
_RECORD = re.compile(r"([0-9a-f]{40})(?:\n([0-9a-f]{64}))?\n?")


class ApprovalLedger:
    """The accepted commit, and the contents approved after it. Everything blocks: use from a
    thread.
    """

    def __init__(self, own_dir: Path) -> None:
        self._approved = own_dir / APPROVED
        self._accepted = own_dir / _ACCEPTED
        self._before = own_dir / _BEFORE
        """The previous accepted commit: used if the record of the last one is damaged."""

    def accepted(self) -> tuple[str, str]:
        """The last commit whose files are all approved, and the digest of its files; empty if there
        is none, or an earlier version accepted it.
        """
        return _read(self._accepted) or _read(self._before) or ("", "")

    def has_files(self, files: Mapping[str, str]) -> bool:
        """Whether these (name -> blob) are the files of the accepted commit, as they were when it
        was accepted.

        git does not check the objects that it reads: a tree with the same id may have been forged
        since. A commit that an earlier version accepted has no digest and is not checked.
        """
        digest = self.accepted()[1]
        return not digest or digest == _digest(files)

    @property
    def is_digest_missing(self) -> bool:
        """Whether an earlier version accepted the commit, without a digest."""
        commit, digest = self.accepted()
        return bool(commit) and not digest

    def accept(self, commit: str, files: Mapping[str, str]) -> None:
        """Record that all files of a commit are approved. The record is on disk when this returns."""
        if _read(self._accepted):
            self._accepted.replace(self._before)
        write_private(self._accepted, f"{commit}\n{_digest(files)}\n")

    def forget(self) -> None:
        """Forget the accepted commit. Contents that were approved by blob stay approved."""
        for path in (self._accepted, self._before):
            path.unlink(missing_ok=True)

    def settle(
        self, commit: str, files: Mapping[str, str], still: Set[tuple[str, str]] = frozenset()
    ) -> None:
        """As `accept`, and drop earlier approvals, except `still` as (name, blob).

        Otherwise a file could be reset to an earlier content without notice.
        """
        self.accept(commit, files)
        if still:
            write_private(
                self._approved, "".join(f"{blob} {name}\n" for name, blob in sorted(still))
            )
        else:
            with suppress(FileNotFoundError):
                os.truncate(self._approved, 0)

    def approve(self, contents: Mapping[str, str]) -> None:
        """Approve files by name and blob (GONE: the removal). The record is on disk when this
        returns.
        """
        if contents:
            append_private(
                self._approved, "".join(f"{blob} {name}\n" for name, blob in contents.items())
            )

    def approved(self) -> frozenset[tuple[str, str]]:
        """Everything that was approved since the last `settle`, as (name, blob)."""
        lines = (line.partition(" ") for line in read_git_file(self._approved).splitlines())
        return frozenset((name, blob) for blob, _, name in lines)


def _read(path: Path) -> tuple[str, str] | None:
    """A commit and the digest of its files; None if there is no record, or a crash left it empty or
    with NULs.
    """
    found = _RECORD.fullmatch(read_git_file(path))
    return (found[1], found[2] or "") if found else None


def _digest(files: Mapping[str, str]) -> str:
    lines = "".join(f"{blob} {name}\0" for name, blob in sorted(files.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
