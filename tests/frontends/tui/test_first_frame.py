"""The first frame, in a real pseudo-terminal."""

import os
import signal
import subprocess
import sys
import termios

import pytest
from fakes.terminal import Terminal

from ouro.frontends.tui.screen_constants import OPENING_TEXT


def cells(terminal):
    """Each cell of the screen with its colours."""
    screen = terminal.screen
    return [
        [
            (
                cell.data,
                cell.fg if cell.data != " " else "",
                cell.bg,
                cell.bold and cell.data != " ",
            )
            for cell in (screen.buffer[row][column] for column in range(screen.columns))
        ]
        for row in range(screen.lines)
    ]


@pytest.mark.parametrize(
    ("size", "colours"),
    [((24, 80), {}), ((24, 80), {"COLORTERM": ""}), ((10, 40), {}), ((40, 120), {}), ((7, 30), {})],
)
def test_first_frame_matches_the_screen_that_follows(start, size, colours):
    terminal = start("slow", size=size, **colours)
    terminal.until(lambda: terminal.shows("❯"))
    terminal.until(lambda: terminal.shows(OPENING_TEXT[: size[1] - 2]))
    first = cells(terminal)
    terminal.until(lambda: not terminal.shows(OPENING_TEXT))
    then = cells(terminal)
    assert [
        (row, column, *pair)
        for row, lines in enumerate(list(zip(first, then, strict=True))[:-1])
        for column, pair in enumerate(zip(*lines, strict=True))
        if pair[0] != pair[1]
    ] == []


