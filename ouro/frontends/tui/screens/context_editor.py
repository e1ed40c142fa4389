"""ContextSheet: what is sent to the model, the largest first; a key drops, restores or pins an item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Static

from ouro.commands.window import change_items, item_line, largest_items
from ouro.display import Choice
from ouro.errors import OuroError
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.sheet import Sheet, framed
from ouro.frontends.tui.widgets.row_list import PickList
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import ContextItem
    from ouro.session.context_window import ContextWindow


class ContextSheet(Sheet[None]):
    """The list, and below it the beginning of the marked item."""

    def __init__(self, window: ContextWindow, keymap: Keymap) -> None:
        super().__init__()
        self._window = window
        self._keys = keymap.of("context")
        self._shown_keys = f"{keymap.shown('drop_item')} drops or restores · {keymap.shown('pin_item')} pins"
        self._items: dict[str, ContextItem] = {}
        self._list = PickList(nothing="Nothing was sent yet.")
        self._preview = Static(markup=False, id="context-preview")

    def compose(self) -> ComposeResult:
        keys = f"↑↓ · {self._shown_keys} · Esc closes"
        yield framed("", self._list, self._preview, keys=keys, id="context")

    def on_mount(self) -> None:
        self._fill()
        self._say("")

    async def _on_key(self, event: events.Key) -> None:
        if self._list.take_key(event.key):
            event.stop()
        elif action := self._keys.get(event.key):
            event.stop()
            await self._change(action)
        elif event.key in ("q", "enter"):
            event.stop()
            self.dismiss(None)

    @on(PickList.Marked)
    def _show_marked(self) -> None:
        item = self._marked()
        self._preview.update(clean(item.text)[:400].strip() if item else "")

    async def _change(self, action: str) -> None:
        item = self._marked()
        if item is None:
            return
        verb = "pin" if action == "pin_item" else "restore" if item.is_dropped else "drop"
        try:
            self._say(await change_items(self._window, [item], verb))
        except OuroError as error:
            self._say(str(error))
        self._fill()

    def _fill(self) -> None:
        items = largest_items(self._window)
        self._items = {item.id: item for item in items}
        self._list.change([Choice(item.id, item_line(item)) for item in items])

    def _say(self, text: str) -> None:
        report = self._window.report()
        text = text or f"Context: {report.tokens:,} of {report.window:,} tokens"
        self.query_one(".sheet--title", Static).update(text)

    def _marked(self) -> ContextItem | None:
        chosen = self._list.marked
        return self._items[chosen.value] if chosen is not None else None
