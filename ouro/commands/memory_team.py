"""Memory of a team: review comments become pending notes, entries are promoted to branches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import ActionContext, Answer, MemoryAccess
from ouro.commands.github_cli import run_gh
from ouro.commands.render import CodeSpan, CommandText, line, table
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.files import open_regular
from ouro.utils.runtime import tilde
from ouro.utils.text import clean, one_line, plural

if TYPE_CHECKING:
    from ouro.memory.long_term import PromotedNote

_MAX_JSON = 8 << 20


async def import_review(context: ActionContext, words: Sequence[str], *, dry_run: bool) -> Answer:
    """`memory import pr 12`, or `pr FILE` with the JSON of gh: each comment waits for approval."""
    if len(words) != 1:
        raise UsageError(
            "Name one pull request by its number, or a file with the JSON of `gh`.",
            commands=["memory import pr 12", "memory import pr comments.json"],
        )
    name = words[0].removeprefix("#")
    if name.isascii() and name.isdigit():
        data = await asyncio.to_thread(_comments_by_gh, int(name), context.cwd)
    else:
        data = await asyncio.to_thread(_read_comments_file, context.cwd / Path(name).expanduser())
    comments = long_term.read_comments(data)
    if dry_run or not comments:
        rows = table((one_line(item.text, 80), item.link) for item in comments)
        return Answer(comments, rows or [line("There is no comment to import.")])
    done = await context.memory(lambda memory: long_term.propose_comments(memory.editor, comments))
    left_out = f" {done.known} known already." if done.known else ""
    secret = f" {done.refused} with a secret left out." if done.refused else ""
    what = f"{plural(len(done.proposals), 'comment')} pending, not used yet.{left_out}{secret}"
    return Answer(done, [line(what, " Decide: ", CommandText("memory inbox"))])


def _comments_by_gh(number: int, cwd: Path) -> bytes:
    """What gh prints about a pull request of the repository here. Raises UsageError."""
    calls = (
        ["api", "--paginate", f"repos/{{owner}}/{{repo}}/pulls/{number}/comments"],
        ["pr", "view", str(number), "--json", "comments,reviews"],
    )
    return b"\n".join(_run_gh(words, number, cwd) for words in calls)


def _run_gh(words: Sequence[str], number: int, cwd: Path) -> bytes:
    done = run_gh(cwd, *words, instead="Or import a file: memory import pr comments.json")
    if done.returncode:
        reason = one_line(clean(done.stderr), 200)
        raise UsageError(f"`gh` cannot read pull request {number}: {reason}")
    return done.stdout.encode()[:_MAX_JSON]


def _read_comments_file(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_MAX_JSON)
    except OSError as error:
        raise UsageError(f"{tilde(path)} cannot be read: {error.strerror}.") from error


async def promote(context: ActionContext, entries: Sequence[str], owner: str, days: int) -> Answer:
    """Each entry gets a branch of its own; one that cannot be promoted does not stop the others."""
    done: list[PromotedNote] = []
    failed: list[UsageError] = []
    for entry in dict.fromkeys(entries):
        try:
            done.append(await context.memory(partial(_promote, entry, owner, days)))
        except UsageError as error:
            failed.append(error)
    if failed and not done:
        raise failed[0]
    view = [
        line("On the branch ", CodeSpan(note.branch), f", of {note.owner}, until {note.expires}.")
        for note in done
    ]
    branches = " ".join(note.branch for note in done)
    view.append(line("For review: ", CodeSpan(f"git push -u origin {branches}")))
    view += [line(error.message, level="warning") for error in failed]
    return Answer(done[0] if len(entries) == 1 else done, view, 1 if failed else 0)


def _promote(entry: str, owner: str, days: int, memory: MemoryAccess) -> PromotedNote:
    return long_term.promote(memory.editor, entry, owner, days)
