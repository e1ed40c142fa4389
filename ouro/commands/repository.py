"""Commands on the repository: init, review, diff."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.commands.front_end import FrontEnd
from ouro.commands.render import block
from ouro.errors import UsageError
from ouro.utils.git import Git, GitError, find_root

WRITE_AGENTS_MD = """\
Read at most some thirty files, the most telling ones first; then write. Say in your answer what you did not check."""
IMPROVE_AGENTS_MD = """\
The file has {lines} lines already. Check each of its statements: correct what is no longer true, add what is missing,
keep what its authors wrote on purpose, in their words and order. Change it with `edit`, only the lines that have to
change, so that the user reads a diff: do not rewrite it. If nothing has to change, change nothing. Tell in your
answer what you changed, and why."""

UNCOMMITTED = "the changes in this working tree that are not committed yet, new files among them"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MAX_DIFF = 200_000
"""Characters."""
MAX_NEW_FILES = 200
GIT_SECONDS = 20.0


async def init(cwd: Path, argument: str) -> str:
    path = find_root(cwd) / "AGENTS.md"
    lines = len(path.read_text("utf-8", "replace").splitlines()) if path.is_file() else 0
    task, how = "write `AGENTS.md`", WRITE_AGENTS_MD
    if lines:
        task, how = "improve `AGENTS.md`", IMPROVE_AGENTS_MD.format(lines=lines)
    text = _prompt("init.md").format(task=task, how=how)
    return f"{text}\n\nMind in particular: {argument}" if argument else text


async def review(cwd: Path, argument: str) -> str:
    git, name = Git(cwd, GIT_SECONDS), argument.removeprefix("#")
    what, how = argument or UNCOMMITTED, "`git status`, `git diff HEAD`, the new files"
    if name.isdecimal():
        what, how = f"pull request {name}", f"`gh pr view {name}`, `gh pr diff {name}`"
    elif argument and not argument.startswith("-"):
        is_base = await asyncio.to_thread(git.ask, "rev-parse", "--verify", "--quiet", f"{argument}^{{commit}}")
        how = f"`git diff {argument}...HEAD`" if is_base else "find it first"
        what = f"what this branch changes since `{argument}`" if is_base else argument
    return _prompt("review.md").format(what=what, how=how)


def _prompt(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


async def diff(front_end: FrontEnd, argument: str) -> None:
    """The changes since the last commit; with a number, since before that many messages, with hunk ids for `/undo`."""
    if argument and not argument.isdigit():
        raise UsageError(f"`{argument}` is not a number of messages: `/diff 1` shows what the last one changed.")
    if argument:
        text, since = await front_end.session.rewind.diff(int(argument)), "then"
    else:
        text, since = await changes(front_end.session.cwd), "the last commit"
    if len(text) > MAX_DIFF:
        text = f"{text[:MAX_DIFF]}\n… cut: the diff is too large"
    front_end.show(block(text, "diff") if text.strip() else f"No changes since {since}.")
    if argument and text.strip():
        back = "" if argument == "1" else f" {argument}"
        front_end.say(f"/undo FILE{back} undoes one file of it, /undo FILE#ID{back} one hunk.")


async def changes(folder: Path) -> str:
    """The unified diff of the working tree against the last commit, with untracked files.

    Raises:
        UsageError: the folder is not in a git repository, or git fails.
    """
    try:
        return await asyncio.to_thread(_changes, Git(folder, GIT_SECONDS))
    except GitError as error:
        raise UsageError(f"git cannot show the changes: {error}.") from error


def _changes(git: Git) -> str:
    if not git.ask("rev-parse", "--git-dir"):
        raise UsageError("This folder is not in a git repository, so there is no diff.")
    base = "HEAD" if git.ask("rev-parse", "--verify", "--quiet", "HEAD") else EMPTY_TREE
    known = git.ask("diff", base)
    names = git.paths("--others", "--exclude-standard")
    new = [git.ask("diff", "--no-index", "--", "/dev/null", name) for name in names[:MAX_NEW_FILES]]
    if len(names) > MAX_NEW_FILES:
        new.append(f"… and {len(names) - MAX_NEW_FILES} more new files")
    return "".join((known, *new))
