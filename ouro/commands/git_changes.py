"""What differs from the last commit, as git tells it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.errors import UsageError
from ouro.utils.git import Git, GitError

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MAX_CHARACTERS = 200_000
MAX_NEW_FILES = 200
SECONDS = 20.0


async def changes(folder: Path) -> str:
    """The unified diff of the working tree against the last commit, files that git does not know among it.

    Raises:
        UsageError: the folder is not in a git repository, or git does not answer.
    """
    try:
        return await asyncio.to_thread(_changes, Git(folder, SECONDS))
    except GitError as error:
        raise UsageError(f"git did not tell what has changed: {error}.") from error


def _changes(git: Git) -> str:
    if not git.ask("rev-parse", "--git-dir"):
        raise UsageError("This folder is not in a git repository, so there is nothing to compare with.")
    base = "HEAD" if git.ask("rev-parse", "--verify", "--quiet", "HEAD") else EMPTY_TREE
    known = git.ask("diff", base)
    names = git.paths("--others", "--exclude-standard")
    new = [git.ask("diff", "--no-index", "--", "/dev/null", name) for name in names[:MAX_NEW_FILES]]
    if len(names) > MAX_NEW_FILES:
        new.append(f"… and {len(names) - MAX_NEW_FILES} more new files")
    text = "".join((known, *new))
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}\n… cut: the diff is larger than that"
