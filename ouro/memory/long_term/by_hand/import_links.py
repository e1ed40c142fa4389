"""Lines like `@docs/testing.md` in an instruction file: the files that it takes in, as Claude Code does.

Lines of their own, paths from the file's folder or from home, four files deep, nothing in code blocks:
https://code.claude.com/docs/en/memory (CLAUDE.md imports).
"""

from __future__ import annotations

import re
from pathlib import Path

from ouro.memory.long_term.git.values import SkippedFile
from ouro.utils.repository import find_root

NAMED = re.compile(r"@\S+(?:\n@\S+)*")
"""A paragraph that names files and says nothing else."""
MOST_DEEP = 4
"""Files that name one another, from the first one on."""
_LINE = re.compile(r"^(?:[-*+] )?@(\S+)[ \t]*$", re.MULTILINE)
_NOT_READ = re.compile(r"<!--.*?(?:-->|\Z)|^\s*(```|~~~).*?(?:^\s*\1|\Z)", re.DOTALL | re.MULTILINE)
_TEXTS = (".md", ".mdc", ".markdown", ".txt")


def named_files(path: Path, text: str, depth: int) -> tuple[list[Path], list[SkippedFile]]:
    """The files that `text`, which stands in `path`, takes in; and those that are not read, with the reason.

    Args:
        path: an absolute one. Only what lies in its repository, or else in its folder, or in `~/.claude`, is taken.
        depth: so many files led to this one.
    """
    found: list[Path] = []
    skipped: list[SkippedFile] = []
    names = _LINE.findall(_NOT_READ.sub("", text)) if path.suffix in _TEXTS else []
    for name in dict.fromkeys(names):
        file = (path.parent / Path(name).expanduser()).resolve()
        if reason := _refused(path, file, depth):
            skipped.append(SkippedFile(f"@{name} in {path.name}", reason))
        else:
            found.append(file)
    return found, skipped


def _refused(path: Path, file: Path, depth: int) -> str:
    allowed = (find_root(path.parent), (Path.home() / ".claude").resolve())
    if not any(folder in file.parents for folder in allowed):
        return f"{file} lies outside of the project: import it by its name"
    if not file.is_file():
        return f"there is no file {file}"
    if file.suffix not in _TEXTS:
        return "it is no Markdown or text"
    return f"over {MOST_DEEP} files deep: import it by its name" if depth >= MOST_DEEP else ""