FORKING_PROGRAM = """
import os, signal
from ouro.frontends.tui import first_frame
from ouro.frontends.tui.screen_settings import ScreenSettings

os.register_at_fork(before=lambda: os.write(1, b"forks now"))
first_frame.draw(ScreenSettings(), has_launcher=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_frame_is_drawn_before_the_launcher_forks_and_restored_by_it(tmp_path):
    terminal = Terminal([sys.executable, "-c", FORKING_PROGRAM], os.environ, tmp_path)
    assert terminal.end() == 128 + signal.SIGKILL
    drawn, _, afterwards = terminal.raw.partition(b"forks now")
    assert "❯".encode() in drawn
    assert b"\x1b[?1049l" in afterwards
    assert b"ouro was killed." in afterwards
    assert terminal.modes() == terminal.modes_before


def test_first_frame_imports_no_heavy_module():
    code = (
        "import sys; import ouro.frontends.tui.first_frame\nheavy = {'textual', 'rich', 'yaml',"
        " 'asyncio', 'litellm', 'httpx', 'msgspec'} & set(sys.modules)\nprint(sorted(heavy))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_keys_typed_at_once_reach_the_prompt_with_enter(start):
    terminal = start("slow")
    terminal.send("the first words typed here\rand thirty more of them")
    terminal.until(lambda: terminal.calls("sent") == ["the first words typed here"])
    terminal.until(lambda: terminal.shows("❯ and thirty more of them"))


def test_keys_typed_while_textual_starts_reach_the_prompt(start):
    terminal = start("slow")
    terminal.until(lambda: terminal.shows(OPENING_TEXT))
    for key in "thirty keys, typed one by one\rand more":
        terminal.send(key)
    terminal.until(lambda: terminal.calls("sent") == ["thirty keys, typed one by one"])
    terminal.until(lambda: terminal.shows("❯ and more"))


def test_an_entered_message_stays_visible_until_it_is_in_the_transcript(start):
    terminal, seen = start("slow"), []
    terminal.send("the first words\r")
    terminal.until_shows("next turn: the first words")

    def is_sent():
        seen.append(terminal.shows("the first words"))
        return terminal.shows("❯ the first words")

    terminal.until(is_sent)
    assert all(seen)


def test_terminal_is_restored_when_starting_fails(start):
    terminal = start("fails")
    before = termios.tcgetattr(terminal.child.child_fd)
    assert terminal.end() == 1
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h") > -1
    assert b"it failed" in terminal.raw
    assert before[3] & termios.ECHO


def test_terminal_is_restored_when_a_module_of_the_first_frame_is_missing(start):
    terminal = start("broken")
    assert terminal.end() == 1
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h") > -1
    assert b"ModuleNotFoundError" in terminal.raw


def test_screen_is_not_cleared_when_textual_starts(start):
    terminal = start("plain")
    terminal.until(lambda: terminal.calls("opened"))
    terminal.until(lambda: terminal.shows("fake/one"[5:]))
    assert terminal.raw.count(b"\x1b[?1049h") == 1
    assert b"\x1b[2J" not in terminal.raw


@pytest.mark.parametrize(
    ("answer", "background"), [("rgb:fbfb/fafa/f7f7", "fbfaf7"), ("rgb:0000/2b2b/3636", "0f1115")]
)
def test_theme_auto_follows_the_terminal_background(start, answer, background):
    terminal = start("auto")
    terminal.background = ""
    terminal.until(lambda: b"\x1b]11;?" in terminal.raw)
    terminal.send(f"\x1b]11;{answer}\x1b\\typed")
    terminal.until(lambda: terminal.shows("❯ typed") and not terminal.shows(OPENING_TEXT))
    terminal.until(
        lambda: {cell[2] for line in cells(terminal)[1:-4] for cell in line} == {background}
    )


def test_theme_auto_of_a_terminal_without_an_answer_follows_colorfgbg(start, monkeypatch):
    monkeypatch.setenv("COLORFGBG", "0;15")
    terminal = start("auto")
    terminal.background = ""
    terminal.send("typed")
    terminal.until(lambda: terminal.shows("❯ typed"))
    assert {cell[2] for line in cells(terminal)[1:-4] for cell in line} == {"fbfaf7"}
    terminal.until(lambda: not terminal.shows(OPENING_TEXT))
    assert {cell[2] for line in cells(terminal)[1:-4] for cell in line} == {"fbfaf7"}


def test_background_reply_between_first_frame_and_app_is_used(start, tmp_path):
    terminal = start("late")
    terminal.background = ""
    terminal.until(lambda: (tmp_path / "made").exists())
    terminal.send("\x1b]11;rgb:fbfb/fafa/f7f7\x1b\\typed")
    terminal.until(lambda: terminal.shows("❯ typed") and not terminal.shows(OPENING_TEXT))
    terminal.send(" more")
    terminal.until(lambda: terminal.shows("❯ typed more"))
    terminal.until(
        lambda: {cell[2] for line in cells(terminal)[1:-4] for cell in line} == {"fbfaf7"}
    )


def test_late_background_reply_changes_the_theme_and_types_nothing(start):
    terminal = start("auto")
    terminal.background = ""
    terminal.send("typed")
    terminal.until(lambda: terminal.shows("❯ typed") and not terminal.shows(OPENING_TEXT))
    terminal.send("\x1b]11;rgb:fbfb/fafa/f7f7\x07 more")
    terminal.until(lambda: terminal.shows("❯ typed more"))
    terminal.until(
        lambda: {cell[2] for line in cells(terminal)[1:-4] for cell in line} == {"fbfaf7"}
    )


_MOUSE_ON, _MOUSE_OFF = b"\x1b[?1000h", b"\x1b[?1000l"


def test_a_key_leaves_the_mouse_to_the_terminal_and_uses_it_again(start):
    terminal = start("plain")
    terminal.until(lambda: _MOUSE_ON in terminal.raw)
    terminal.send("\x1bm")
    terminal.until_shows("Mouse off")
    assert terminal.raw.rfind(_MOUSE_OFF) > terminal.raw.rfind(_MOUSE_ON)
    terminal.send("\x1bm")
    terminal.until_shows("Mouse on")
    assert terminal.raw.rfind(_MOUSE_ON) > terminal.raw.rfind(_MOUSE_OFF)


def test_a_screen_without_mouse_never_asks_for_it(start):
    terminal = start("no mouse")
    terminal.send("hello\r")
    terminal.until_shows("the answer")
    assert _MOUSE_ON not in terminal.raw
