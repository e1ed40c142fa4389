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

from ouro.commands.context_window import ItemVerb, change_items, item_state, largest_items
from ouro.commands.front_end import RewindChoice
from ouro.commands.rewind import NOT_LISTED, branch_label, describe_point, message_label
from ouro.display import Choice
from ouro.errors import OuroError
from ouro.frontends.session_format import format_age, now
from ouro.frontends.tui.blocks.styled_lines import code_content
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
MIN_WIDTH_FOR_COLUMNS = 60
"""A narrower screen has no room for columns, nor for boxes without changes."""
MAX_PREVIEW_TEXT = 8_000
"""Characters of an item of the context in its preview: more than a screen has room for."""
MAX_PREVIEW = 3
"""Messages of a branch in the preview."""
_UP_KEYS = ("up", "ctrl+p", "pageup")


class ListSheet(Sheet[R]):
    """A list with a preview of the marked row below it.

    A subclass that overrides `_body` must set what that needs before it calls this `__init__`.

    Args:
        actions: the Textual action of each key.
        keys: the keys that the last line names.
        more: the key that shows all keys.
        nothing: shown if there are no rows.
    """

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
        """The objects that the rows stand for, by the values of their choices."""
        self._list = PickList(nothing=nothing)
        self._preview = Static(markup=False, classes="sheet--preview")
        super().__init__(make_frame(title, *self._body(), keys=keys, more=more, id=id))

    def _body(self) -> Sequence[Widget]:
        """The widgets between the title and the keys, from top to bottom."""
        return self._list, self._preview

    @abstractmethod
    def _read(self) -> Iterable[tuple[Choice, Any]]:
        """The current rows: for each the choice that shows it, and the object that it is about."""

    @abstractmethod
    def _preview_of(self, row: Any) -> Group | Text | Content | str:
        """The preview of the marked row; `row` is None if there is none."""

    @property
    def _marked(self) -> Any:
        """The object of the marked row; None if there is none."""
        return None if self._list.marked is None else self._rows[self._list.marked.value]

    def _fill(self) -> None:
        """Read the rows again, and show them with the preview of the marked one."""
        rows = list(self._read())
        self._rows = {choice.value: row for choice, row in rows}
        self._list.change([choice for choice, _ in rows])
        self._show_marked()

    def _show_marked(self) -> None:
        self._preview.update(self._preview_of(self._marked))

    @on(PickList.Marked)
    def _follow_mark(self) -> None:
        self._show_marked()

    async def _take_key(self, event: events.Key) -> bool:
        """Run the action of a key, or if it has none let it move the mark. Returns whether it did
        either.
        """
        if event.key not in self._actions:
            return self._list.move_by_key(event.key, is_alone=self.focused is None)
        await self.run_action(self._actions[event.key])
        return True


_AROUND_OUTPUT = 13
"""Rows of the screen that neither the list nor the output of a task can use: the prompt, the frame,
the title, the keys and blank lines.
"""
_REFRESH_SECONDS = 0.5
"""Seconds between two looks at the tasks, which have no event for new output."""
_TASK_KEYS: Keys = (("↑↓", ""), ("x", "ends it"), ("Esc", "closes"))


class TasksSheet(ListSheet[None]):
    """The goal, loops, background jobs and subagents. The end of the output of the marked one is
    below the list, and `x` ends it.
    """

    def __init__(
        self, tasks: Callable[[], Sequence[BackgroundTask]], kill: Callable[[str], Awaitable[None]]
    ) -> None:
        """`tasks` returns what runs in the background now, and `kill` ends the task with an id."""
        kill_keys = dict.fromkeys(("x", "delete"), "kill")
        close_keys = dict.fromkeys(("q", "enter", "ctrl+b"), "close")
        super().__init__(
            "Tasks",
            {**kill_keys, **close_keys},
            keys=_TASK_KEYS,
            id="tasks",
            nothing="No background jobs and no subagents.",
        )
        self._tasks = tasks
        self._kill = kill

    def on_mount(self) -> None:
        self.set_interval(_REFRESH_SECONDS, self._fill)
        self.call_after_refresh(self._fill)

    async def action_kill(self) -> None:
        """End the marked task; for one that has ended already, say so."""
        task = self._marked
        if task is None:
            return
        if not task.is_running:
            self.key_line.show_message(f"{task.id} has ended already.")
            return
        with suppress(OuroError):  # the task has just ended
            await self._kill(task.id)
        self._fill()

    async def _take_key(self, event: events.Key) -> bool:
        self.key_line.show_keys()  # instead of a message
        return await super()._take_key(event)

    def _read(self) -> Iterable[tuple[Choice, BackgroundTask]]:
        """The tasks with their state; those that run come first."""
        tasks = sorted(self._tasks(), key=lambda task: not task.is_running)
        return ((Choice(task.id, f"{task.id}  {task.title}", task.state), task) for task in tasks)

    def _preview_of(self, row: BackgroundTask | None) -> Text | Content:
        """The text below the list: the last lines of the task's output, as many as fit on the
        screen. For the goal it is the whole goal.
        """
        if row is None:
            return Text()
        if row.id == "goal":
            return code_content(clean(row.output))
        max_lines = max(1, self.app.size.height - self._list.size.height - _AROUND_OUTPUT)
        last_lines = clean(row.output).rstrip().split("\n")[-max_lines:]
        return Text("\n".join(last_lines), no_wrap=True, overflow="ellipsis")


