"""What differs from the last commit, as git tells it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.errors import UsageError

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MAX_CHARACTERS = 200_000
MAX_NEW_FILES = 200
# The repository's own settings must not run anything: no watcher, no hooks, no diff or text programs.
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks", "--no-pager")
_DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")


async def changes(folder: Path) -> str:
    """The unified diff of the working tree against the last commit, files that git does not know among it.

    Raises:
        UsageError: the folder is not in a git repository, or there is no git.
    """
    if not await _git(folder, "rev-parse", "--git-dir"):
        raise UsageError("This folder is not in a git repository, so there is nothing to compare with.")
    base = "HEAD" if await _git(folder, "rev-parse", "--verify", "--quiet", "HEAD") else EMPTY_TREE
    known = await _git(folder, *_DIFF, base)
    listed = await _git(folder, "ls-files", "--others", "--exclude-standard", "-z")
    names = [name for name in listed.split("\0") if name]
    new = [await _git(folder, *_DIFF, "--no-index", "--", "/dev/null", name) for name in names[:MAX_NEW_FILES]]
    if len(names) > MAX_NEW_FILES:
        new.append(f"… and {len(names) - MAX_NEW_FILES} more new files")
    text = "".join((known, *new))
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}\n… cut: the diff is larger than that"


async def _git(folder: Path, *arguments: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            "git", *_SAFE, *arguments, cwd=folder, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise UsageError("git is not installed.") from error
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    return output.decode(errors="replace")
