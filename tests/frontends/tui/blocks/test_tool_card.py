"""The body of a tool call as lines: long content is cut, with a mark."""

import pytest

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain, Todo, Todos
from ouro.frontends.tui.blocks.display_body import MAX_LINES, body_lines
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.tool_card import ToolCard

PALETTE = Palette({})
LONG = "".join(f"{number}\n" for number in range(2 * MAX_LINES))


@pytest.mark.parametrize("body", [Plain(LONG), Plain(LONG, "python")])
def test_cut_body_ends_with_a_note(body):
    texts = [line.text.strip() for line in body_lines(body, 60, PALETTE)]
    assert len(texts) == MAX_LINES + 1
    assert texts[-1] == "… the rest is not shown"


def test_the_card_of_a_new_file_says_once_that_it_is_new():
    card = ToolCard("write a.md", lambda: 0.0, tool="write")
    diff = Diff((FileChange("a.md", None, "one\ntwo\n"),))
    card.finish(Display("new file, 2 lines", diff), failed=False, seconds=0.0)
    assert card.lines(60, PALETTE)[0].text.split() == ["±", "write", "a.md", "(new)", "+2", "−0"]


def test_a_long_diff_is_not_cut():
    body = Diff((FileChange("f", None, LONG),))
    texts = [line.text.strip() for line in body_lines(body, 60, PALETTE)]
    assert (len(texts), texts[-1]) == (2 * MAX_LINES + 1, f"{2 * MAX_LINES} + {2 * MAX_LINES - 1}")


def test_body_of_the_maximum_length_is_not_cut():
    text = "\n".join(str(number) for number in range(MAX_LINES))
    assert [line.text for line in body_lines(Plain(text), 60, PALETTE)] == text.split("\n")


def test_a_long_output_keeps_its_command_and_its_exit_code():
    texts = [line.text for line in body_lines(CommandOutput("make", LONG, 3), 60, PALETTE)]
    assert (texts[0], texts[-1]) == ("$ make", "exit code 3")
    assert texts[1].endswith("lines before")
    assert texts[-2] == str(2 * MAX_LINES - 1)


def test_the_cut_start_of_a_single_long_row_is_marked():
    texts = [
        line.text
        for line in body_lines(CommandOutput("make", "x" * 60 * 2 * MAX_LINES, 0), 60, PALETTE)
    ]
    assert texts[1].endswith("1 line before")
    assert len(texts) <= MAX_LINES + 2


def test_failure_is_shown_once():
    card = ToolCard("shell make", clock=lambda: 0.0)
    card.finish(Display("no rule to make", Plain("no rule to make `x`")), failed=True)
    assert [line.text.strip() for line in card._draw(60, PALETTE)] == [
        "✗ shell make",
        "no rule to make `x`",
    ]
    done = ToolCard("read x", clock=lambda: 0.0)
    done.finish(Display("1 line", Plain("1 line of text")), failed=False)
    assert done._draw(60, PALETTE)[0].text.strip() == "✓ read x · 1 line"


def test_a_plan_is_one_line_until_it_is_unfolded_because_the_panel_shows_it():
    card = ToolCard("plan 1/2")
    card.finish(
        Display("write", Todos((Todo("read", "done"), Todo("write", "in_progress")))), False, 0
    )
    assert [line.text.strip() for line in card.lines(60, PALETTE)] == ["✓ plan 1/2 · write"]
    card.set_open(True)
    assert [line.text.strip()[2:] for line in card.lines(60, PALETTE)][1:] == ["read", "write"]


def test_without_animations_the_sign_of_a_running_call_stands_still():
    now = 0.0

    def head(card):
        return card._draw(60, PALETTE)[0].text.strip()

    still = ToolCard("shell make", clock=lambda: now, tool="shell", moves=False)
    moving = ToolCard("shell make", clock=lambda: now, tool="shell")
    still.set_state("running")
    moving.set_state("running")
    now = 2.1
    first, first_moving = head(still), head(moving)
    now = 2.4
    assert head(still) == first
    assert "2 s" in first
    assert head(moving) != first_moving
    still.finish(Display("done", Plain("")), failed=False, seconds=2.4)
    assert "2.4 s" in head(still)
