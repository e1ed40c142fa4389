"""Rewind, undo, redo and fork; and the stored checkpoints of files, which undo uses."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from ouro.commands.action import Answer
from ouro.commands.front_end import FrontEnd, RewindChoice
from ouro.commands.render import line, table
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.backend import RewindScope
from ouro.safety import CUT_OFF, clean_checkpoints, stored_checkpoints
from ouro.session import UNDONE, Branch, OpenRequest, Point, Rewound
from ouro.utils.ouro_paths import get_checkpoints_dir
from ouro.utils.text import byte_size, clean, cut, join_names, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.commands.subcommands import ShellContext

NOT_LISTED = (
    "Branches that begin before the messages that are sent now are in the session's file, but not"
    " listed here."
)
_SCOPES: tuple[RewindScope, ...] = ("conversation", "files", "memory")
_REASON_WORD = "because"
"""The word of `/undo` before the reason; the reason is in any language."""
MAX_LISTED = 20
"""The maximum number of messages in a printed list; older ones can be named by their number."""


async def rewind(context: SessionContext, back: str) -> None:
    """Rewind to before the message that is `back` messages ago; without it, the user chooses."""
    front_end, rewind = context.front_end, context.session.rewind
    if back:
        number = await rewind.find_number_back(int(back) if back.isdigit() else 0)  # 0 is refused
        await carry_out(front_end, RewindChoice("rewind", number))
        return
    while rewind.has_earlier and len(rewind.points()) < MAX_LISTED:
        await rewind.load_earlier()
    if not rewind.points() and not rewind.branches():
        raise UsageError("There is no message yet to go back to.")
    if choice := await front_end.choose_rewind():
        await carry_out(front_end, choice)


async def undo(context: SessionContext, what: str) -> None:
    """Undo the last turn. The user chooses what, or names scopes (`files memory`) or a file
    (`FILE[#HUNK] [messages back]`); `because …` at the end is the reason.
    """
    targets, reason = _split_reason(what)
    words, front_end, rewind = targets.split(), context.front_end, context.session.rewind
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
    for text in lines:
        front_end.say(text)
    await _ask_about_unsure_files(front_end, lines)


def _split_reason(what: str) -> tuple[str, str]:
    """The targets and the reason in `files because the login broke`; the reason may be empty."""
    targets, separator, reason = f" {what.strip()} ".partition(f" {_REASON_WORD} ")
    return (targets, reason.strip()) if separator else (what, "")


async def _offer_earlier(front_end: FrontEnd, scopes: Collection[RewindScope], reason: str) -> bool:
    """If the last turn changed nothing in these scopes, ask whether to undo the last turn that did.
    Returns whether the user was asked.
    """
    rewind = front_end.session.rewind
    last_turn = await rewind.last_turn()
    last_change = await rewind.last_change(scopes)
    if last_change is None:
        return False
    point, changes = last_change
    if point.number == last_turn.number:
        return False
    title = (
        f"The last turn changed nothing in {' and '.join(scopes)}. The last turn that did is"
        f" “{cut(message_label(point.text), 60)}” ({changes}). Undo that?"
    )
    choices = [
        Choice("undo", f"undo {changes}", "the conversation stays"),
        Choice("keep", "leave it as it is"),
    ]
    if await front_end.choose(title, choices) == "undo":
        await carry_out(front_end, RewindChoice("rewind", point.number, tuple(scopes)), reason)
    return True


async def redo(context: SessionContext, what: str) -> None:
    """Redo what was undone in the named scopes (`files memory`); without them, the user chooses."""
    words = what.split()
    if not set(words) <= set(_SCOPES):
        raise UsageError(f"Usage: /redo [{' '.join(_SCOPES)}]")
    choice: RewindChoice | None = RewindChoice(
        "redo", 0, tuple(name for name in _SCOPES if name in words)
    )
    if not words and (redoable := await context.session.rewind.can_redo()):
        choice = await context.front_end.choose_rewind(redo=redoable)
    if choice:
        await carry_out(context.front_end, choice)


async def fork(context: SessionContext, title: str) -> None:
    """Copy the session, and open the copy."""
    await _open_copy(context.front_end, await context.session.rewind.fork(title=title))


async def list_checkpoints(_context: ShellContext) -> Answer:
    """List the stored checkpoints of all folders, with their sizes."""
    checkpoints = await asyncio.to_thread(stored_checkpoints, get_checkpoints_dir())
    rows = [
        (
            f"{datetime.fromtimestamp(checkpoint.last).astimezone():%Y-%m-%d %H:%M}",
            byte_size(checkpoint.bytes),
            checkpoint.workspace,
        )
        for checkpoint in checkpoints
    ]
    value = [
        {"workspace": checkpoint.workspace, "bytes": checkpoint.bytes, "last": checkpoint.last}
        for checkpoint in checkpoints
    ]
    return Answer(value, table(rows) or [line("No checkpoints are stored.")])


async def clean_old_checkpoints(context: ShellContext, days: int | None) -> Answer:
    """Delete checkpoints older than `days` (None: as in the settings), then the oldest above the
    maximum size. Raises UsageError for a negative number of days.
    """
    settings = context.folder.settings.checkpoints
    days = settings.keep_days if days is None else days
    if days < 0:
        raise UsageError(f"--days is {days}: it cannot be less than 0.")
    max_bytes = settings.max_mb * 1_000_000
    freed = await asyncio.to_thread(
        clean_checkpoints, get_checkpoints_dir(), days=days, max_bytes=max_bytes
    )
    selection = (
        f"those older than {plural(days, 'day')}, and the oldest above {settings.max_mb:,} MB"
    )
    text = (
        f"Deleted {byte_size(freed)} of checkpoints: {selection}."
        if freed
        else f"No checkpoints to delete: {selection}."
    )
    return Answer({"days": days, "freed": freed}, [line(text)])


async def carry_out(front_end: FrontEnd, choice: RewindChoice, reason: str = "") -> None:
    """Do what the user chose, and show the result."""
    rewind = front_end.session.rewind
    with_conversation = "conversation" in choice.scopes
    match choice.kind:
        case "rewind":
            rewound = await rewind.rewind(choice.number, choice.scopes, reason)
            await _show_rewind(front_end, rewound, with_conversation)
        case "visit":
            lines = await rewind.visit(choice.number, choice.scopes)
            front_end.show_again()
            branch_note = (
                "This is the branch that you left. /redo returns to where the session was."
            )
            front_end.say(" ".join([branch_note, *lines]))
        case "redo":
            lines = await rewind.redo(choice.scopes)
            if with_conversation:
                front_end.show_again()
            front_end.say(" ".join(["Redone.", *lines]))
        case "fork":
            point = next(
                (candidate for candidate in rewind.points() if candidate.number == choice.number),
                None,
            )
            await _open_copy(front_end, await rewind.fork(choice.number), point)


def undo_of_last_turn(front_end: FrontEnd) -> RewindChoice:
    """The choice to undo the last turn with its files. A front end without a screen offers no other
    scopes: the user names them.
    """
    points = front_end.session.rewind.points()
    turn_starts = [point for point in points if not point.is_steered] or points
    return RewindChoice("rewind", turn_starts[-1].number, ("conversation", "files"))


async def choose_from_list(front_end: FrontEnd) -> RewindChoice | None:
    """Let the user choose a message or branch from printed lists, for front ends without a screen.
    None if they cancel.
    """
    rewind = front_end.session.rewind
    branches = {f"branch {branch.number}": branch for branch in rewind.branches()}
    choices = [
        Choice(str(point.number), message_label(point.text), describe_point(point))
        for point in reversed(rewind.points()[-MAX_LISTED:])
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
    return await _choose_how(front_end, int(chosen))


async def _choose_how(front_end: FrontEnd, number: int) -> RewindChoice | None:
    """Let the user choose what to undo since a message, or to fork there. Each set of scopes that
    have changes is offered, with and without the conversation.
    """
    by_value = {"back": RewindChoice("rewind", number), "fork": RewindChoice("fork", number)}
    labels = [Choice("back", "go back", "what was there is kept: /redo returns")]
    undoable = await front_end.session.rewind.can_rewind(number)
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


class BranchLabel(NamedTuple):
    """How a list shows a branch that a rewind has left."""

    title: str
    detail: str


def branch_label(branch: Branch) -> BranchLabel:
    first = message_label(branch.texts[0]) if branch.texts else "what the agent did"
    return BranchLabel(f"↳ left: {first}", describe_point(branch))


async def _open_copy(front_end: FrontEnd, copy: str, point: Point | None = None) -> None:
    """Open a copy of the session, and put the message at which it ends back into the prompt.

    Args:
        copy: the id of the copy; empty for a new session, because nothing is before the message.
        point: the message; None if the copy is of the whole session.
    """
    old_id = front_end.session.id
    await front_end.open(OpenRequest(copy))
    if front_end.session.id == old_id:
        return  # it could not be opened; the error is shown already
    if point is not None:
        front_end.show_again(point.text, point.images)
    kind = "a copy" if copy else "a new session: nothing was said before that message"
    front_end.say(f"This is {kind}. The one before: /resume {old_id[:8]}")


async def _ask_about_unsure_files(front_end: FrontEnd, lines: Sequence[str]) -> None:
    """If one of the lines tells of a turn that was cut off, ask about the files that changed after it:
    the turn or the user may have changed them.
    """
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
    """Show what was undone; after a rewind of the conversation, put the message back into the prompt."""
    if conversation:
        front_end.show_again(rewound.text, rewound.images)
    for notice in rewound.notices:
        front_end.say(notice, "info" if notice.startswith(f"{UNDONE}:") else "warning")
    front_end.say("/redo reverses this.")
    await _ask_about_unsure_files(front_end, rewound.notices)
