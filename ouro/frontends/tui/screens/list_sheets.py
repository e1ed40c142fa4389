"""Sheets with a list and a preview: background tasks, the context, messages to rewind to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Group
from rich.text import Text
from textual import events, on, work
from textual.containers import Horizontal
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker

from ouro.commands.front_end import RewindChoice
from ouro.commands.rewind import NOT_LISTED, branch_label, describe_point, message_label
from ouro.commands.window import change_items, item_state, largest_items
from ouro.display import Choice
from ouro.errors import OuroError
from ouro.frontends.session_format import format_age, now
from ouro.frontends.tui.blocks.lines import code_content
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.dialogs import Keys, SearchField, Sheet, make_frame
from ouro.frontends.tui.widgets.row_list import PickList
from ouro.session import Branch, Point, Rewind, RewindScope
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.session import BackgroundTask
    from ouro.session.context_window import ContextWindow

R = TypeVar("R")
NO_CHANGES = "no changes"
NOTHING_TICKED = "Nothing is ticked: Tab goes to a box, Space ticks it."
COLUMNS_FROM_WIDTH = 60
"""Narrower screens show the items of the context without columns: their padding would leave no room
for the text.
"""
MAX_PREVIEW = 3
"""Messages of a branch in the preview."""
_UPWARD = ("up", "ctrl+p", "pageup")


class ListSheet(Sheet[R]):
    """A list, with a preview of the marked row below; `actions`: the Textual action of each key."""

    def __init__(
        self,
        title: str,
        actions: Mapping[str, str],
        *,
        keys: Keys,
        more: str = "?",
        id: str,  # noqa: A002 (Textual's own name)
        nothing: str = "No matches.",
    ) -> None:
        self._actions = actions
        self._rows: dict[str, Any] = {}
        self._list = PickList(nothing=nothing)
        self._preview = Static(markup=False, classes="sheet--preview")
        super().__init__(make_frame(title, *self._body(), keys=keys, more=more, id=id))

    def _body(self) -> Sequence[Widget]:
        return self._list, self._preview

    @abstractmethod
    def _read(self) -> Iterable[tuple[Choice, Any]]:
        """The current rows: how each is shown, and its object."""

    @abstractmethod
    def _preview_of(self, row: Any) -> Group | Text | Content | str:
        """The preview of the marked row; `row` is None if there is none."""

    @property
    def _marked(self) -> Any:
        return None if self._list.marked is None else self._rows[self._list.marked.value]

    def _fill(self) -> None:
        choices = list(self._read())
        self._rows = {choice.value: row for choice, row in choices}
        self._list.change([choice for choice, _ in choices])
        self._show_marked()

    def _show_marked(self) -> None:
        self._preview.update(self._preview_of(self._marked))

    @on(PickList.Marked)
    def _follow_mark(self) -> None:
        self._show_marked()

    async def _take_key(self, event: events.Key) -> bool:
        if event.key not in self._actions:
            return self._list.take_key(event.key, is_alone=self.focused is None)
        await self.run_action(self._actions[event.key])
        return True


_TASK_KEYS: Keys = (("↑↓", ""), ("x", "ends it"), ("Esc", "closes"))


class TasksSheet(ListSheet[None]):
    """The goal, loops, background jobs and subagents, with the end of the marked one's output. `x` ends it."""

    def __init__(
        self, tasks: Callable[[], Sequence[BackgroundTask]], kill: Callable[[str], Awaitable[None]]
    ) -> None:
        ends = dict.fromkeys(("x", "delete"), "kill")
        actions = {**ends, **dict.fromkeys(("q", "enter", "ctrl+b"), "close")}
        keys, nothing = _TASK_KEYS, "No background jobs and no subagents."
        super().__init__("Tasks", actions, keys=keys, id="tasks", nothing=nothing)
        self._tasks = tasks
        self._kill = kill

    def on_mount(self) -> None:
        self.set_interval(0.5, self._fill)
        self.call_after_refresh(self._fill)

    async def action_kill(self) -> None:
        if self._marked is not None:
            with suppress(OuroError):  # the task has just ended
                await self._kill(self._marked.id)
            self._fill()

    def _read(self) -> Iterable[tuple[Choice, BackgroundTask]]:
        return (
            (Choice(task.id, f"{task.id}  {task.title}", task.state), task)
            for task in self._tasks()
        )

    def _preview_of(self, row: BackgroundTask | None) -> Text | Content:
        if row is not None and row.id == "goal":  # a sentence, not an output
            return code_content(clean(row.output))
        most = max(3, self.app.size.height - len(self._rows) - 10)
        output = clean(row.output).rstrip().split("\n")[-most:] if row else []
        return Text("\n".join(output), no_wrap=True, overflow="ellipsis")


