"""Commands on the repository: init, review, diff."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.commands.render import Markdown, Quote
from ouro.commands.slash import SessionContext
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


async def init(cwd: Path, wish: str) -> str:
    path = find_root(cwd) / "AGENTS.md"
    lines = len(path.read_text("utf-8", "replace").splitlines()) if path.is_file() else 0
    task, how = "write `AGENTS.md`", WRITE_AGENTS_MD
    if lines:
        task, how = "improve `AGENTS.md`", IMPROVE_AGENTS_MD.format(lines=lines)
    text = _prompt("init.md").format(task=task, how=how)
    return f"{text}\n\nMind in particular: {wish}" if wish else text


async def review(cwd: Path, what: str) -> str:
    git, name = Git(cwd, GIT_SECONDS), what.removeprefix("#")
    how = "`git status`, `git diff HEAD`, the new files"
    if name.isdecimal():
        what, how = f"pull request {name}", f"`gh pr view {name}`, `gh pr diff {name}`"
    elif what and not what.startswith("-"):
        is_base = await asyncio.to_thread(
            git.ask, "rev-parse", "--verify", "--quiet", f"{what}^{{commit}}"
        )
        how = f"`git diff {what}...HEAD`" if is_base else "find it first"
        what = f"what this branch changes since `{what}`" if is_base else what
    what = what or UNCOMMITTED
    return _prompt("review.md").format(what=what, how=how)


def _prompt(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


async def diff(context: SessionContext, back: str) -> None:
    """The changes since the last commit; with a number, since before that many messages, with hunk
    ids for `/undo`.
    """
    if back and not back.isdigit():
        raise UsageError(
            f"`{back}` is not a number of messages: `/diff 1` shows what the last one changed."
        )
    if back:
        text, since = await context.session.rewind.diff(int(back)), "then"
    else:
        text, since = await changes(context.cwd), "the last commit"
    if len(text) > MAX_DIFF:
        text = f"{text[:MAX_DIFF]}\n… cut: the diff is too large"
    context.show([Quote(text, "diff") if text.strip() else Markdown(f"No changes since {since}.")])
    if back and text.strip():
        then = "" if back == "1" else f" {back}"
        context.say(f"/undo FILE{then} undoes one file of it, /undo FILE#ID{then} one hunk.")


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
