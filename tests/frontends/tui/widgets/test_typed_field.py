"""TypedField: editing keys act in the order of typing."""

import re
from pathlib import Path

import pytest
from textual import events
from textual.app import App
from textual.containers import Vertical
from textual.widgets import Input

import ouro
from ouro.frontends.tui.screens.dialogs import SearchField
from ouro.frontends.tui.widgets.typed_field import TypedField


class FieldApp(App):
    def __init__(self, field):
        super().__init__()
        self.field = field

    def compose(self):
        with Vertical(), Vertical(), Vertical():
            yield self.field

    def on_mount(self):
        self.field.focus()


def burst(*keys):
    return [events.Key(key, key if len(key) == 1 else None) for key in keys]


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        ((*"old", "ctrl+u", *"new"), "new"),
        ((*"a bc", "ctrl+w", *"d"), "a d"),
        ((*"ab", "backspace", *"c"), "ac"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "keeps_order"), [(TypedField, True), (SearchField, True), (Input, False)]
)
async def test_keys_of_one_burst_act_in_their_order(keys, left, kind, keeps_order):
    async with FieldApp(kind()).run_test() as pilot:
        await pilot.pause()
        for key in burst(*keys):
            pilot.app.post_message(key)
        await pilot.pause()
        assert (pilot.app.field.value == left) is keeps_order


@pytest.mark.parametrize("kind", [TypedField, SearchField])
async def test_all_lines_of_a_paste_are_in_the_field(kind):
    async with FieldApp(kind()).run_test() as pilot:
        await pilot.pause()
        await pilot.press(*"a ")
        pilot.app.post_message(events.Paste("first\r\n second\n"))
        await pilot.pause()
        assert pilot.app.field.value == "a first second"


class Dialog(Vertical):
    """Uses Ctrl+U itself."""

    def on_key(self, event):
        if event.key == "ctrl+u":
            event.stop()
            event.prevent_default()


class DialogApp(FieldApp):
    def compose(self):
        with Dialog():
            yield self.field


async def test_a_dialog_can_use_an_editing_key_itself():
    async with DialogApp(SearchField(dialog_keys={"ctrl+u"})).run_test() as pilot:
        await pilot.pause()
        await pilot.press(*"ab", "ctrl+u", *"c", "backspace", *"d")
        assert pilot.app.field.value == "abd"


def test_no_field_is_textuals_own():
    screen = Path(ouro.__file__).parent / "frontends" / "tui"
    plain = [
        path.name
        for path in screen.rglob("*.py")
        if re.search(r"(?<![\w.])Input\(", path.read_text()) and path.name != "typed_field.py"
    ]
    assert plain == []
