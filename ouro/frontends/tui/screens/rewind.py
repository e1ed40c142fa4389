"""RewindSheet: choose a message to rewind to or fork at, or a branch to return to."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rich.console import Group
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker

from ouro.commands.front_end import WayBack
from ouro.commands.rewind import NOT_LISTED, branch_label, describe_point, one_line
from ouro.display import Choice
from ouro.frontends.session_lines import age, now
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.sheet import Sheet, framed
from ouro.frontends.tui.widgets.row_list import PickList
from ouro.session import Branch, Point, Rewind, RewindScope
from ouro.utils.text import clean

NOTHING_TICKED = "Nothing is ticked: Tab goes to a box, Space ticks it."
MAX_PREVIEW = 3
"""Messages of a branch in the preview."""
_UPWARD = ("up", "ctrl+p", "pageup")


class RewindSheet(Sheet[WayBack | None]):
    """User messages, the newest at the bottom, and left branches; below, what a rewind would undo.

    Args:
        with_files: changes of files are ticked.
    """

    def __init__(self, past: Rewind, keymap: Keymap, *, with_files: bool = False) -> None:
        super().__init__()
        self._past = past
        self._keys = keymap.of("sheet")
        self._fork_key = keymap.shown("fork_there")
        self._asked: Worker[None] | None = None
        self._rows: dict[str, Point | Branch] = {}
        self._list = PickList()
        self._search = Input(placeholder="type to search", compact=True, id="picker-search")
        self._preview = Static(markup=False, id="rewind-preview")
        self._boxes = ScopeBoxes({"conversation", "files"} if with_files else {"conversation"})

    def compose(self) -> ComposeResult:
        not_listed = [Static(NOT_LISTED, id="rewind-not-listed", markup=False)] if self._past.lacks_branches else []
        fork = f"{self._fork_key} forks · " if self._fork_key else ""
        keys = f"↑↓ Enter rewinds · {fork}Tab Space tick · Esc closes"
        body = (self._search, self._list, *not_listed, self._preview, self._boxes)
        yield framed("Rewind to a message", *body, keys=keys, id="rewind")

    def on_mount(self) -> None:
        self._search.focus()
        self._fill()
        self._mark_last()
        self.watch(self._list, "place", self._show_marked)

    def _fill(self) -> None:
        self._rows = dict(_rows(self._past))
        self._list.change([_choice(value, row) for value, row in self._rows.items()])

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list.narrow(event.value)
        self._mark_last()
        self._show_marked()

    def _mark_last(self) -> None:
        self._list.place = max(0, len(self._list.rows) - 1)

    async def _on_key(self, event: events.Key) -> None:
        if event.key in _UPWARD and self._list.place == 0 and self._past.has_earlier:
            await self._past.earlier()
            self._fill()
        if self._list.take_key(event.key):
            event.stop()
        elif event.key == "enter":
            event.stop()
            await self._choose()
        elif self._keys.get(event.key) == "fork_there":
            event.stop()
            self._fork()

    @on(PickList.Picked)
    async def _choose(self) -> None:
        if self._asked is not None:  # a box that is not shown yet may be ticked
            await self._asked.wait()
        match self._marked():
            case Point(number):
                if ticked := self._boxes.ticked:
                    self.dismiss(WayBack.of("rewind", number, ticked))
                else:
                    self.notify(NOTHING_TICKED, timeout=3)
            case Branch(number):
                self.dismiss(WayBack("visit", number, self._boxes.ticked))
            case None:
                pass

    def _fork(self) -> None:
        match self._marked():
            case Point(number):
                self.dismiss(WayBack("fork", number))
            case _:
                self.notify("Return to the branch first, then use /fork.", timeout=3)

    def _marked(self) -> Point | Branch | None:
        chosen = self._list.marked
        return self._rows[chosen.value] if chosen is not None else None

    def _show_marked(self) -> None:
        marked = self._marked()
        self._preview.update(_preview(marked))
        self._boxes.offer({"conversation": ""} if isinstance(marked, Point) else {})
        self._asked = self._ask_scopes(marked) if marked else None

    @work(exclusive=True)
    async def _ask_scopes(self, row: Point | Branch) -> None:
        if isinstance(row, Point):
            self._boxes.offer({"conversation": "", **await self._past.can_rewind(row.number)})
        else:  # its messages come back in any case
            offered = await self._past.can_redo(row.number)
            self._boxes.offer({scope: what for scope, what in offered.items() if scope != "conversation"})


class RedoSheet(Sheet[WayBack | None]):
    """What can be done again; all of it is ticked at first."""

    def __init__(self, offered: Mapping[RewindScope, str]) -> None:
        super().__init__()
        self._boxes = ScopeBoxes(offered)
        self._boxes.offer(offered)

    def compose(self) -> ComposeResult:
        yield framed("Redo what was undone", self._boxes, keys="Enter redoes · Tab Space tick · Esc closes")

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            if ticked := self._boxes.ticked:
                self.dismiss(WayBack.of("redo", 0, ticked))
            else:
                self.notify(NOTHING_TICKED, timeout=3)


class ScopeBoxes(Horizontal):
    """A check box for each scope that is offered."""

    def __init__(self, ticked: Collection[RewindScope]) -> None:
        super().__init__(id="rewind-boxes")
        scopes: tuple[RewindScope, ...] = ("conversation", "files", "memory")
        self._boxes = {scope: TickBox(scope, id=f"rewind-{scope}", ticked=scope in ticked) for scope in scopes}

    def compose(self) -> ComposeResult:
        yield from self._boxes.values()

    def offer(self, scopes: Mapping[RewindScope, str]) -> None:
        """Show the boxes of these scopes, with what is in each."""
        for scope, box in self._boxes.items():
            box.display = scope in scopes
            box.what = scopes.get(scope, "")

    @property
    def ticked(self) -> tuple[RewindScope, ...]:
        return tuple(scope for scope, box in self._boxes.items() if box.display and box.ticked)


class TickBox(Widget, can_focus=True):
    """A check box: Space or a click changes it."""

    ticked: reactive[bool] = reactive(False)
    what: reactive[str] = reactive("")

    def __init__(self, label: str, id: str, *, ticked: bool = False) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._label = label
        self.set_reactive(TickBox.ticked, ticked)
        self.display = False

    def render(self) -> Text:
        return Text(clean(f"{'☑' if self.ticked else '☐'} {self._label}{self.what and f' ({self.what})'}"))

    def on_click(self) -> None:
        self.ticked = not self.ticked

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "space":
            event.stop()
            self.ticked = not self.ticked


def _rows(past: Rewind) -> list[tuple[str, Point | Branch]]:
    """Messages in order, each branch after the message whose answer it parts from."""
    rows: list[tuple[str, Point | Branch]] = [(f"m{point.number}", point) for point in past.points()]
    rows += [(f"b{branch.number}", branch) for branch in past.branches()]
    return sorted(rows, key=lambda row: row[1].since + 0.5 if isinstance(row[1], Branch) else row[1].number)


def _choice(value: str, row: Point | Branch) -> Choice:
    if isinstance(row, Branch):
        return Choice(value, branch_label(row)[0], age(row.at, now()))
    return Choice(value, one_line(row.text), age(row.at, now()))


def _preview(row: Point | Branch | None) -> Group:
    """What Enter does, on one line: low terminals have two, and the message needs the other."""
    what, text = "", Text(overflow="fold")
    match row:
        case Point():
            what = f"Rewinds past {describe_point(row)}"
            text.append(clean(row.text).strip())
        case Branch():
            what = f"Left branch: {branch_label(row)[1]}. Enter returns to it"
            shown = [one_line(text) for text in row.texts[:MAX_PREVIEW]]
            more = len(row.texts) - len(shown)
            text.append("\n".join([*(f"❯ {line}" for line in shown), *([f"… and {more} more"] if more else [])]))
        case None:
            pass
    return Group(Text(what, "italic", no_wrap=True, overflow="ellipsis"), text)
