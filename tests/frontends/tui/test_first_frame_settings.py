"""The settings of the first frame, and their copy for the next start."""

import os
from pathlib import Path

import pytest

from ouro.errors import ConfigError
from ouro.frontends.tui import first_frame_settings
from ouro.frontends.tui.first_frame_settings import (
    first_frame_settings_of,
    load_first_frame_settings,
)
from ouro.frontends.tui.screen_settings import make_screen_settings
from ouro.settings import Settings
from ouro.utils.ouro_paths import get_config_path

CONFIG = """\
tui:
  theme: light
  editing: vim
  notify_seconds: 2
  mouse: false
  animations: false
  status: [model, cost]
  keys: {send: [ctrl+j], newline: [enter, alt+enter]}
memory: {sync: both}
"""


@pytest.fixture(autouse=True)
def _only_home(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OURO_") and name != "OURO_HOME"]:
        monkeypatch.delenv(name)


def write(text):
    get_config_path().parent.mkdir(mode=0o700, exist_ok=True)
    get_config_path().write_text(text)


def refuse_to_read(monkeypatch):
    """Let the settings be read by nobody: only the copy can answer."""

    def fail():
        raise AssertionError("the settings were read")

    monkeypatch.setattr("ouro.settings_sources.load_settings", fail)


@pytest.mark.parametrize("text", [CONFIG, "", None])
def test_the_second_start_has_the_same_choices_from_the_copy(monkeypatch, text):
    if text is not None:
        write(text)
    first = load_first_frame_settings("1.0")
    refuse_to_read(monkeypatch)
    second = load_first_frame_settings("1.0")
    assert second == first


def test_the_screen_has_neither_mouse_nor_animations_if_the_user_says_so(tmp_path):
    write(CONFIG)
    settings = load_first_frame_settings("1.0")
    assert not make_screen_settings(settings, tmp_path).mouse
    assert not make_screen_settings(settings, tmp_path).animations


def test_changed_settings_are_read_again():
    write(CONFIG)
    load_first_frame_settings("1.0")
    write(CONFIG.replace("light", "dark"))
    assert load_first_frame_settings("1.0").theme == "dark"
    get_config_path().unlink()
    assert load_first_frame_settings("1.0").theme == first_frame_settings_of(Settings()).theme


def test_another_version_reads_the_settings(monkeypatch):
    write(CONFIG)
    load_first_frame_settings("1.0")
    refuse_to_read(monkeypatch)
    with pytest.raises(AssertionError):
        load_first_frame_settings("1.1")


def test_a_variable_wins_over_the_copy(monkeypatch):
    write(CONFIG)
    load_first_frame_settings("1.0")
    monkeypatch.setenv("OURO_TUI_THEME", "high-contrast")
    assert load_first_frame_settings("1.0").theme == "high-contrast"
    monkeypatch.delenv("OURO_TUI_THEME")
    assert load_first_frame_settings("1.0").theme == "light"


@pytest.mark.parametrize(
    "damage", ["", "x", "x\n" * 9, "\0" * 100, "light\nemacs\n15\nFalse\nno such item"]
)
def test_a_damaged_copy_is_replaced(damage):
    write(CONFIG)
    load_first_frame_settings("1.0")
    copy = Path(first_frame_settings._copy_name())
    whole = copy.read_text()
    copy.write_text(whole.split("\n")[0] + "\n" + damage)
    assert load_first_frame_settings("1.0").status == ("model", "cost")
    assert copy.read_text() == whole


def test_settings_that_are_not_valid_are_reported_at_each_start():
    write("tui: {theme: light, colour: red}\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="colour"):
            load_first_frame_settings("1.0")


def test_an_own_theme_and_a_name_with_a_space_are_not_copied():
    own = first_frame_settings_of(Settings())
    assert first_frame_settings._can_be_copied(own)
    for changes in ({"theme": "mine"}, {"keys": {"send": ("a b",)}}, {"status": ("a\nb",)}):
        changed = first_frame_settings.FirstFrameSettings(**{**vars(own), **changes})
        assert not first_frame_settings._can_be_copied(changed)


def test_a_home_that_cannot_be_written_has_no_copy(monkeypatch):
    def fail(*_):
        raise OSError

    monkeypatch.setattr("ouro.utils.files.write_private", fail)
    write(CONFIG)
    assert load_first_frame_settings("1.0").theme == "light"
