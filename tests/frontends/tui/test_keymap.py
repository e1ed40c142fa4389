import pytest

from ouro.errors import ConfigError
from ouro.frontends.tui.keymap import ACTIONS, Keymap, format_key


def test_default_keys_have_their_documented_actions():
    keymap = Keymap()
    assert keymap.keys("send") == ("enter",)
    assert keymap.keys("newline") == ("shift+enter", "alt+enter", "ctrl+j")
    assert keymap.keys("editor") == ("ctrl+g", "ctrl+x ctrl+e")
    assert keymap.keys("help") == ("question_mark", "f1")
    assert {
        key: name
        for key, name in keymap.actions_of("app").items()
        if key in ("escape", "shift+tab", "alt+p")
    } == {
        "escape": "interrupt",
        "shift+tab": "mode",
        "alt+p": "model",
    }


def test_no_key_has_two_actions_in_one_place_and_ctrl_h_none():
    for places in (("prompt", "edit", "app"), ("answer", "app")):
        keys = [
            key
            for action in ACTIONS
            if action.place in places
            for key in Keymap().keys(action.name)
        ]
        assert sorted(keys) == sorted(set(keys))
        assert "ctrl+h" not in keys


def test_key_can_be_changed_added_and_removed():
    keymap = Keymap({"stash": "F5", "queue": [], "redraw": ["ctrl+l", "Shift+Ctrl+R"]})
    assert [keymap.keys(name) for name in ("stash", "queue", "redraw")] == [
        ("f5",),
        (),
        ("ctrl+l", "ctrl+shift+r"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sned": "f5"}, "unknown action `sned`"),
        ({"send": "ctrl+foo"}, "`send` has the unknown key 'ctrl+foo'"),
        ({"send": 5}, "`send` has the unknown key 5"),
        ({"stash": "ctrl+o"}, "`ctrl+o` is a key of both `stash` and `outputs`"),
    ],
)
def test_invalid_key_setting_is_an_error_that_names_it(changes, message):
    with pytest.raises(ConfigError, match=r"tui\.keys") as error:
        Keymap({name: key if isinstance(key, str) else [key] for name, key in changes.items()})
    assert message in str(error.value)


def test_punctuation_keys_use_the_textual_names():
    assert Keymap({"help": [".", "period", "ctrl+-", "_"]}).keys("help") == (
        "full_stop", "full_stop", "ctrl+minus", "underscore",
    )  # fmt: skip


def test_keys_are_formatted_for_display():
    assert [format_key(key) for key in ("ctrl+x ctrl+e", "question_mark", "escape", "up")] == [
        "Ctrl+X Ctrl+E",
        "?",
        "Esc",
        "↑",
    ]


def test_keys_of_newer_actions_yield_to_those_of_the_user():
    keymap = Keymap({"rewind": ["f8"], "help": "ctrl+p"})
    assert (keymap.keys("rewind"), keymap.keys("terminal")) == (("f8",), ())
    assert (keymap.keys("help"), keymap.keys("palette")) == (("ctrl+p",), ())
    assert Keymap({"terminal": "f9", "rewind": "f8"}).keys("terminal") == ("f9",)
    assert Keymap({"send": "ctrl+n"}).keys("next") == ("down",)


@pytest.mark.parametrize("key", ["ctrl+delete", "shift+backspace", "shift+delete"])
def test_newer_keys_that_edit_yield_to_those_of_the_user(key):
    keymap = Keymap({"jobs": key})
    assert (keymap.keys("jobs"), key in keymap.actions_of("edit")) == ((key,), False)


@pytest.mark.parametrize(
    "key",
    [
        key
        for item in ACTIONS
        if item.place == "edit"
        for key in item.keys
        if key not in ("ctrl+delete", "shift+backspace", "shift+delete")
    ],
)
def test_key_that_edits_the_prompt_is_refused_for_an_action_of_the_app(key):
    with pytest.raises(ConfigError, match="is a key of both") as error:
        Keymap({"jobs": key})
    assert "`jobs`" in str(error.value)


def test_editing_key_is_free_after_the_user_has_removed_it():
    keymap = Keymap({"jobs": "f7", "select_all": []})
    assert (keymap.actions_of("app")["f7"], "f7" in keymap.actions_of("prompt", "edit")) == (
        "jobs",
        False,
    )


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("m", "is typed"), ("M", "is typed"), ("!", "is typed"), ("space", "is typed"),
        ("shift+a", "is typed"), ("ctrl+x t", "is two keys"),
    ],
)  # fmt: skip
def test_key_that_never_reaches_its_action_has_a_warning(key, why):
    [warning] = Keymap({"memory": [key, "f4"]}).unreachable
    assert why in warning
    assert "`memory`" in warning


def test_default_keys_all_reach_their_actions():
    assert Keymap().unreachable == ()
    assert Keymap({"memory": ["alt+m", "ctrl+shift+m", "f12"]}).unreachable == ()