class ContextSheet(ListSheet[None]):
    """The items of the context, the largest first; keys drop, restore and pin them."""

    def __init__(self, window: ContextWindow, keymap: Keymap) -> None:
        actions = {**keymap.actions_of("context"), "q": "close", "enter": "close"}
        drop, pin = keymap.key_text("drop_item"), keymap.key_text("pin_item")
        keys = (("↑↓", ""), (drop, "drops or restores"), (pin, "pins"), ("Esc", "closes"))
        super().__init__(
            "Context", actions, keys=keys, id="context", nothing="Nothing was sent yet."
        )
        self._window = window

    def on_mount(self) -> None:
        self._fill()
        report = self._window.report()
        self._say(f"Context: {report.tokens:,} of {report.window:,} tokens")

    async def action_drop_item(self) -> None:
        await self._change("restore" if self._marked and self._marked.is_dropped else "drop")

    async def action_pin_item(self) -> None:
        await self._change("pin")

    async def _change(self, verb: str) -> None:
        """Drop, restore or pin the marked item, and show the new size of the context."""
        if self._marked is not None:
            try:
                self._say(await change_items(self._window, [self._marked], verb))
            except OuroError as error:
                self._say(str(error))
            self._fill()

    def _say(self, text: str) -> None:
        self._frame.title.update(text)

    def _read(self) -> Iterable[tuple[Choice, Any]]:
        items = largest_items(self._window)
        width = max((len(f"{item.tokens:,}") for item in items), default=0)
        for item in items:
            line = f"{item.tokens:>{width},}  {item.kind:<6}  {one_line(item.text, 60)}"
            yield Choice(item.id, line, item_state(item)), item

    def _preview_of(self, row: Any) -> str:
        return clean(row.text)[:400].strip() if row else ""


class RewindSheet(ListSheet[RewindChoice | None]):
    """User messages, the newest last, and left branches; below, what a rewind would undo."""

    def __init__(self, past: Rewind, keymap: Keymap, *, with_files: bool = False) -> None:
        self._past = past
        self._with_files = with_files
        self._asked: Worker[None] | None = None
        self._search = SearchField()
        self._boxes = ScopeBoxes({"conversation", "files"} if with_files else {"conversation"})
        fork = [(key, "forks")] if (key := keymap.key_text("fork_there")) else []
        keys = (("↑↓ Enter", "rewinds"), *fork, ("Tab Space", "tick"), ("Esc", "closes"))
        actions = {**keymap.actions_of("sheet"), "enter": "choose"}
        super().__init__("Rewind to a message", actions, keys=keys, more="F1", id="rewind")

    def _body(self) -> Sequence[Widget]:
        """The widgets below the title, with a note if branches cannot be listed."""
        not_listed = (
            [Static(NOT_LISTED, id="rewind-not-listed", markup=False)]
            if self._past.lacks_branches
            else []
        )
        return self._search, self._list, *not_listed, self._preview, self._boxes

    def on_mount(self) -> None:
        self._search.focus()
        self._fill()
        self._mark_last()

    def on_resize(self) -> None:
        """Ask again: a narrow screen has room for fewer boxes. What is shown stays until then."""
        if (marked := self._marked) is not None:
            self._asked = self._ask_scopes(marked)

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list.narrow(event.value)
        self._mark_last()

    def _mark_last(self) -> None:
        """Mark the last message; to undo a turn, the one that began it."""
        self._list.place = max(0, len(self._list.rows) - 1)
        begun = [f"m{point.number}" for point in self._past.points() if not point.is_steered]
        values = [row.value for row in self._list.rows]
        if self._with_files and begun and begun[-1] in values:  # not a message that steered it
            self._list.place = values.index(begun[-1])
        self._show_marked()

    async def _take_key(self, event: events.Key) -> bool:
        if event.key in _UPWARD and self._list.place == 0 and self._past.has_earlier:
            await self._past.load_earlier()
            self._fill()
        return await super()._take_key(event)

    @on(PickList.Picked)
    async def action_choose(self) -> None:
        if self._asked is not None:  # a ticked box may not be shown yet
            await self._asked.wait()
        match self._marked:
            case Point(number):
                if ticked := self._boxes.ticked:
                    self.dismiss(RewindChoice("rewind", number, ticked))
                else:
                    self.notify(NOTHING_TICKED, timeout=3)
            case Branch(number):
                self.dismiss(RewindChoice("visit", number, self._boxes.ticked))
            case None:
                pass

    def action_fork_there(self) -> None:
        match self._marked:
            case Point(number):
                self.dismiss(RewindChoice("fork", number))
            case _:
                self.notify("Return to the branch first, then use /fork.", timeout=3)

    def _show_marked(self) -> None:
        super()._show_marked()
        marked = self._marked
        self._boxes.offer(self._scopes_to_offer({}) if isinstance(marked, Point) else {})
        self._asked = self._ask_scopes(marked) if marked else None

    @work(exclusive=True)
    async def _ask_scopes(self, row: Point | Branch) -> None:
        """Offer the boxes of what a rewind to this message or branch would undo."""
        if isinstance(row, Point):
            self._boxes.offer(self._scopes_to_offer(await self._past.can_rewind(row.number)))
        else:  # the messages of a branch are restored in any case
            offered = await self._past.can_redo(row.number)
            self._boxes.offer(
                {scope: what for scope, what in offered.items() if scope != "conversation"}
            )

    def _scopes_to_offer(self, found: Mapping[RewindScope, str]) -> dict[RewindScope, str]:
        """The same boxes for each message; one without changes says so, where there is room."""
        if self.app.size.width < COLUMNS_FROM_WIDTH:
            return {"conversation": "", **found}
        changes: dict[RewindScope, str] = dict.fromkeys(self._past.scopes, NO_CHANGES)
        return {"conversation": "", **changes, **found}

    def _read(self) -> Iterable[tuple[Choice, Point | Branch]]:
        """Messages in order; a branch comes after the message from whose answer it departs."""
        rows: list[Point | Branch] = [*self._past.points(), *self._past.branches()]
        for row in sorted(
            rows, key=lambda row: row.since + 0.5 if isinstance(row, Branch) else row.number
        ):
            mark, label = (
                ("b", branch_label(row)[0])
                if isinstance(row, Branch)
                else ("m", message_label(row.text))
            )
            yield Choice(f"{mark}{row.number}", label, format_age(row.at, now())), row

    def _preview_of(self, row: Point | Branch | None) -> Group:
        """What Enter does, in one line, and the message: low terminals have only two lines."""
        what, text = "", Text(overflow="fold")
        match row:
            case Point():
                what = f"Rewinds past {describe_point(row)}"
                text.append(clean(row.text).strip())
            case Branch():
                what = f"Left branch: {branch_label(row)[1]}. Enter returns to it"
                shown = [message_label(text) for text in row.texts[:MAX_PREVIEW]]
                more = len(row.texts) - len(shown)
                text.append(
                    "\n".join(
                        [
                            *(f"❯ {line}" for line in shown),
                            *([f"… and {more} more"] if more else []),
                        ]
                    )
                )
            case None:
                pass
        return Group(Text(what, "italic", no_wrap=True, overflow="ellipsis"), text)