class ContextSheet(ListSheet[None]):
    """The items of the context, the largest first; keys drop, restore and pin them."""

    def __init__(self, window: ContextWindow, keymap: Keymap) -> None:
        actions = {**keymap.actions_of("context"), "q": "close", "enter": "close"}
        drop, pin = keymap.key_text("drop_item"), keymap.key_text("pin_item")
        keys = (("↑↓", ""), (drop, "drops or restores"), (pin, "pins"), ("Esc", "closes"))
        self._parts = Static(id="context-parts", markup=False)
        super().__init__(
            "Context", actions, keys=keys, id="context", nothing="Nothing was sent yet."
        )
        self._window = window

    def _body(self) -> Sequence[Widget]:
        return self._parts, *super()._body()

    def on_mount(self) -> None:
        self._fill()
        report = self._window.report()
        self._show_title(f"Context: {report.tokens:,} of {report.window:,} tokens")

    def _fill(self) -> None:
        """Also show what takes the tokens, the most first: the items below are only a part of it."""
        super()._fill()
        parts = sorted(self._window.report().parts, key=lambda part: -part[1])
        self._parts.update(" · ".join(f"{name} {tokens:,}" for name, tokens in parts))

    async def action_drop_item(self) -> None:
        await self._change("restore" if self._marked and self._marked.is_dropped else "drop")

    async def action_pin_item(self) -> None:
        await self._change("pin")

    async def _change(self, verb: ItemVerb) -> None:
        """Drop, restore or pin the marked item. The title then shows what was done, or why it was
        not.
        """
        if self._marked is None:
            return
        try:
            self._show_title(await change_items(self._window, [self._marked], verb))
        except OuroError as error:
            self._show_title(str(error))
        self._fill()

    def _show_title(self, text: str) -> None:
        self._frame.title.update(text)

    def _read(self) -> Iterable[tuple[Choice, Any]]:
        """The items of the context, the largest first: tokens, kind, start of the text, state."""
        items = largest_items(self._window)
        tokens_width = max((len(f"{item.tokens:,}") for item in items), default=0)
        for item in items:
            is_message = item.kind in ("you", "ouro")
            text = message_label(item.text) if is_message else item.text
            label = f"{item.tokens:>{tokens_width},}  {item.kind:<6}  {one_line(text, 60)}"
            yield Choice(item.id, label, item_state(item)), item

    def _preview_of(self, row: Any) -> str:
        return clean(row.text[:MAX_PREVIEW_TEXT]).strip() if row else ""


