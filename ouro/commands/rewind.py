"""Commands on branches of the session: rewind, undo, redo, fork."""

from __future__ import annotations

from itertools import combinations

from ouro.commands.front_end import FrontEnd, WayBack
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.backend import RewindScope
from ouro.session import UNDONE, Branch, OpenRequest, Point, Rewound
from ouro.utils.text import clean, plural

NOT_LISTED = "Ways that were left before what is sent now are kept in the session's file, and not listed here."
_SCOPES: tuple[RewindScope, ...] = ("conversation", "files", "memory")
LISTED = 20
"""Messages that a printed list has; older ones are named by their number."""


async def rewind(front_end: FrontEnd, argument: str) -> None:
    session = front_end.session
    while session.rewind.has_earlier and len(session.rewind.points()) < (
        int(argument) if argument.isdigit() else LISTED
    ):
        await session.rewind.earlier()
    if argument:
        points = session.rewind.points()
        if not argument.isdigit() or not 1 <= int(argument) <= len(points):
            raise UsageError(f"Say how many messages back, from 1 to {len(points)}; /rewind alone shows them.")
        await go(front_end, WayBack("rewind", points[-int(argument)].number))
        return
    if not session.rewind.points() and not session.rewind.branches():
        raise UsageError("There is no message yet to go back to.")
    if way := await front_end.choose_way_back():
        await go(front_end, way)


async def undo(front_end: FrontEnd, argument: str) -> None:
    """`/undo`, `/undo files memory`, `/undo FILE[#HUNK] [messages back]`."""
    words, rewind = argument.split(), front_end.session.rewind
    if not words:
        await rewind.last()
        if way := await front_end.choose_way_back(undo=True):
            await go(front_end, way)
        return
    if not set(words) <= set(_SCOPES):
        path, _, hunk = words[0].partition("#")
        if len(words) > 2 or (words[1:] and not words[1].isdigit()):
            raise UsageError(f"Usage: /undo [{' '.join(_SCOPES)}] or /undo FILE[#HUNK] [messages back]")
        for line in await rewind.undo_file(path, hunk, int(words[1]) if words[1:] else 1):
            front_end.say(line)
        return
    scopes = [name for name in _SCOPES[1:] if name in words]
    conversation = "conversation" in words
    _show_rewound(front_end, await rewind.undo(scopes, conversation=conversation), conversation)


async def redo(front_end: FrontEnd, argument: str) -> None:
    """`/redo`, `/redo files memory`."""
    words = argument.split()
    if not set(words) <= set(_SCOPES):
        raise UsageError(f"Usage: /redo [{' '.join(_SCOPES)}]")
    way: WayBack | None = WayBack.of("redo", 0, [name for name in _SCOPES if name in words])
    if not words and (offered := await front_end.session.rewind.can_redo()):
        way = await front_end.choose_way_back(redo=offered)
    if way:
        await go(front_end, way)


async def fork(front_end: FrontEnd, argument: str) -> None:
    await _open_copy(front_end, await front_end.session.rewind.fork(title=argument))


async def go(front_end: FrontEnd, way: WayBack) -> None:
    rewind = front_end.session.rewind
    match way.kind:
        case "rewind":
            rewound = await rewind.rewind(way.number, way.scopes, conversation=way.conversation)
            _show_rewound(front_end, rewound, way.conversation)
        case "visit":
            lines = await rewind.visit(way.number, way.scopes)
            front_end.show_again()
            left = "This is the branch that you left. /redo returns to where the session was."
            front_end.say(" ".join([left, *lines]))
        case "redo":
            lines = await rewind.redo(("conversation", *way.scopes) if way.conversation else way.scopes)
            if way.conversation:
                front_end.show_again()
            front_end.say(" ".join(["Redone.", *lines]))
        case "fork":
            point = next((candidate for candidate in rewind.points() if candidate.number == way.number), None)
            await _open_copy(front_end, await rewind.fork(way.number), point)


def last_message(front_end: FrontEnd) -> WayBack:
    """The undo of the last message with its files; where there are no tick boxes, words name anything else."""
    return WayBack("rewind", front_end.session.rewind.points()[-1].number, ("files",))


async def choose_from_list(front_end: FrontEnd) -> WayBack | None:
    """Let the user choose from printed lists; the plain prompt has no rewind screen."""
    rewind = front_end.session.rewind
    points = rewind.points()[-LISTED:]
    branches = {f"branch {branch.number}": branch for branch in rewind.branches()}
    choices = [Choice(str(point.number), one_line(point.text), describe_point(point)) for point in reversed(points)]
    choices += [Choice(value, *branch_label(branch)) for value, branch in branches.items()]
    if rewind.lacks_branches:
        front_end.say(NOT_LISTED)
    chosen = await front_end.choose("Go back before which message? The last one comes first.", choices)
    if chosen is None:
        return None
    if chosen in branches:
        return WayBack("visit", branches[chosen].number)
    number = int(chosen)
    ways = {"back": WayBack("rewind", number), "fork": WayBack("fork", number)}
    labels = [Choice("back", "go back", "what was there is kept: /redo returns")]
    undoable = await rewind.can_rewind(number)
    for count in range(1, len(undoable) + 1):
        for scopes in combinations(undoable, count):
            scopes_text, what = " and ".join(scopes), ", ".join(undoable[scope] for scope in scopes)
            ways[f"back, {scopes_text}"] = WayBack("rewind", number, scopes)
            labels.append(Choice(f"back, {scopes_text}", f"go back, and undo in {scopes_text}", what))
            ways[scopes_text] = WayBack("rewind", number, scopes, conversation=False)
            labels.append(Choice(scopes_text, f"only undo in {scopes_text}", what))
    labels.append(Choice("fork", "go on there in a copy", "this session stays as it is"))
    way = await front_end.choose("How?", labels)
    return None if way is None else ways[way]


def one_line(text: str) -> str:
    """The text of a message on one line."""
    return " ".join(clean(text).split()) or "(no words)"


def describe_point(point: Point | Branch) -> str:
    """What a rewind to before a message removes, or a branch holds: `6 messages, 3 tool calls`."""
    messages = plural(point.messages, "message")
    return f"{messages}, {plural(point.calls, 'tool call')}" if point.calls else messages


def branch_label(branch: Branch) -> tuple[str, str]:
    first = one_line(branch.texts[0]) if branch.texts else "what the agent did"
    return f"↳ left: {first}", describe_point(branch)


async def _open_copy(front_end: FrontEnd, copy: str, point: Point | None = None) -> None:
    before = front_end.session.id
    await front_end.open(OpenRequest(copy))
    if front_end.session.id == before:
        return  # it could not be opened; the error is on the screen
    if point is not None:
        front_end.show_again(point.text, point.images)
    what = "a copy" if copy else "a new session: nothing was said before that message"
    front_end.say(f"This is {what}. The one before: /resume {before[:8]}")


def _show_rewound(front_end: FrontEnd, rewound: Rewound, conversation: bool) -> None:
    if conversation:
        front_end.show_again(rewound.text, rewound.images)
    front_end.say("/redo returns to it.")
    for notice in rewound.notices:
        front_end.say(notice, "info" if notice.startswith(f"{UNDONE}:") else "warning")
