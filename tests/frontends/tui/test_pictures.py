"""Snapshots of the whole screen, one for each state."""

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import asked, opened, screen_of, until

from ouro.display import CommandOutput, Display
from ouro.events import PermissionAsked
from ouro.messages import ToolCall

COMMAND = CommandOutput("git push origin main")

ASK = PermissionAsked(
    "q1",
    ToolCall("c1", "shell", {}),
    "git push",
    Display("", COMMAND),
    "it reaches the network",
    "shell(git push *)",
)


@pytest.fixture
def picture(snap_compare):
    def picture(*keys, turns=(), ready=opened, size=(80, 24), theme="dark"):
        async def before(pilot):
            await opened(pilot)
            await pilot.press(*keys)
            await ready(pilot)
            pilot.app.conversation.box.work_ends()
            await pilot.pause()

        return snap_compare(
            screen_of(FakeSession(turns), theme=theme), terminal_size=size, run_before=before
        )

    return picture


async def suggested(pilot):
    await until(pilot, lambda: pilot.app.conversation.completion.is_open)


async def sheet(pilot):
    await until(pilot, lambda: len(pilot.app.screen_stack) > 1)


def test_empty(picture):
    assert picture()


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_permission(picture, size):
    assert picture("g", "enter", turns=[[ASK]], ready=asked, size=size)


def test_completion(picture):
    assert picture("slash", "r", "e", ready=suggested)


def test_help(picture):
    assert picture("question_mark", ready=sheet, size=(100, 30))


def test_picker(picture):
    assert picture("alt+p", ready=sheet)


def test_light(picture):
    assert picture("h", "i", theme="light")


def test_high_contrast(picture):
    assert picture("h", "i", theme="high-contrast")
