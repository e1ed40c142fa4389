"""GuardedMemory: a folder of long-term memory, and the check that its git settings are those of ouro."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ouro.safety import protected
from ouro.utils.files import read_start
from ouro.utils.late_pattern import late_pattern

GIT_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tlogAllRefUpdates = true
\thooksPath = /dev/null
\tfsmonitor = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tautocrlf = false
\tsafecrlf = false
\tfileMode = false
\tquotePath = false
\tfsync = committed,loose-object,reference
[user]
\tname = ouro
\temail = ouro@localhost
[commit]
\tgpgSign = false
\ttemplate = /dev/null
[tag]
\tgpgSign = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
"""The settings of a memory's history: plain git works there, and runs nothing, whatever the user's own settings are."""
_HARMLESS = late_pattern(
    r"\s*|[#;].*|\[(remote|branch) \"[\w./-]+\"\]|\s*(url|fetch|pushurl|remote|merge) = [\w./:@~+*-]+"
)
"""What the user may have added to them: where to sync to."""
_ACTING = (
    "commondir", "config.worktree", "hooks", "info/attributes", "info/grafts", "refs/replace",
    "objects/info/alternates",
)  # fmt: skip
_NAME = late_pattern(r"(?:archive/)?[^/.\x00-\x1f\x7f][^/\x00-\x1f\x7f]*\.md")
_MAX_BYTES = 1 << 16


class GuardedMemory(msgspec.Struct, frozen=True):
    """The folder of one memory with links resolved, and the folder of its approval records."""

    path: Path
    state_dir: Path | None = None
    """None where the host repository shares the folder. An earlier version kept the git directory there."""

    def holds(self, path: Path) -> bool:
        """Whether a real path is in the folder, or the folder itself."""
        return protected.is_under(path, self.path)

    def keeps(self, path: Path) -> bool:
        """Whether a real path is a memory file: a regular Markdown file without further hard links."""
        if not self.holds(path) or not _NAME.fullmatch(os.path.relpath(path, self.path)):
            return False
        try:
            found = path.lstat()
        except OSError:
            return True
        return stat.S_ISREG(found.st_mode) and found.st_nlink == 1

    def tampered(self) -> str:
        """Why a git command in the folder might run other programs; empty if it cannot."""
        if self.state_dir is None:
            return "the host repository keeps this memory"
        git_dir = self.path / ".git"
        if not git_dir.is_dir() or git_dir.is_symlink():
            named = read_start(git_dir, _MAX_BYTES, os.O_NOFOLLOW).removeprefix("gitdir: ").strip()
            if not named or os.path.realpath(self.path / named) != os.path.realpath(self.state_dir):
                return f"{git_dir} is not ouro's"
            git_dir = self.state_dir
        if found := next((name for name in _ACTING if os.path.lexists(git_dir / name)), ""):
            return f"{git_dir / found} is not ouro's"
        own = set(GIT_CONFIG.splitlines())
        lines = read_start(git_dir / "config", _MAX_BYTES, os.O_NOFOLLOW).splitlines()
        strange = next((line for line in lines if line not in own and not _HARMLESS.fullmatch(line)), "")
        if strange or not own.issubset(lines):
            return f"the settings in {git_dir / 'config'} are not ouro's"
        return next((f"{path} names programs" for path in self._acting_below()), "")

    def _acting_below(self) -> Iterator[Path]:
        """Files that git obeys: attributes, and nested repositories, whose settings `git status` reads."""
        for root, folders, files in os.walk(self.path):
            if Path(root) == self.path and ".git" in folders:
                folders.remove(".git")
            names = {name.casefold(): name for name in (*folders, *files)}
            acting = {".gitattributes", ".git"} if Path(root) != self.path else {".gitattributes"}
            yield from (Path(root, names[name]) for name in sorted(acting & names.keys()))
