"""The progress bar of the terminal: a turn runs, a question waits."""

from types import SimpleNamespace

import pytest

from ouro.frontends.tui.terminal_progress import (
    NO_PROGRESS,
    REPEAT_SECONDS,
    WAITING,
    WORKING,
    TerminalProgress,
    shows_progress,
)


@pytest.mark.parametrize(
    ("variables", "is_shown"),
    [
        ({"TERM_PROGRAM": "ghostty"}, True),
        ({"WT_SESSION": "an id"}, True),
        ({"ConEmuANSI": "ON"}, True),
        ({"TERM_PROGRAM": "iTerm.app", "TERM_PROGRAM_VERSION": "3.6.6"}, True),
        ({"TERM_PROGRAM": "iTerm.app", "TERM_PROGRAM_VERSION": "3.10.0beta2"}, True),
        ({"TERM_PROGRAM": "iTerm.app", "TERM_PROGRAM_VERSION": "3.6.5"}, False),
        ({"TERM_PROGRAM": "iTerm.app"}, False),
        ({"VTE_VERSION": "8001"}, True),
        ({"VTE_VERSION": "7600"}, False),
        ({"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1"}, False),
        ({"TERM_PROGRAM": "ghostty", "TMUX": "/tmp/socket"}, False),
        ({"WT_SESSION": "an id", "STY": "1.screen"}, False),
        ({}, False),
    ],
)
def test_bar_is_written_only_for_terminals_that_are_known_to_show_it(variables, is_shown):
    assert shows_progress(variables) is is_shown


def test_bar_is_written_when_it_changes_and_again_while_there_is_one():
    written, stopped = [], []
    timers = []

    def set_interval(seconds, repeat):
        timers.append(repeat)
        return SimpleNamespace(stop=lambda: stopped.append(seconds))

    bar = TerminalProgress(written.append, set_interval)
    bar.repeat()
    bar.show(NO_PROGRESS)
    assert timers == []
    for sequence in (WORKING, WORKING, WAITING):
        bar.show(sequence)
    [repeat] = timers
    repeat()
    assert stopped == []
    bar.show(NO_PROGRESS)
    assert stopped == [REPEAT_SECONDS]  # no timer wakes an idle screen
    bar.repeat()
    bar.show(WORKING)
    assert len(timers) == 2
    assert written == [WORKING, WAITING, WAITING, NO_PROGRESS, WORKING]


def test_bar_follows_the_turn_and_its_question_and_is_gone_at_the_end(start):
    terminal = start("asks", TERM_PROGRAM="ghostty", TMUX="", STY="")
    terminal.until_shows("Ask for anything")
    assert b"\x1b]9;4" not in terminal.raw
    terminal.send("go\r")
    terminal.until_shows("Allow?")
    terminal.until(lambda: WAITING.encode() in terminal.raw)
    assert terminal.raw.index(WORKING.encode()) < terminal.raw.index(WAITING.encode())
    terminal.send("\x1b")  # interrupts the turn
    terminal.until(lambda: NO_PROGRESS.encode() in terminal.raw)
    terminal.send("\x04")
    terminal.end()
    assert terminal.raw.rindex(NO_PROGRESS.encode()) > terminal.raw.rindex(WAITING.encode())
