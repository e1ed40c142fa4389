"""Cards by kind: a sign for each, a verb for each; reads in a row are one line."""

import pytest
from fakes.screens import TranscriptApp

from ouro.display import Diff, Display, FileChange, Plain
from ouro.events import TextDelta, ToolFinished, ToolRunning, ToolStarted
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.tool_kind import (
    CHANGE,
    COMMAND,
    MCP,
    MEMORY,
    OTHER,
    READ,
    SUBAGENT,
    WEB,
    kind_of,
)
from ouro.messages import ToolCall


def begun(name, tool, title):
    return ToolStarted(ToolCall(name, tool, {}), title)


def ended(name, tool, summary="ok", failed=False, body=None):
    return ToolFinished(name, tool, Display(summary, body), failed, 0.0)


def done(name, tool, title, **result):
    return begun(name, tool, title), ended(name, tool, **result)


async def lines_of(*events, size=(80, 20)):
    app = TranscriptApp(*events)
    async with app.run_test(size=size):
        return app.lines()


def test_each_kind_has_a_sign_of_its_own_and_a_style():
    kinds = (READ, CHANGE, COMMAND, WEB, MEMORY, SUBAGENT, MCP, OTHER)
    assert len({kind.sign for kind in kinds}) == len(kinds)
    assert all(hasattr(Palette({}), kind.color) for kind in kinds)


@pytest.mark.parametrize(
    ("tool", "title", "shown"),
    [
        ("grep", 'grep "shell x" in src', '→ search "shell x" in src'),
        ("glob", "glob **/*.py", "→ find **/*.py"),
        ("write", "write b.py", "± write b.py"),
        ("write", "write ~/.ouro/memory/facts.md", "◆ write ~/.ouro/memory/facts.md"),
        ("apply_patch", "patch 3 files", "± edit 3 files"),
        ("shell", "shell make", "$ run make"),
        ("shell", "make of the user", "$ make of the user"),
        ("shell_kill", "shell_kill sh_1", "$ end sh_1"),
        ("web_fetch", "https://example.com/日本", "↓ fetch https://example.com/日本"),
        ("memory_search", 'memory "linter"', '◆ recall "linter"'),
        ("subagent", "explore: find it", "» explore: find it"),
        ("mcp__github__create", "github.create a: 1", "◇ call github.create a: 1"),
        ("deploy", "deploy(to='x')", "✓ deploy(to='x')"),
        ("web_fetch", "web_fetch", "↓ web_fetch"),
    ],
)
async def test_a_card_has_the_sign_and_the_verb_of_its_kind(tool, title, shown):
    assert await lines_of(*done("c", tool, title)) == [f"  {shown} · ok"]


def test_a_change_in_the_folder_of_memory_has_its_kind():
    assert kind_of("edit", "edit docs/memory/x.md") is CHANGE
    assert kind_of("edit", "edit .ouro/memory/x.md") is MEMORY


async def test_reads_and_searches_in_a_row_are_one_line_that_unfolds():
    app = TranscriptApp(
        *done("1", "read", "read src/a.py:1-40", body=Plain("inside")),
        *done("2", "read", "read src/a.py:41-80"),
        *done("3", "read", "read b.py"),
        *done("4", "grep", 'grep "x"'),
    )
    async with app.run_test(size=(80, 20)):
        assert app.lines() == ['  → read 2 files, 1 search · a.py, b.py, search "x"']
        app.transcript.toggle_outputs()
        assert app.lines() == [
            "  → read src/a.py:1-40 · ok",
            "    inside",
            "  → read src/a.py:41-80 · ok",
            "  → read b.py · ok",
            '  → search "x" · ok',
        ]
        assert "inside" in app.transcript.as_markdown()


async def test_a_failed_or_running_read_keeps_its_line():
    assert await lines_of(
        *done("1", "read", "read a.py"),
        *done("2", "read", "read no.py", summary="", failed=True, body=Plain("There is none.")),
        *done("3", "read", "read b.py"),
        begun("4", "read", "read c.py"),
        ToolRunning("4"),
    ) == [
        "  → read 2 files · a.py, b.py",
        "  ✗ read no.py",
        "    There is none.",
        "  ⠋ read c.py",
    ]


async def test_a_group_changes_as_parallel_reads_end():
    app = TranscriptApp(*(begun(name, "read", f"read {name}.py") for name in "abc"))
    async with app.run_test(size=(80, 20)):
        assert app.lines() == [f"  · read {name}.py · waiting" for name in "abc"]
        app.show(ended("b", "read"))
        assert app.lines() == [
            "  · read a.py · waiting",
            "  → read b.py · ok",
            "  · read c.py · waiting",
        ]
        app.show(ended("c", "read"), ended("a", "read"))
        assert app.lines() == ["  → read 3 files · a.py, b.py, c.py"]


async def test_words_between_reads_end_a_group():
    shown = await lines_of(
        *done("1", "read", "read a.py"), TextDelta("so"), *done("2", "read", "read b.py")
    )
    assert [line for line in shown if "→" in line] == ["  → read a.py · ok", "  → read b.py · ok"]


@pytest.mark.parametrize("width", [120, 80, 40])
async def test_a_group_fits_its_width(width):
    reads = [e for n in range(40) for e in done(str(n), "read", f"read 日本/file_{n}.py")]
    [line] = await lines_of(*reads, size=(width, 10))
    assert line.startswith("  → read 40 files · file_0.py")
    assert len(line) < width


async def test_the_name_of_the_only_changed_file_is_shown_once():
    one = Diff((FileChange("src/a.py", "a\n", "b\n"),))
    assert (await lines_of(*done("1", "edit", "edit src/a.py", body=one)))[:2] == [
        "  ± edit src/a.py · ok  +1 −1",
        "    1 - a",
    ]
    told = await lines_of(*done("1", "edit", "edit src/a.py", summary="+1 −1", body=one))
    assert told[0] == "  ± edit src/a.py  +1 −1"
    two = Diff((FileChange("a.py", "a\n", "b\n"), FileChange("c.py", None, "b\n")))
    shown = await lines_of(*done("1", "apply_patch", "patch 2 files", summary="2 files", body=two))
    assert shown[:2] == ["  ± edit 2 files", "    a.py  +1 −1"]
