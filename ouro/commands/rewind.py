"""Rewind, undo, redo and fork; and the stored checkpoints of files, which undo uses."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import combinations
from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.front_end import FrontEnd, RewindChoice
from ouro.commands.render import line, table
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.backend import RewindScope
from ouro.safety import CUT_OFF, clean_checkpoints, stored_checkpoints
from ouro.session import UNDONE, Branch, OpenRequest, Point, Rewound
from ouro.utils.runtime import get_checkpoints_dir
from ouro.utils.text import byte_size, clean, cut, join_names, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.commands.subcommands import ShellContext

NOT_LISTED = (
    "Branches that begin before the messages that are sent now are in the session's file, but not"
    " listed here."
)
_SCOPES: tuple[RewindScope, ...] = ("conversation", "files", "memory")
_BECAUSE = "because"
"""The word of `/undo` before the reason; the reason is in any language."""
LISTED = 20
"""Maximum messages in a printed list; older ones can be named by their number."""


async def rewind(context: SessionContext, back: str) -> None:
    front_end, rewind = context.front_end, context.session.rewind
    if back:
        number = await rewind.number_back(int(back) if back.isdigit() else 0)  # 0 is refused
        await carry_out(front_end, RewindChoice("rewind", number))
        return
    while rewind.has_earlier and len(rewind.points()) < LISTED:
        await rewind.load_earlier()
    if not rewind.points() and not rewind.branches():
        raise UsageError("There is no message yet to go back to.")
    if choice := await front_end.choose_rewind():
        await carry_out(front_end, choice)


async def undo(context: SessionContext, what: str) -> None:
    """`/undo`, `/undo files memory`, `/undo FILE[#HUNK] [messages back]`, each with `because …`."""
    named, reason = _split_reason(what)
    words, front_end, rewind = named.split(), context.front_end, context.session.rewind
    if not words:
        await rewind.last_turn()  # raises if there is none
        if choice := await front_end.choose_rewind(undo=True):
            await carry_out(front_end, choice, reason)
        return
    if not set(words) <= set(_SCOPES):
        await _undo_file(front_end, words, reason)
        return
    scopes = tuple(name for name in _SCOPES if name in words)
    if "conversation" not in scopes and await _offer_earlier(front_end, scopes, reason):
        return
    await _show_rewind(front_end, await rewind.undo(scopes, reason), "conversation" in scopes)


async def _undo_file(front_end: FrontEnd, words: Sequence[str], reason: str) -> None:
    """Undo the changes of a file, or one hunk of it, since a message. Raises UsageError for other
    words.
    """
    path, _, hunk = words[0].partition("#")
    if len(words) > 2 or (words[1:] and not words[1].isdigit()):
        raise UsageError(
            f"Usage: /undo [{' '.join(_SCOPES)}] or /undo FILE[#HUNK] [messages back],"
            " then [because REASON]"
        )
    back = int(words[1]) if words[1:] else 1
    lines = await front_end.session.rewind.undo_file(path, hunk, back, reason)
    for shown in lines:
        front_end.say(shown)
    await _ask_about_unsure(front_end, lines)


def _split_reason(what: str) -> tuple[str, str]:
    """What to undo, and why: `files because the login broke`."""
    named, because, reason = f" {what.strip()} ".partition(f" {_BECAUSE} ")
    return (named, reason.strip()) if because else (what, "")


async def _offer_earlier(front_end: FrontEnd, scopes: Collection[RewindScope], reason: str) -> bool:
    """If the last turn changed nothing, ask whether to undo the last one that did; returns whether
    it asked.
    """
    rewind = front_end.session.rewind
    last = await rewind.last_turn()
    found = await rewind.last_change(scopes)
    if found is None or found[0].number == last.number:
        return False
    point, what = found
    title = (
        f"The last turn changed nothing in {' and '.join(scopes)}. The last turn that did is"
        f" “{cut(message_label(point.text), 60)}” ({what}). Undo that?"
    )
    choices = [
        Choice("undo", f"undo {what}", "the conversation stays"),
        Choice("keep", "leave it as it is"),
    ]
    if await front_end.choose(title, choices) == "undo":
        await carry_out(front_end, RewindChoice("rewind", point.number, tuple(scopes)), reason)
    return True


async def redo(context: SessionContext, what: str) -> None:
    """`/redo`, `/redo files memory`."""
    words = what.split()
    if not set(words) <= set(_SCOPES):
        raise UsageError(f"Usage: /redo [{' '.join(_SCOPES)}]")
    choice: RewindChoice | None = RewindChoice(
        "redo", 0, tuple(name for name in _SCOPES if name in words)
    )
    if not words and (offered := await context.session.rewind.can_redo()):
        choice = await context.front_end.choose_rewind(redo=offered)
    if choice:
        await carry_out(context.front_end, choice)


async def fork(context: SessionContext, title: str) -> None:
    await _open_copy(context.front_end, await context.session.rewind.fork(title=title))


async def list_checkpoints(_context: ShellContext) -> Answer:
    found = await asyncio.to_thread(stored_checkpoints, get_checkpoints_dir())
    rows = [
        (
            f"{datetime.fromtimestamp(one.last).astimezone():%Y-%m-%d %H:%M}",
            byte_size(one.bytes),
            one.workspace,
        )
        for one in found
    ]
    value = [{"workspace": one.workspace, "bytes": one.bytes, "last": one.last} for one in found]
    return Answer(value, table(rows) or [line("No checkpoints are stored.")])


async def clean_old_checkpoints(context: ShellContext, days: int | None) -> Answer:
    settings = context.folder.settings.checkpoints
    days = settings.keep_days if days is None else days
    if days < 0:
        raise UsageError(f"--days is {days}: it cannot be less than 0.")
    limit = settings.max_mb * 1_000_000
    freed = await asyncio.to_thread(
        clean_checkpoints, get_checkpoints_dir(), days=days, max_bytes=limit
    )
    which = f"those older than {plural(days, 'day')}, and the oldest above {settings.max_mb:,} MB"
    text = (
        f"Deleted {byte_size(freed)} of checkpoints: {which}."
        if freed
        else f"No checkpoints to delete: {which}."
    )
    return Answer({"days": days, "freed": freed}, [line(text)])


async def carry_out(front_end: FrontEnd, choice: RewindChoice, reason: str = "") -> None:
    rewind = front_end.session.rewind
    conversation = "conversation" in choice.scopes
    match choice.kind:
        case "rewind":
            rewound = await rewind.rewind(choice.number, choice.scopes, reason)
            await _show_rewind(front_end, rewound, conversation)
        case "visit":
            lines = await rewind.visit(choice.number, choice.scopes)
            front_end.show_again()
            left = "This is the branch that you left. /redo returns to where the session was."
            front_end.say(" ".join([left, *lines]))
        case "redo":
            lines = await rewind.redo(choice.scopes)
            if conversation:
                front_end.show_again()
            front_end.say(" ".join(["Redone.", *lines]))
        case "fork":
            point = next(
                (candidate for candidate in rewind.points() if candidate.number == choice.number),
                None,
            )
            await _open_copy(front_end, await rewind.fork(choice.number), point)


def last_message(front_end: FrontEnd) -> RewindChoice:
    """The undo of the last turn with its files; without tick boxes, other scopes are named by
    words.
    """
    points = front_end.session.rewind.points()
    begun = [point for point in points if not point.is_steered] or points
    return RewindChoice("rewind", begun[-1].number, ("conversation", "files"))


async def choose_from_list(front_end: FrontEnd) -> RewindChoice | None:
    """Let the user choose from printed lists; the plain prompt has no rewind screen."""
    rewind = front_end.session.rewind
    branches = {f"branch {branch.number}": branch for branch in rewind.branches()}
    choices = [
        Choice(str(point.number), message_label(point.text), describe_point(point))
        for point in reversed(rewind.points()[-LISTED:])
    ]
    choices += [Choice(value, *branch_label(branch)) for value, branch in branches.items()]
    if rewind.lacks_branches:
        front_end.say(NOT_LISTED)
    chosen = await front_end.choose(
        "Go back before which message? The last one comes first.", choices
    )
    if chosen is None:
        return None
    if chosen in branches:
        return RewindChoice("visit", branches[chosen].number)
    number = int(chosen)
    by_value = {"back": RewindChoice("rewind", number), "fork": RewindChoice("fork", number)}
    labels = [Choice("back", "go back", "what was there is kept: /redo returns")]
    undoable = await rewind.can_rewind(number)
    for count in range(1, len(undoable) + 1):
        for scopes in combinations(undoable, count):
            scopes_text, what = " and ".join(scopes), ", ".join(undoable[scope] for scope in scopes)
            by_value[f"back, {scopes_text}"] = RewindChoice(
                "rewind", number, ("conversation", *scopes)
            )
            labels.append(
                Choice(f"back, {scopes_text}", f"go back, and undo in {scopes_text}", what)
            )
            by_value[scopes_text] = RewindChoice("rewind", number, scopes)
            labels.append(Choice(scopes_text, f"only undo in {scopes_text}", what))
    labels.append(Choice("fork", "continue there in a copy", "this session stays as it is"))
    choice = await front_end.choose("How?", labels)
    return None if choice is None else by_value[choice]


def message_label(text: str) -> str:
    """The text of a message on one line."""
    return " ".join(clean(text).split()) or "(no words)"


def describe_point(point: Point | Branch) -> str:
    """What a rewind to before a message removes, or a branch holds: `6 messages, 3 tool calls`."""
    messages = plural(point.messages, "message")
    return f"{messages}, {plural(point.calls, 'tool call')}" if point.calls else messages


def branch_label(branch: Branch) -> tuple[str, str]:
    first = message_label(branch.texts[0]) if branch.texts else "what the agent did"
    return f"↳ left: {first}", describe_point(branch)


async def _open_copy(front_end: FrontEnd, copy: str, point: Point | None = None) -> None:
    """Open a copy of the session, or a new one, and put the chosen message back into the prompt."""
    before = front_end.session.id
    await front_end.open(OpenRequest(copy))
    if front_end.session.id == before:
        return  # it could not be opened; the error is shown already
    if point is not None:
        front_end.show_again(point.text, point.images)
    what = "a copy" if copy else "a new session: nothing was said before that message"
    front_end.say(f"This is {what}. The one before: /resume {before[:8]}")


async def _ask_about_unsure(front_end: FrontEnd, lines: Sequence[str]) -> None:
    """Ask about files that changed after ouro was killed: the turn or the user may have done it."""
    if not any(line.endswith(f"{CUT_OFF}.") for line in lines):
        return
    paths = front_end.session.rewind.unsure_files()
    choice = await front_end.choose(
        f"The turn was cut off, and {join_names(paths, 3)} changed after that. Restore as before"
        " the turn?",
        [
            Choice("keep", "keep as it is", "what you or a command changed since stays"),
            Choice("restore", "restore", "the present version is kept in the checkpoints"),
        ],
    )
    if choice == "restore":
        for text in await front_end.session.rewind.restore_unsure():
            front_end.say(text)
    else:
        await front_end.session.rewind.keep_unsure()


async def _show_rewind(front_end: FrontEnd, rewound: Rewound, conversation: bool) -> None:
    """Put the message back into the prompt, and show what was undone."""
    if conversation:
        front_end.show_again(rewound.text, rewound.images)
    front_end.say("/redo returns to it.")
    for notice in rewound.notices:
        front_end.say(notice, "info" if notice.startswith(f"{UNDONE}:") else "warning")
    await _ask_about_unsure(front_end, rewound.notices)
