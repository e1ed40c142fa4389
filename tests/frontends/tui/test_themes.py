"""Themes are readable: the contrast of each pair of colours that is used together."""

from pathlib import Path

import pytest
from fakes.fake_session import FakeSession, says
from fakes.screens import opened, screen_of, screen_text, until
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.color import Color
from textual.widgets import Input

from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.screen_settings import screen_settings_in
from ouro.frontends.tui.themes import ANSI, THEMES, theme_for

MIXED_THEMES = [name for name in THEMES if name != ANSI]
READABLE = 4.5
"""The minimum contrast of text by WCAG 2 (AA)."""
TONES = ("text", "muted", "faint", "accent", "info", "success", "warning", "error")


def contrast(one, other):
    lighter, darker = sorted(
        (_luminance(Color.parse(one)), _luminance(Color.parse(other))), reverse=True
    )
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color):
    shares = [part / 255 for part in color.rgb]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", MIXED_THEMES)
def test_every_tone_has_enough_contrast(name):
    colors = THEMES[name]
    pairs = [(tone, ground) for tone in TONES for ground in ("background", "surface")]
    pairs += [(tone, "panel") for tone in ("text", "muted")] + [
        ("background", "info")
    ]  # last: the selection
    ratios = {pair: contrast(*(colors[part] for part in pair)) for pair in pairs}
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < READABLE} == {}


@pytest.mark.parametrize("name", MIXED_THEMES)
def test_backgrounds_stay_grey_in_256_colours(name):
    for ground in ("background", "surface", "panel"):
        color = (
            RichColor.parse(THEMES[name][ground]).downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
        )
        assert max(color) - min(color) < 16, f"{ground} becomes {color.hex}"


@pytest.mark.parametrize("name", MIXED_THEMES)
async def test_messages_code_diffs_and_selection_have_enough_contrast(name):
    async with screen_of(FakeSession([]), theme=name).run_test() as pilot:
        await opened(pilot)
        palette = Palette(pilot.app.theme_variables)
        selected = pilot.app.screen.get_component_rich_style("screen--selection")
        search = Input(placeholder="type to search", compact=True, id="picker-search")
        await pilot.app.screen.mount(search)
        search.focus()
        await until(pilot, lambda: search.has_focus)
        hint = search.get_component_rich_style("input--placeholder")
        searched = pilot.app.conversation.prompt.get_component_rich_style("text-area--selection")
    styles = {name: style for name, style in vars(palette).items() if name != "syntax"}
    styles |= {"selected": selected, "selected in the prompt": searched, "hint of a search": hint}
    for ground in ("text", "code", "added", "removed"):
        back = getattr(palette, ground)
        styles |= {f"{kind} in {ground}": back + style for kind, style in palette.syntax.items()}
        styles[f"line number in {ground}"] = palette.muted + type(back)(bgcolor=back.bgcolor)
    ratios = {
        name: contrast(style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex)
        for name, style in styles.items()
    }
    assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio < READABLE} == {}


@pytest.mark.parametrize(
    ("answer", "theme"),
    [
        ("rgb:fbfb/fafa/f7f7", "light"),
        ("rgb:00/2b/36", "dark"),
        ("rgba:ffff/ffff/dddd/8000", "light"),
        ("", "dark"),
    ],
)
def test_theme_is_chosen_by_the_terminal_background(answer, theme):
    assert theme_for(answer) == theme


@pytest.mark.parametrize(
    ("environment", "theme"),
    [
        ({"TERM": "xterm"}, ANSI),
        ({"TERM": "linux"}, ANSI),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1"}, ANSI),
        ({"TERM": "xterm-256color"}, "auto"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "auto"),
    ],
)
def test_terminal_with_few_colours_uses_its_own_palette(environment, theme, monkeypatch):
    monkeypatch.delenv("COLORTERM", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert screen_settings_in(Path.cwd()).theme == theme


async def test_no_colour_is_drawn_with_no_color(monkeypatch):
    """Also no background: a light terminal would show grey boxes."""
    monkeypatch.setenv("NO_COLOR", "1")
    session = FakeSession([says("**Done**, `code`.\n\n```python\nx = 1\n```\n")])
    async with screen_of(session, theme=screen_settings_in(Path.cwd()).theme).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: "Done" in screen_text(pilot.app))
        app = pilot.app
        lines = app.screen._compositor.render_strips()
        for line_filter in app.get_line_filters():
            lines = [
                line.apply_filter(line_filter, app.screen.background_colors[1]) for line in lines
            ]
        styles = [segment.style for line in lines for segment in line if segment.style]
        colors = {color.name for style in styles for color in (style.color, style.bgcolor) if color}
        assert colors == {"default"}
        assert any(style.bold for style in styles)


async def test_meaningful_colours_are_kept_in_16_colours():
    async with screen_of(FakeSession([]), theme=ANSI).run_test() as pilot:
        await opened(pilot)
        palette = Palette(pilot.app.theme_variables)
        cursor = pilot.app.conversation.prompt.get_component_rich_style("text-area--cursor")
    colors = {name: style.color.name for name, style in vars(palette).items() if name != "syntax"}
    assert {colors[name] for name in ("text", "muted", "user", "code")} == {"default"}
    meanings = {
        "success": "color(2)",
        "warning": "color(3)",
        "error": "color(1)",
        "accent": "color(5)",
    }
    meanings |= {"added_word": "color(2)", "removed_word": "color(1)"}
    assert {name: colors[name] for name in meanings} == meanings
    assert cursor.reverse
