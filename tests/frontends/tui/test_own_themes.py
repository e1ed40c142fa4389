"""Themes of the user: a file with a base and colours."""

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, until

from ouro.cli import main
from ouro.frontends.tui.own_themes import add_own_themes
from ouro.frontends.tui.themes import THEMES
from ouro.settings_sources import load_settings
from ouro.utils.ouro_paths import get_themes_dir


@pytest.fixture
def themes(home, monkeypatch):
    monkeypatch.setattr("ouro.frontends.tui.own_themes.THEMES", own := dict(THEMES))
    get_themes_dir().mkdir(parents=True)
    return own


def test_a_file_changes_single_colours_of_its_base(themes):
    (get_themes_dir() / "sea.yaml").write_text('base: light\naccent: "#5fb3b3"\n')
    assert add_own_themes() == []
    assert themes["sea"] == {**THEMES["light"], "accent": "#5fb3b3"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("base: pink\n", "`base` must be dark"),
        ('acent: "#000000"\n', "unknown colour `acent`"),
        ("accent: red\n", "`accent` must be like"),
        ('accent: "#12345"\n', "`accent` must be like"),
        ("accent: [\n", "sea.yaml"),
        ("accent: #000000\n", "accent"),
    ],
)
def test_a_wrong_file_is_named_and_not_used(themes, text, problem):
    (get_themes_dir() / "sea.yaml").write_text(text)
    [found] = add_own_themes()
    assert problem in found
    assert "sea" not in themes


def test_a_theme_of_the_user_is_a_value_of_the_setting(themes, capsys):
    (get_themes_dir() / "日本.yaml").write_text('accent: "#5fb3b3"\n')
    assert main(["config", "set", "tui.theme", "日本"]) == 0
    assert load_settings().tui.theme == "日本"
    assert main(["config", "set", "tui.theme", "none-such"]) == 2
    assert "dark, light, high-contrast, ansi, 日本" in capsys.readouterr().err


async def test_a_theme_of_the_user_is_used_at_once(home):
    get_themes_dir().mkdir(parents=True)
    (get_themes_dir() / "sea.yaml").write_text('background: "#0b1a24"\n')
    app = screen_of(FakeSession())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        try:
            await app.front_end.use_theme("sea")
            await until(pilot, lambda: app.theme == "sea")
            assert app.current_theme.background == "#0b1a24"
            assert app.current_theme.dark
        finally:
            THEMES.pop("sea")
