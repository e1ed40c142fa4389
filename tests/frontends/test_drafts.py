"""Unsent text is back after ouro was killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, until

from ouro.frontends.drafts import MAX_DRAFT_AGE, DraftFile, take_draft
from ouro.utils import masked_writes
from ouro.utils.masked_writes import mask_writes, writer
from ouro.utils.ouro_paths import get_drafts_dir

FOLDER = Path("/project")
_PROGRAM = """
import sys, time
from pathlib import Path
from ouro.frontends.drafts import DraftFile
from ouro.utils.masked_writes import mask_writes, writer
mask_writes(lambda text: text)
draft = DraftFile(Path(sys.argv[1]), Path("/project"), "s-1")
draft.save("a longer text before")
draft.save("größe\\nand more")
writer.submit(int).result()
print("saved", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def keys_are_known(monkeypatch):
    monkeypatch.setattr(masked_writes, "_mask", None)
    mask_writes(lambda text: text.replace("hunter2", "[secret]"))


def saved(root, text, session_id="s-1", folder=FOLDER):
    """A draft that its process has left."""
    draft = DraftFile(root, folder, session_id)
    draft.save(text)
    writer.submit(draft.close).result()


def test_draft_of_a_killed_process_is_returned_once(tmp_path):
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"saved\n"
        assert take_draft(tmp_path, FOLDER) == ""  # it is still open there
        process.send_signal(signal.SIGKILL)
    assert take_draft(tmp_path, FOLDER) == "größe\nand more"
    assert take_draft(tmp_path, FOLDER) == ""


def test_a_session_gets_its_own_draft_and_a_folder_the_newest(tmp_path):
    saved(tmp_path, "first", "s-1")
    saved(tmp_path, "second", "s-2")
    saved(tmp_path, "elsewhere", "s-3", Path("/other"))
    [old] = tmp_path.glob("*/s-1")
    os.utime(old, (time.time() - 60, time.time() - 60))
    assert take_draft(tmp_path, FOLDER, "s-9") == ""
    assert take_draft(tmp_path, FOLDER) == "second"
    assert take_draft(tmp_path, FOLDER, "s-1") == "first"
    assert take_draft(tmp_path, Path("/other"), "s-3") == "elsewhere"


def test_sent_text_leaves_no_file_and_very_old_drafts_go(tmp_path):
    draft = DraftFile(tmp_path, FOLDER, "s-1")
    draft.save("text")
    draft.save("")
    writer.submit(draft.close).result()
    assert not list(tmp_path.glob("*/*"))
    saved(tmp_path, "old")
    [place] = tmp_path.glob("*/*")
    os.utime(place, (0, time.time() - MAX_DRAFT_AGE - 60))
    assert take_draft(tmp_path, FOLDER) == ""
    assert not place.exists()


def test_k1_draft_is_private_and_masked_and_indented_text_is_not_saved(tmp_path):
    saved(tmp_path, "the password is hunter2")
    [place] = tmp_path.glob("*/*")
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("the password is [secret]", 0o600)
    place.unlink()
    saved(tmp_path, " not for the disk")
    assert not list(tmp_path.glob("*/*"))


async def test_unsent_text_is_back_in_the_prompt_and_gone_when_sent(home):
    folder = get_drafts_dir()
    app = screen_of(FakeSession())
    async with app.run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"fix", "space", *"it")
        await until(pilot, lambda: any(p.read_text() == "fix it" for p in folder.glob("*/*")))
    writer.submit(int).result()
    session = FakeSession(session_id="s-2")
    app = screen_of(session)
    async with app.run_test() as pilot:
        await opened(pilot)
        await until(pilot, lambda: app.conversation.prompt.text == "fix it")
        await pilot.press("enter")
        await until(pilot, lambda: session.sent == ["fix it"])
    writer.submit(int).result()
    assert not list(folder.glob("*/*"))


async def test_what_is_typed_stays_when_a_draft_of_last_time_is_found(home):
    saved(get_drafts_dir(), "fix it", folder=FakeSession().cwd)
    may_open, session = asyncio.Event(), FakeSession(session_id="s-2")

    async def open_late(_request):
        await may_open.wait()
        return session

    app = screen_of(open_session=open_late)
    async with app.run_test() as pilot:
        await pilot.press(*"ne")
        may_open.set()
        await until(pilot, lambda: "comes back after this" in screen_text(app))
        await pilot.press(*"w", "enter")
        await until(pilot, lambda: session.sent == ["new"])
        await until(pilot, lambda: app.conversation.prompt.text == "fix it")


async def test_stashed_text_is_saved_with_the_text_and_an_indented_one_is_not(home):
    folder = get_drafts_dir()
    app = screen_of(FakeSession())
    async with app.run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"one", "ctrl+s", "space", *"two", "ctrl+s", *"three")
        await until(pilot, lambda: any(p.read_text() == "one\nthree" for p in folder.glob("*/*")))


async def test_an_undone_message_is_a_draft_once_it_is_changed(home):
    folder = get_drafts_dir()
    app = screen_of(FakeSession())
    async with app.run_test() as pilot:
        await opened(pilot)
        app.front_end.show_again("say one")
        await until(pilot, lambda: app.conversation.prompt.text == "say one")
        assert app.conversation.draft._get_unsent_text() == ""
        await pilot.press("s")
        await until(pilot, lambda: any(p.read_text() == "say ones" for p in folder.glob("*/*")))
