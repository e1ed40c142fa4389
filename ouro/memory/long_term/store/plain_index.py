"""PlainIndex: what plain git, run by a person or the agent, takes for the state of the last commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.store.git_process import last_line, run_git
from ouro.memory.long_term.store.memory_files import blob_id
from ouro.utils.log import log
from ouro.utils.private_files import write_private


class PlainIndex:
    """The index in a git directory. It has to know of our commits, else the next one of plain git takes them back."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir
        self._index = git_dir / "index"
        self._behind = git_dir / "ouro" / "index-behind"

    def tell(self, commit: str, changes: Mapping[str, bytes | None]) -> None:
        """A commit was made that changed these files."""
        lines = [
            f"0 {'0' * 40}\t{name}" if data is None else f"100644 {blob_id(data)}\t{name}"
            for name, data in changes.items()
        ]
        try:
            if self._behind.exists() or not self._index.exists():
                raise MemoryUnusable("the index must be made anew")
            self._git("update-index", "-z", "--add", "--index-info", given="\0".join([*lines, ""]).encode())
        except MemoryUnusable as error:
            log.info("memory: %s", error)
            self.remake(commit)

    def remake(self, commit: str) -> None:
        """Make it anew from a commit; where somebody holds it, that is done with the next one."""
        made = self._git_dir / "ouro" / f"index.{os.getpid()}"
        try:
            if (self._git_dir / "index.lock").exists():  # a person's git, with an editor open perhaps
                raise MemoryUnusable("index.lock is there")
            self._git("read-tree", commit, index=made)
            made.replace(self._index)
            self._behind.unlink(missing_ok=True)
        except (MemoryUnusable, OSError) as error:
            log.info("memory: the index stays behind: %s", error)
            made.unlink(missing_ok=True)
            write_private(self._behind, f"{commit}\n")

    def _git(self, *arguments: str, given: bytes = b"", index: Path | None = None) -> None:
        done = run_git(self._git_dir, arguments, given, index)
        if done.returncode:
            raise MemoryUnusable(f"git says `{last_line(done.stderr)}`")
