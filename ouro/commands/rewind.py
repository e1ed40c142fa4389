"""Rewind, undo, redo and fork."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from ouro.commands.front_end import FrontEnd, RewindChoice
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.backend import RewindScope
from ouro.safety import NOT_KNOWN
from ouro.session import UNDONE, Branch, OpenRequest, Point, Rewound
from ouro.utils.text import clean, cut, join_names, plural, whole_number, without_marks

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext

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
    """Rewind to before an earlier message.

    Args:
        back: how many of the user's messages ago it is; empty: the user chooses a message or a
            branch. Raises UsageError for a word that is not such a number.
    """
    front_end, rewind = context.front_end, context.session.rewind
    if back:
        # 0 for a word that is no number: `find_number_back` refuses it with the right message.
        number = await rewind.find_number_back(whole_number(back) or 0)
        await carry_out(front_end, RewindChoice("rewind", number))
        return
    while rewind.has_earlier and len(rewind.points()) < MAX_LISTED:
        await rewind.load_earlier()
    if not rewind.has_anything:
        raise UsageError("There is no message yet to go back to.")
    choice = await front_end.choose_rewind()
    if choice:
        await carry_out(front_end, choice)


async def undo(context: SessionContext, what: str) -> None:
    """Undo the last turn, or a part of it. If it changed nothing in the given scopes, the user is
    asked whether to undo an earlier turn that did.

    Args:
        what: empty: the user chooses; scopes, such as `files memory`; or a file, as `_undo_file`
            takes it. `because …` at the end is the reason, which is noted.
    """
    targets, reason = _split_reason(what)
    words, front_end, rewind = targets.split(), context.front_end, context.session.rewind
    if not words:
        await rewind.last_turn()  # raises UsageError if there is none
        choice = await front_end.choose_rewind(suggest_undo=True)
        if choice:
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
    """Undo the changes of a file, or of one hunk of it, since a message.

    Args:
        words: `FILE` or `FILE#HUNK`; then, if it is not 1, how many of the user's messages ago.
            Raises UsageError for other words.
    """
    path, _, hunk = words[0].partition("#")
    back = whole_number(words[1]) if words[1:] else 1
    if len(words) > 2 or back is None:
        raise UsageError(
            f"Usage: /undo [{' '.join(_SCOPES)}] or /undo FILE[#HUNK] [messages back],"
            " then [because REASON]"
        )
    lines = await front_end.session.rewind.undo_file(path, hunk, back, reason)
    for text in lines:
        front_end.say(text)
    await _ask_about_unsure_files(front_end, lines)


def _split_reason(what: str) -> tuple[str, str]:
    """What is before and after the first word `because`: the targets and the reason of an undo. Without
    that word the reason is empty.
    """
    # With spaces around, also a first or last `because` is a whole word.
    targets, _, reason = f" {what.strip()} ".partition(f" {_REASON_WORD} ")
    return targets.strip(), reason.strip()


async def _offer_earlier(front_end: FrontEnd, scopes: Collection[RewindScope], reason: str) -> bool:
    """If the last turn changed nothing in these scopes, ask whether to undo what an earlier turn
    changed there; if the user agrees, undo it. Returns whether the user was asked: False if the
    last turn did change something, or none did.
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
    """Redo what was undone.

    Args:
        what: scopes, such as `files memory`; empty: the user chooses.
    """
    words = what.split()
    if not set(words) <= set(_SCOPES):
        raise UsageError(f"Usage: /redo [{' '.join(_SCOPES)}]")
    scopes = tuple(name for name in _SCOPES if name in words)
    choice: RewindChoice | None = RewindChoice("redo", number=0, scopes=scopes)
    if not words:
        redoable = await context.session.rewind.describe_redoable()
        if redoable:  # otherwise `carry_out` raises UsageError: there is nothing to redo
            choice = await context.front_end.choose_rewind(redo=redoable)
    if choice:
        await carry_out(context.front_end, choice)


async def fork(context: SessionContext, title: str) -> None:
    """Copy the session, and open the copy."""
    await _open_copy(context.front_end, await context.session.rewind.fork(title=title))


async def carry_out(front_end: FrontEnd, choice: RewindChoice, reason: str = "") -> None:
    """Do what the user chose, and show the result. The reason of an undo is noted; it may be empty."""
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
            points = {point.number: point for point in rewind.points()}
            copy_id = await rewind.fork(choice.number)
            await _open_copy(front_end, copy_id, points.get(choice.number))


def undo_of_last_turn(front_end: FrontEnd) -> RewindChoice:
    """The choice to undo the last turn with its files. A front end without a screen offers no other
    scopes: the user names them. The session must have a message.
    """
    points = front_end.session.rewind.points()
    # A message that steered a turn is in the middle of it.
    turn_starts = [point for point in points if not point.is_steered]
    last_start = turn_starts[-1] if turn_starts else points[-1]
    return RewindChoice("rewind", last_start.number, ("conversation", "files"))


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
    """Let the user choose what to undo since a message, or to fork there. None if they cancel. Each
    set of scopes that have changes (files, memory, both) is offered with the conversation and
    without it.
    """
    results = {"back": RewindChoice("rewind", number), "fork": RewindChoice("fork", number)}
    choices = [Choice("back", "go back", "what was there is kept: /redo returns")]
    undoable = await front_end.session.rewind.describe_undoable(number)
    for count in range(1, len(undoable) + 1):
        for scopes in combinations(undoable, count):
            names = " and ".join(scopes)
            changes = ", ".join(undoable[scope] for scope in scopes)
            with_conversation = f"back, {names}"
            results[with_conversation] = RewindChoice("rewind", number, ("conversation", *scopes))
            choices.append(Choice(with_conversation, f"go back, and undo in {names}", changes))
            results[names] = RewindChoice("rewind", number, scopes)
            choices.append(Choice(names, f"only undo in {names}", changes))
    choices.append(Choice("fork", "continue there in a copy", "this session stays as it is"))
    chosen = await front_end.choose("How?", choices)
    return None if chosen is None else results[chosen]


def message_label(text: str) -> str:
    """The text of a message on one line, without the marks of Markdown."""
    return " ".join(without_marks(clean(text)).split()) or "(no words)"


def describe_point(point: Point | Branch) -> str:
    """How many messages and tool calls a rewind to before a message removes, or a branch holds: `6
    messages, 3 tool calls`.
    """
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
    """Ask whether to restore files of which it is not known who changed them, the turn or the user.
    That is so if ouro ended before it had looked at the files after the turn.

    Args:
        lines: what an undo has reported. Nothing is asked if no line is about such a file.
    """
    if not any(line.endswith(f"{NOT_KNOWN}.") for line in lines):
        return
    paths = front_end.session.rewind.unsure_files()
    choice = await front_end.choose(
        f"{join_names(paths, 3)} changed in the turn or after it: ouro ended before it had looked."
        " Restore as before the turn?",
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


async def _show_rewind(front_end: FrontEnd, rewound: Rewound, with_conversation: bool) -> None:
    """Show what was undone. If the conversation was rewound (`with_conversation`), show the transcript
    again, with the message in the prompt.
    """
    if with_conversation:
        front_end.show_again(rewound.text, rewound.images)
    for notice in rewound.notices:
        front_end.say(notice, "info" if notice.startswith(f"{UNDONE}:") else "warning")
    front_end.say("/redo reverses this.")
    await _ask_about_unsure_files(front_end, rewound.notices)
