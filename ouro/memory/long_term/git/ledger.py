"""Which contents of memory are vouched for: written by ouro's own hand, or accepted by the person.

It is kept beside the history, out of the memory folder: a trailer or an author of a commit can be forged by whatever
runs in a shell, a line here cannot by a program that only writes into the memory folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ouro.utils.files import write_private

GONE = "-"
"""Stands for the content of a file that was removed."""
_MOST_BYTES = 1 << 20


class ApprovalLedger:
    """The accepted commit, and what was vouched for since. Everything blocks: use from a thread."""

    def __init__(self, folder: Path) -> None:
        self._vouched = folder / "vouched"
        self._accepted = folder / "accepted"

    @property
    def accepted(self) -> str:
        """The last commit of which every line is vouched for; empty where there is none."""
        try:
            return self._accepted.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def accept(self, commit: str) -> None:
        """The person, or ouro, vouches for all that is in a commit."""
        made = self._accepted.with_name(f"accepted.{os.getpid()}.{threading.get_ident()}")
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(f"{commit}\n")
        made.replace(self._accepted)

    def settle(self, commit: str) -> None:
        """As `accept`, where all that is in the folder is in that commit: what was vouched for before counts no more,
        or a file could be put back to what it was unnoticed."""
        self.accept(commit)
        with suppress(FileNotFoundError):
            os.truncate(self._vouched, 0)

    def approve(self, contents: Mapping[str, str]) -> None:
        """Vouch for files by name and blob (GONE: for the removal). Kept also when ouro is killed right after.

        Not waited for the disk: what a power cut takes from here is shown to the person as an edit from outside.
        """
        if not contents:
            return
        if self._size() > _MOST_BYTES:
            # What is that old was committed and accepted long ago.
            lines = self._vouched.read_text().splitlines()
            write_private(self._vouched, "".join(f"{line}\n" for line in lines[len(lines) // 2 :]))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._vouched, flags, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{blob} {name}\n" for name, blob in contents.items()))

    def approved(self) -> frozenset[tuple[str, str]]:
        """All that was vouched for, as (name, blob)."""
        try:
            lines = self._vouched.read_text(errors="replace").splitlines()
        except OSError:
            return frozenset()
        parted: Iterable[tuple[str, str, str]] = (line.partition(" ") for line in lines)
        return frozenset((name, blob) for blob, _, name in parted)

    def _size(self) -> int:
        try:
            return self._vouched.stat().st_size
        except OSError:
            return 0
