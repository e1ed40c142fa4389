"""Snapshots of the viewer of changes."""

from pathlib import Path

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, until

from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.diff_viewer import DiffViewer
from ouro.session import ShownDiff
from ouro.utils.git_diff import DiffedFile

HUNK = "\n".join(
    [
        "@@ -3,4 +3,5 @@ def total(prices):",
        '     """The sum of the prices in cents."""',
        "-    return sum(prices) - discount",
        "+    rest = 1 - discount",
        "+    return round(sum(prices) * rest)",
        " ",
        " ",
        "",
    ]
)
FILES = [
    DiffedFile("shop/basket.py", hunks=(HUNK, "@@ -40 +41 @@\n-LIMIT = 5\n+LIMIT = 50\n")),
    DiffedFile("docs/préface 説明.md", "added", hunks=("@@ -0,0 +1,2 @@\n+# Shop\n+Prices.\n",)),
    DiffedFile("logo.png", is_binary=True, sizes=(1200, 34_000)),
]


@pytest.fixture
def picture(snap_compare):
    def picture(*keys, size=(80, 24), theme="dark"):
        async def before(pilot):
            await opened(pilot)
            shown = ShownDiff("", "the last commit", "", Path("/project"), FILES)
            viewer = DiffViewer(shown, None, Keymap())
            pilot.app.push_screen(viewer)
            await until(pilot, lambda: viewer._lines.marked is not None)
            await pilot.press(*keys)
            await pilot.pause()

        app = screen_of(FakeSession(), theme=theme)
        return snap_compare(app, terminal_size=size, run_before=before)

    return picture


@pytest.mark.parametrize("size", [(160, 40), (80, 24), (40, 10)])
def test_changes(picture, size):
    assert picture("n", size=size)


@pytest.mark.parametrize("theme", ["light", "high-contrast", "ansi"])
def test_changes_in_other_themes(picture, theme):
    assert picture("n", theme=theme)


def test_a_comment(picture):
    assert picture("n", "down", "down", "enter", *"why", "enter")
