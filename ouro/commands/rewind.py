"""Commands on branches of the session: rewind, undo, redo, fork."""

from __future__ import annotations

from ouro.commands.front_end import FrontEnd, WayBack
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Level
from ouro.memory.backend import RewindScope
from ouro.session import Branch, OpenRequest, Point
from ouro.utils.text import clean, plural

NOT_LISTED = "Ways that were left before what is sent now are kept in the session's file, and not listed here."
LISTED = 20
"""Messages that a printed list has; older ones are named by their number."""


async def rewind(front_end: FrontEnd, argument: str) -> None:
    """Go back to before an earlier message (1: the last one), to edit and send it again."""
    past = front_end.session.rewind
    while past.has_earlier and len(past.points()) < (int(argument) if argument.isdigit() else LISTED):
        await past.earlier()
    if argument:
        points = past.points()
        if not argument.isdigit() or not 1 <= int(argument) <= len(points):
            raise UsageError(f"Say how many messages back, from 1 to {len(points)}; /rewind alone shows them.")
        await go(front_end, WayBack("rewind", points[-int(argument)].number))
        return
    if not past.points() and not past.branches():
        raise UsageError("Nothing was said yet that one could go back to.")
    if way := await front_end.choose_way_back():
        await go(front_end, way)


async def undo(front_end: FrontEnd, _argument: str) -> None:
    rewound = await front_end.session.rewind.undo()
    front_end.show_again(rewound.text, rewound.images)
    _tell(front_end, "/redo returns to it.", rewound.notices)


async def redo(front_end: FrontEnd, _argument: str) -> None:
    """Return to where the session was before you went back."""
    await front_end.session.rewind.redo()
    front_end.show_again()
    front_end.say("Returned to where the conversation was.")


async def fork(front_end: FrontEnd, argument: str) -> None:
    """Continue in a copy of the session; this one stays unchanged."""
    await _open_copy(front_end, await front_end.session.rewind.fork(title=argument))


async def go(front_end: FrontEnd, way: WayBack) -> None:
    """Carry out the user's choice."""
    past = front_end.session.rewind
    match way.kind:
        case "rewind":
            rewound = await past.rewind(way.number, way.scopes)
            front_end.show_again(rewound.text, rewound.images)
            _tell(front_end, "/redo returns to it.", rewound.notices)
        case "visit":
            await past.visit(way.number)
            front_end.show_again()
            front_end.say("This is the branch that you left. /redo returns to where the session was.")
        case "fork":
            point = next((candidate for candidate in past.points() if candidate.number == way.number), None)
            await _open_copy(front_end, await past.fork(way.number), point)


async def choose_from_list(front_end: FrontEnd) -> WayBack | None:
    """Let the user choose from printed lists; the plain prompt has no rewind screen."""
    past = front_end.session.rewind
    points = past.points()[-LISTED:]
    branches = {f"branch {branch.number}": branch for branch in past.branches()}
    choices = [Choice(str(point.number), one_line(point.text), describe_point(point)) for point in reversed(points)]
    choices += [Choice(value, *branch_label(branch)) for value, branch in branches.items()]
    if past.lacks_branches:
        front_end.say(NOT_LISTED)
    chosen = await front_end.choose("Go back before which message? The last one comes first.", choices)
    if chosen is None:
        return None
    if chosen in branches:
        return WayBack("visit", branches[chosen].number)
    number = int(chosen)
    ways: dict[str, WayBack] = {"back": WayBack("rewind", number)}
    labels = [Choice("back", "go back", "what was there is kept: /redo returns")]
    scopes: tuple[RewindScope, ...] = ()
    for scope, what in (await past.can_rewind(number)).items():
        scopes = (*scopes, scope)
        name = f"back, {' and '.join(scopes)}"
        ways[name] = WayBack("rewind", number, scopes)
        labels.append(Choice(name, f"go back, and undo in {' and '.join(scopes)}", what))
    ways["fork"] = WayBack("fork", number)
    labels.append(Choice("fork", "go on there in a copy", "this session stays as it is"))
    way = await front_end.choose("How?", labels)
    return None if way is None else ways[way]


def one_line(text: str) -> str:
    """The text of a message on one line."""
    return " ".join(clean(text).split()) or "(no words)"


def describe_point(point: Point) -> str:
    """What a rewind to before a message removes: `6 messages, 3 tool calls`."""
    return _counted(point.messages, point.calls)


def branch_label(branch: Branch) -> tuple[str, str]:
    """The label of a branch in a list."""
    first = one_line(branch.texts[0]) if branch.texts else "what the agent did"
    return f"↳ left: {first}", _counted(branch.messages, branch.calls)


def _counted(messages: int, calls: int) -> str:
    said = plural(messages, "message")
    return f"{said}, {plural(calls, 'tool call')}" if calls else said


async def _open_copy(front_end: FrontEnd, copy: str, point: Point | None = None) -> None:
    before = front_end.session.id
    await front_end.open(OpenRequest(copy))
    if front_end.session.id == before:
        return  # it could not be opened; the error is on the screen
    if point is not None:
        front_end.show_again(point.text, point.images)
    what = "a copy" if copy else "a new session: nothing was said before that message"
    front_end.say(f"This is {what}. The one before: /resume {before[:8]}")


def _tell(front_end: FrontEnd, line: str, told: tuple[str, ...]) -> None:
    level: Level = "info"
    for text in (line, *told):
        front_end.say(text, level)
        level = "warning"
