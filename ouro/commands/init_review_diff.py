"""Commands on the repository: init, review, diff."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.commands.render import Markdown, Quote
from ouro.commands.slash import SessionContext
from ouro.session import SessionDiff
from ouro.utils.git import Git, find_root
from ouro.utils.text import whole_number

WRITE_AGENTS_MD = """\
Read at most some thirty files, the most telling ones first; then write. Say in your answer what you did not check."""
IMPROVE_AGENTS_MD = """\
The file has {lines} lines already. Check each of its statements: correct what is no longer true, add what is missing,
keep what its authors wrote on purpose, in their words and order. Change it with `edit`, only the lines that have to
change, so that the user reads a diff: do not rewrite it. If nothing has to change, change nothing. Tell in your
answer what you changed, and why."""

UNCOMMITTED = "the changes in this working tree that are not committed yet, new files among them"
MAX_DIFF = 200_000
"""The maximum number of characters of a diff that is printed."""
GIT_SECONDS = 20.0


async def init(cwd: Path, wish: str) -> str:
    """The prompt that lets the agent write AGENTS.md, or improve it if there is one that is not empty.

    Args:
        wish: what it should mind in particular; empty for nothing.
    """
    path = find_root(cwd) / "AGENTS.md"
    line_count = len(path.read_text("utf-8", "replace").splitlines()) if path.is_file() else 0
    task, how = "write `AGENTS.md`", WRITE_AGENTS_MD
    if line_count:
        task, how = "improve `AGENTS.md`", IMPROVE_AGENTS_MD.format(lines=line_count)
    text = _read_prompt("init.md").format(task=task, how=how)
    return f"{text}\n\nMind in particular: {wish}" if wish else text


async def review(cwd: Path, what: str) -> str:
    """The prompt that lets a subagent review a change.

    Args:
        what: the change, as `_change_to_review` reads it. With the word `security` in front, the
            review is only about security.
    """
    prompt = "review.md"
    word, _, rest = what.partition(" ")
    if word == "security":
        prompt, what = "review_security.md", rest.strip()
    return _read_prompt(prompt).format(**await _change_to_review(cwd, what))


async def _change_to_review(cwd: Path, what: str) -> dict[str, str]:
    """The values of a review prompt: `what` is reviewed, and `how` the agent can see it.

    Args:
        what: empty for the changes that are not committed, the number of a pull request, a commit
            or branch for what changed since, or words for something that the agent must find.
    """
    number = what.removeprefix("#")
    if number.isdecimal():
        return {
            "what": f"pull request {number}",
            "how": f"`gh pr view {number}`, `gh pr diff {number}`",
        }
    # Words that begin with `-` are not looked up as a commit: git would read them as an option.
    if not what or what.startswith("-"):
        return {
            "what": what or UNCOMMITTED,
            "how": "`git status`, `git diff HEAD`, the new files",
        }
    git = Git(cwd, GIT_SECONDS)
    commit = await asyncio.to_thread(
        git.ask, "rev-parse", "--verify", "--quiet", f"{what}^{{commit}}"
    )
    if not commit:
        return {"what": what, "how": "find it first"}
    return {
        "what": f"what this branch changes since `{what}`",
        "how": f"`git diff {what}...HEAD`",
    }


def _read_prompt(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


async def diff(context: SessionContext, since: str) -> None:
    """Show the changes of files on a screen, or print them if there is none.

    Args:
        since: what they are compared with, as `SessionDiff.read` takes it. If it is a number of
            messages, the hunks are printed with the ids that `/undo` takes.
    """
    session_diff = SessionDiff(context.cwd, context.session.rewind)
    reading = asyncio.create_task(session_diff.read(since))
    if await context.front_end.view_diff(reading):
        return
    shown = await reading
    if not shown.has_changes:
        hint = "" if since else " `/diff session` shows what changed since it began."
        context.show([Markdown(f"No changes since {shown.since}.{hint}")])
        return
    text = shown.text
    back = whole_number(since)
    if back is not None:
        text = await context.session.rewind.diff(back)
    if len(text) > MAX_DIFF:
        text = f"{text[:MAX_DIFF]}\n… cut: the diff is too large"
    context.show([Quote(text, "diff")])
    if back is not None:
        back_note = "" if back == 1 else f" {back}"
        context.say(
            f"/undo FILE{back_note} undoes one file of it, /undo FILE#ID{back_note} one hunk."
        )
