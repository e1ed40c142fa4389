"""Where the words of a shell line lead: the folders that it may stand in, and the paths that its words may name."""

from __future__ import annotations

import glob
import re
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ouro.safety import protected
from ouro.safety.shell.parse import Line
from ouro.safety.shell.words import Command, Word
from ouro.safety.workspace import Workspace
from ouro.utils.git import Git, GitError

_MOST_FOLDERS = 16
_MOST_MATCHES = 1000
_GIT_SECONDS = 1.0
HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero"})


class Places:
    """The paths of one line. A `cd` anywhere in it makes every relative path mean several."""

    def __init__(self, workspace: Workspace, line: Line) -> None:
        self.workspace = workspace
        self.folders = [workspace.root]
        self.lost = False
        """It changes to a folder that cannot be known."""
        for command in line.commands:
            if command.program in ("cd", "pushd") and command.kind != "guess":
                targets = [word for word in command.arguments if not re.match(r"-[LPe@]*$", word.text)]
                self._move(targets[0] if targets else Word("~"))

    def _move(self, target: Word) -> None:
        self.lost = self.lost or not target.exact or target.text == "-" or len(self.folders) > _MOST_FOLDERS
        self.folders = list(dict.fromkeys([*self.folders, *self.named(target.text)]))[: _MOST_FOLDERS + 1]

    def named(self, text: str) -> list[Path]:
        """The real paths that `text` may name."""
        if text.startswith(("/", "~")):
            return [self.workspace.resolve(text)]
        return [self.workspace.resolve(str(folder / text)) for folder in self.folders]

    def read(self, word: Word) -> Iterator[Path]:
        """The real paths that a word stands for where it is read, file patterns expanded."""
        if not word.glob:
            yield from self.named(word.text)
            return
        for start in self.named(_before_pattern(word.text)):
            yield start
            if self.workspace.is_inside(start):
                pattern = str(start / word.text[len(_before_pattern(word.text)) :])
                found = islice(glob.iglob(pattern, include_hidden=True), _MOST_MATCHES)  # noqa: PTH207 - keeps no order
                yield from (self.workspace.resolve(each) for each in found)

    def program_of_git(self, command: Command) -> str:
        """The setting of a repository by which a git that only reads would run a program; empty where there is none."""
        texts = [word.text for word in command.arguments]
        moved = [texts[at + 1] for at, text in enumerate(texts[:-1]) if text == "-C"]
        for folder in dict.fromkeys([*self.folders, *(path for text in moved for path in self.named(text))]):
            try:
                found = Git(folder, _GIT_SECONDS).own_programs() if folder.is_dir() else []
            except GitError as error:
                found = [str(error)]
            if found:
                return found[0]
        return ""

    def is_outside(self, path: Path) -> bool:
        """The workspace does not cover it."""
        return not self.workspace.is_inside(path) and str(path) not in HARMLESS_DEVICES

    def is_temporary(self, path: Path) -> bool:
        """It lies below a folder for temporary files, not among keys or start files."""
        roots = {Path(each).resolve() for each in (tempfile.gettempdir(), "/tmp", "/var/tmp")}  # noqa: S108
        kept = path.is_relative_to(self.workspace.resolve("~")) or self.workspace.protection(path)
        return any(root in path.parents for root in roots) and not kept

    def holds_keys(self, path: Path) -> bool:
        """Keys, or ouro's own settings and sessions, are kept there."""
        system = str(path).startswith(("/proc", "/sys", "/dev"))
        kept = any(protected.is_under(path, area) for area in protected.reserved())
        return kept and not system and not self.workspace.is_inside(path)

    def whole(self, text: str) -> str:
        """Which whole thing a path names, where it is one that nobody removes lightly; else empty."""
        root, home = self.workspace.root, self.workspace.resolve("~")
        for path in self.named(text):
            if path.name == ".git":
                return "the repository's history"
            if path == root:
                return "the whole workspace"
            if path in root.parents or path in home.parents or path == home:
                return str(path)
        return ""


def removes_too_much(places: Places, word: Word) -> str:
    """What is never removed without a question, where `word` names that or may name it; else empty."""
    if not word.exact and not word.glob:
        return f"{word.text}, whatever that stands for"
    if re.fullmatch(r"(\./)*(\.?\*+|\.\[.*|\?+\*?)(/\*+)*", word.text):
        return f"{word.text}: everything there is"
    start = _before_pattern(word.text)
    everything_below = word.glob and re.fullmatch(r"\.?\*+(/.*)?", word.text[len(start) :])
    if (not word.glob or everything_below) and (whole := places.whole(start if word.glob else word.text)):
        return whole
    for path in places.named(start if word.glob else word.text):
        if places.is_outside(path) and not places.is_temporary(path):
            return f"{places.workspace.shown(path)}, outside the workspace"
    return ""


def _before_pattern(text: str) -> str:
    """The folder part of a file pattern that holds no pattern, with its slash."""
    folder, slash, _ = re.split(r"[*?\[]", text)[0].rpartition("/")
    return folder + slash