class RedoSheet(Sheet[RewindChoice | None]):
    """What can be redone; everything is ticked at first."""

    def __init__(self, offered: Mapping[RewindScope, str]) -> None:
        self._boxes = ScopeBoxes(offered)
        self._boxes.offer(offered)
        keys = (("Enter", "redoes"), ("Tab Space", "tick"), ("Esc", "closes"))
        super().__init__(make_frame("Redo what was undone", self._boxes, keys=keys))

    async def _take_key(self, event: events.Key) -> bool:
        """Redo on Enter what is ticked."""
        if event.key != "enter":
            return False
        if ticked := self._boxes.ticked:
            self.dismiss(RewindChoice("redo", 0, ticked))
        else:
            self.notify(NOTHING_TICKED, timeout=3)
        return True


class ScopeBoxes(Horizontal):
    """A check box for each scope that is offered."""

    def __init__(self, ticked: Collection[RewindScope]) -> None:
        scopes: tuple[RewindScope, ...] = ("conversation", "files", "memory")
        self._boxes = {
            scope: TickBox(scope, id=f"rewind-{scope}", ticked=scope in ticked) for scope in scopes
        }
        super().__init__(*self._boxes.values(), id="rewind-boxes")

    def offer(self, scopes: Mapping[RewindScope, str]) -> None:
        """Show the boxes of these scopes, with what is in each."""
        for scope, box in self._boxes.items():
            box.display = scope in scopes
            box.what = scopes.get(scope, "")

    @property
    def ticked(self) -> tuple[RewindScope, ...]:
        return tuple(scope for scope, box in self._boxes.items() if box.counts)


class TickBox(Widget, can_focus=True):
    """A check box: Space or a click changes it."""

    ticked: reactive[bool] = reactive(False)
    what: reactive[str] = reactive("")

    def __init__(self, label: str, id: str, *, ticked: bool = False) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._label = label
        self.set_reactive(TickBox.ticked, ticked)
        self.display = False

    @property
    def counts(self) -> bool:
        """Whether it is ticked, and has something to undo."""
        return self.display and self.ticked and self.what != NO_CHANGES

    def render(self) -> Text:
        sign = "☐" if not self.ticked or self.what == NO_CHANGES else "☑"
        return Text(clean(f"{sign} {self._label}{self.what and f' ({self.what})'}"))

    def on_click(self) -> None:
        self.ticked = not self.ticked

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "space":
            event.stop()
            self.ticked = not self.ticked
