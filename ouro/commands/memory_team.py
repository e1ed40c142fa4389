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
from ouro.utils.ouro_paths import expand_home, tilde
from ouro.utils.text import clean, one_line, plural, whole_number

if TYPE_CHECKING:
    from ouro.memory.long_term import PromotedNote

_MAX_JSON = 8 << 20


async def import_review(context: ActionContext, words: Sequence[str], *, dry_run: bool) -> Answer:
    """Propose each comment of a pull request as a note, which waits for approval. Comments that are
    known, or hold a secret, are left out and counted.

    Args:
        words: one word: the number of the pull request, or a file with the JSON of `gh`.
        dry_run: only list the comments.
    """
    if len(words) != 1:
        raise UsageError(
            "Name one pull request by its number, or a file with the JSON of `gh`.",
            commands=["memory import pr 12", "memory import pr comments.json"],
        )
    name = words[0].removeprefix("#")
    number = whole_number(name)
    if number is not None:
        data = await asyncio.to_thread(_fetch_comments, number, context.cwd)
    else:
        data = await asyncio.to_thread(_read_comments_file, context.cwd / expand_home(name))
    comments = long_term.read_comments(data)
    if dry_run or not comments:
        rows = table((one_line(item.text, 80), item.link) for item in comments)
        return Answer(comments, rows or [line("There is no comment to import.")])
    outcome = await context.memory(
        lambda memory: long_term.propose_comments(memory.editor, comments)
    )
    known_note = f" {outcome.known} known already." if outcome.known else ""
    secret_note = f" {outcome.refused} with a secret left out." if outcome.refused else ""
    pending_note = f"{plural(len(outcome.proposals), 'comment')} pending, not used yet.{known_note}{secret_note}"
    return Answer(outcome, [line(pending_note, " Decide: ", CommandText("memory inbox"))])


def _fetch_comments(number: int, cwd: Path) -> bytes:
    """The JSON that `gh` prints about the comments of a pull request of the repository: those on
    lines, then those on the whole. Raises UsageError if `gh` fails.
    """
    calls = (
        ["api", "--paginate", f"repos/{{owner}}/{{repo}}/pulls/{number}/comments"],
        ["pr", "view", str(number), "--json", "comments,reviews"],
    )
    return b"\n".join(_run_gh(words, number, cwd) for words in calls)


def _run_gh(words: Sequence[str], number: int, cwd: Path) -> bytes:
    """The output of `gh` about a pull request, at most _MAX_JSON bytes. Raises UsageError if it fails."""
    process = run_gh(cwd, *words, instead="Or import a file: memory import pr comments.json")
    if process.returncode:
        reason = one_line(clean(process.stderr), 200)
        raise UsageError(f"`gh` cannot read pull request {number}: {reason}")
    return process.stdout.encode()[:_MAX_JSON]


def _read_comments_file(path: Path) -> bytes:
    """The first _MAX_JSON bytes of a regular file. Raises UsageError if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(_MAX_JSON)
    except OSError as error:
        raise UsageError(f"{tilde(path)} cannot be read: {error.strerror}.") from error


async def promote(context: ActionContext, entries: Sequence[str], owner: str, days: int) -> Answer:
    """Put each entry on a git branch of its own, for review by the team. One that cannot be promoted
    does not stop the others, but the exit code is then 1. Raises UsageError if none can.

    Args:
        owner: the user who is asked when it expires; empty: git's user.email.
        days: until it expires.
    """
    promoted: list[PromotedNote] = []
    failed: list[UsageError] = []
    for entry in dict.fromkeys(entries):
        try:
            promoted.append(await context.memory(partial(_promote, entry, owner, days)))
        except UsageError as error:
            failed.append(error)
    if failed and not promoted:
        raise failed[0]
    view = [
        line("On the branch ", CodeSpan(note.branch), f", of {note.owner}, until {note.expires}.")
        for note in promoted
    ]
    # `--json` prints one promotion as an object, several as a list.
    value = promoted[0] if len(entries) == 1 else promoted
    branches = " ".join(note.branch for note in promoted)
    view.append(line("For review: ", CodeSpan(f"git push -u origin {branches}")))
    view += [line(error.message, level="warning") for error in failed]
    return Answer(value, view, 1 if failed else 0)


def _promote(entry: str, owner: str, days: int, memory: MemoryAccess) -> PromotedNote:
    return long_term.promote(memory.editor, entry, owner, days)