class RewindSheet(ListSheet[RewindChoice | None]):
    """The user's messages, the newest last, and the branches that were left by a rewind. Boxes
    below the list offer what a rewind undoes.

    Its result is what the user chose; None if the sheet was closed.

    Args:
        with_files: whether the box for the files is ticked at first.
    """

    def __init__(self, rewind: Rewind, keymap: Keymap, *, with_files: bool = False) -> None:
        self._rewind = rewind
        self._with_files = with_files
        self._scopes_worker: Worker[None] | None = None
        """Finds out what the marked row would change; None if no row is marked."""
        self._search = SearchField()
        self._boxes = ScopeBoxes({"conversation", "files"} if with_files else {"conversation"})
        fork_key = keymap.key_text("fork_there")  # empty if the user gave it none
        fork = [(fork_key, "forks")] if fork_key else []
        keys = (("↑↓ Enter", "rewinds"), *fork, ("Tab Space", "tick"), ("Esc", "closes"))
        actions = {**keymap.actions_of("sheet"), "enter": "choose"}
        super().__init__("Rewind to a message", actions, keys=keys, more="F1", id="rewind")

    def _body(self) -> Sequence[Widget]:
        """The widgets below the title, with a note if branches cannot be listed."""
        notes: list[Widget] = []
        if self._rewind.lacks_branches:
            notes = [Static(NOT_LISTED, id="rewind-not-listed", markup=False)]
        return self._search, self._list, *notes, self._preview, self._boxes

    def on_mount(self) -> None:
        self._search.focus()
        self._fill()
        self._mark_last()

    def on_resize(self) -> None:
        """Offer the boxes again, because a narrow screen has room for fewer. The present boxes stay
        until the new ones are known.
        """
        marked = self._marked
        if marked is not None:
            self._scopes_worker = self._ask_scopes(marked)

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list.narrow(event.value)
        self._mark_last()

    def _mark_last(self) -> None:
        """Mark the last row. If the files are to be undone, too, mark the message that began the
        last turn: the last row may be a message that steered this turn later.
        """
        self._list.marked_index = max(0, len(self._list.rows) - 1)
        turn_starts = [point for point in self._rewind.points() if not point.is_steered]
        if self._with_files and turn_starts:
            last_turn = f"m{turn_starts[-1].number}"  # as `_read` names it
            row_values = [row.value for row in self._list.rows]
            if last_turn in row_values:  # the search may have left it out
                self._list.marked_index = row_values.index(last_turn)
        self._show_marked()

    async def _take_key(self, event: events.Key) -> bool:
        """Handle a key. A key that moves up from the first row first loads earlier messages."""
        if event.key in _UP_KEYS and self._list.marked_index == 0 and self._rewind.has_earlier:
            try:
                await self._rewind.load_earlier()
            except (OuroError, OSError) as error:
                self.key_line.show_message(str(error), "-failed")
            self._fill()
        return await super()._take_key(event)

    @on(PickList.Picked)
    async def action_choose(self) -> None:
        """Close the sheet with a choice: to rewind to the marked message, or to return to the
        marked branch. The ticked boxes say what is changed. For a message, at least one box must be
        ticked. For a branch none needs to be, because its messages return in any case.
        """
        if self._scopes_worker is not None:  # the boxes may still change
            await self._scopes_worker.wait()
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
        """Close with the choice to fork at the marked message; a branch cannot be forked here."""
        match self._marked:
            case Point(number):
                self.dismiss(RewindChoice("fork", number))
            case _:
                self.notify("Return to the branch first, then use /fork.", timeout=3)

    def _show_marked(self) -> None:
        """Show the preview of the marked row, and its boxes as soon as their changes are known.
        Until then a message has boxes without changes, and a branch has none.
        """
        super()._show_marked()
        marked = self._marked
        boxes_until_then = (
            self._scopes_to_offer(changes_by_scope={}) if isinstance(marked, Point) else {}
        )
        self._boxes.offer(boxes_until_then)
        self._scopes_worker = self._ask_scopes(marked) if marked else None

    @work(exclusive=True)
    async def _ask_scopes(self, row: Point | Branch) -> None:
        """Find out what a rewind to this message would change, or a return to this branch, and show
        a box for each scope. A branch has no box for the conversation, because its messages return
        in any case.
        """
        try:
            if isinstance(row, Point):
                changes = await self._rewind.describe_undoable(row.number)
            else:
                changes = await self._rewind.describe_redoable(row.number)
        except (OuroError, OSError) as error:  # such as checkpoints that cannot be read
            self.key_line.show_message(str(error), "-failed")
            return  # the boxes stay as `_show_marked` has offered them
        if isinstance(row, Point):
            self._boxes.offer(self._scopes_to_offer(changes))
        else:
            self._boxes.offer(
                {scope: what for scope, what in changes.items() if scope != "conversation"}
            )

    def _scopes_to_offer(
        self, changes_by_scope: Mapping[RewindScope, str]
    ) -> dict[RewindScope, str]:
        """The scopes that get a box, each with its changes as text. If a scope has no changes, its
        box says so. A narrow screen leaves such a box out.
        """
        if self.app.size.width < MIN_WIDTH_FOR_COLUMNS:
            return {"conversation": "", **changes_by_scope}
        all_scopes: dict[RewindScope, str] = dict.fromkeys(self._rewind.scopes, NO_CHANGES)
        return {"conversation": "", **all_scopes, **changes_by_scope}

    def _read(self) -> Iterable[tuple[Choice, Point | Branch]]:
        """The messages in their order, and each branch after the message that it followed. The value
        of a choice is `m` or `b` with the number of the message or branch.
        """
        rows: list[Point | Branch] = [*self._rewind.points(), *self._rewind.branches()]
        for row in sorted(rows, key=_row_order):
            age = format_age(row.at, now())
            if isinstance(row, Branch):
                yield Choice(f"b{row.number}", branch_label(row).title, age), row
            else:
                yield Choice(f"m{row.number}", message_label(row.text), age), row

    def _preview_of(self, row: Point | Branch | None) -> Group:
        """The text below the list: one line that says what Enter does, then the message, or the
        first messages of the branch. A low terminal only has room for two lines.
        """
        description, body = "", ""
        match row:
            case Point():
                description = f"Rewinds past {describe_point(row)}"
                body = clean(row.text).strip()
            case Branch():
                description = f"Left branch: {branch_label(row).detail}. Enter returns to it"
                lines = [f"❯ {message_label(text)}" for text in row.texts[:MAX_PREVIEW]]
                rest = len(row.texts) - len(lines)
                if rest:
                    lines.append(f"… and {rest} more")
                body = "\n".join(lines)
            case None:
                pass
        first_line = Text(description, "italic", no_wrap=True, overflow="ellipsis")
        return Group(first_line, Text(body, overflow="fold"))


