"""The Linux console has few glyphs: what is drawn is written with similar ones."""

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

import ouro
from ouro.frontends.tui import console_glyphs
from ouro.frontends.tui.console_glyphs import console_writer, to_console

IN_EVERY_FONT = set("·±×°«»÷√ ←↑→↓↕ │─┌┐└┘├┤┬┴┼ █▄▀▌▐░▒▓ éß")
"""Beyond ASCII: the kernel's own font, which has Code page 437, and letters of Latin-1."""


def test_every_glyph_has_the_width_of_what_it_replaces():
    for code, glyph in console_glyphs._GLYPHS.items():
        assert cell_len(chr(code)) == cell_len(glyph) == 1, chr(code)
        assert glyph.isascii() or glyph in IN_EVERY_FONT, glyph


def test_all_signs_that_the_screen_draws_are_shown():
    folder = Path(ouro.__file__).parent / "frontends"
    strings = re.compile(r'"[^"\n]*"')
    for source in (folder / "tui").rglob("*.py"):
        signs = {sign for text in strings.findall(source.read_text()) for sign in text}
        drawn = set(to_console("".join(sorted(signs))))
        lost = {sign for sign in drawn if not sign.isascii()} - IN_EVERY_FONT
        assert not lost, f"{source.name}: {lost}"


@pytest.mark.parametrize(("term", "is_console"), [("linux", True), ("xterm-256color", False)])
def test_only_the_console_gets_other_glyphs(monkeypatch, term, is_console):
    monkeypatch.setenv("TERM", term)
    assert (console_writer() is to_console) == is_console


def test_escape_sequences_and_other_letters_stay():
    assert to_console("\x1b[1m❯\x1b[0m Größe ✓ …") == "\x1b[1m>\x1b[0m Größe √ ."