def _row_order(row: Point | Branch) -> float:
    """Sorts messages by their numbers, and a branch between the message before it and the next."""
    return row.since + 0.5 if isinstance(row, Branch) else row.number


class RedoSheet(Sheet[RewindChoice | None]):
    """Boxes for what can be redone; all of them are ticked at first.

    Its result is the choice to redo what is ticked; None if the sheet was closed.
    """

    def __init__(self, offered: Mapping[RewindScope, str]) -> None:
        self._boxes = ScopeBoxes(offered)
        self._boxes.offer(offered)
        keys = (("Enter", "redoes"), ("Tab Space", "tick"), ("Esc", "closes"))
        super().__init__(make_frame("Redo what was undone", self._boxes, keys=keys))

    async def _take_key(self, event: events.Key) -> bool:
        """Close with what is ticked, on Enter; returns whether the key was Enter."""
        if event.key != "enter":
            return False
        if ticked := self._boxes.ticked:
            self.dismiss(RewindChoice("redo", number=0, scopes=ticked))  # a redo has no message: 0
        else:
            self.notify(NOTHING_TICKED, timeout=3)
        return True


class ScopeBoxes(Horizontal):
    """A check box for each scope that is offered."""

    def __init__(self, ticked: Collection[RewindScope]) -> None:
        """`ticked`: the scopes whose boxes are ticked at first. No box is shown before `offer`."""
        scopes: tuple[RewindScope, ...] = ("conversation", "files", "memory")
        self._boxes = {
            scope: TickBox(scope, id=f"rewind-{scope}", ticked=scope in ticked) for scope in scopes
        }
        super().__init__(*self._boxes.values(), id="rewind-boxes")

    def offer(self, scopes: Mapping[RewindScope, str]) -> None:
        """Show the boxes of these scopes, each with what it would change."""
        for scope, box in self._boxes.items():
            box.display = scope in scopes
            box.what = scopes.get(scope, "")

    @property
    def ticked(self) -> tuple[RewindScope, ...]:
        return tuple(scope for scope, box in self._boxes.items() if box.is_chosen)


class TickBox(Widget, can_focus=True):
    """A check box: Space or a click changes it."""

    ticked: reactive[bool] = reactive(False)
    what: reactive[str] = reactive("")
    """What would be undone or redone, for the label."""

    def __init__(self, label: str, id: str, *, ticked: bool = False) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._label = label
        self.set_reactive(TickBox.ticked, ticked)
        self.display = False

    @property
    def is_chosen(self) -> bool:
        """Whether the box is ticked and has something to undo."""
        return self.display and self.ticked and self.what != NO_CHANGES

    def render(self) -> Text:
        sign = "☑" if self.ticked and self.what != NO_CHANGES else "☐"
        what = f" ({self.what})" if self.what else ""
        return Text(clean(f"{sign} {self._label}{what}"))

    def on_click(self) -> None:
        self.ticked = not self.ticked

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "space":
            event.stop()
            self.ticked = not self.ticked
