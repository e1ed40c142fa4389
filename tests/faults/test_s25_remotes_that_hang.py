"""S25: a remote that hangs: what a sync waits for is shown, an interrupt ends it, no process stays."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from fakes.files import git
from fakes.knowledge import editor_of

from ouro.errors import LongTermMemoryError
from ouro.memory.long_term import remember_text, synchronize
from ouro.memory.long_term.git.remote_wait import lock_for_sync

SSH = """#!/bin/sh
# A machine that answers to questions and hangs while it receives.
for last; do :; done
case "$last" in
    *{hangs}*) sleep 300 & sleep 301;;
    *) eval "$last";;
esac
"""
SYNCS = (("sessions", "sync"), ("memory", "sync", "--remote"))


@pytest.fixture
def silent():
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


@pytest.fixture
def hanging_ssh(tmp_path, ouro):
    """A function that returns a remote over ssh which hangs at a service."""

    def make(hangs: str) -> str:
        script = tmp_path / "ssh"
        script.write_text(SSH.format(hangs=hangs))
        script.chmod(0o700)
        ouro.more = {"GIT_SSH_COMMAND": str(script), "GIT_SSH_VARIANT": "simple"}
        git(tmp_path, "init", "--bare", "--quiet", "remote.git")
        return f"ssh://{tmp_path.name}.invalid{tmp_path}/remote.git"

    return make


def processes_with(*words: str) -> list[str]:
    """The command lines of running processes that have all these words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(line)
    return found


def no_process_is_left(word: str) -> bool:
    end = time.monotonic() + 5
    while processes_with(word) and time.monotonic() < end:
        time.sleep(0.05)
    return processes_with(word) == []


def interrupted_at_wait(ouro, *words: str) -> tuple[int, str]:
    """Start ouro, press Ctrl+C when it shows what it waits for; its exit code and its errors."""
    process = ouro.begin(*words, stdout=subprocess.DEVNULL)
    shown = process.stderr.readline().decode()
    assert "waiting for" in shown, shown + process.stderr.read().decode()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=10)[1].decode()
    return process.returncode, shown + rest


def fill(ouro) -> None:
    remember_text(editor_of(ouro.home), "Always answer in German")
    assert ouro.headless("-p", "say: hello").code == 0


@pytest.mark.parametrize("scheme", ["git", "http"])
@pytest.mark.parametrize("words", SYNCS, ids=["sessions", "memory"])
def test_s25_server_that_never_answers(ouro, silent, words, scheme):
    fill(ouro)
    address = f"{scheme}://127.0.0.1:{silent}/mine.git"

    code, errors = interrupted_at_wait(ouro, *words, address)

    assert code == 130
    assert f"waiting for {address}" in errors
    assert "Ctrl+C ends it" in errors
    assert "Nothing is lost" in errors
    assert no_process_is_left(f"127.0.0.1:{silent}")


@pytest.mark.parametrize("hangs", ["upload-pack", "receive-pack"])
@pytest.mark.parametrize("words", SYNCS, ids=["sessions", "memory"])
def test_s25_ssh_that_hangs_at_the_question_or_while_it_receives(
    ouro, hanging_ssh, tmp_path, words, hangs
):
    fill(ouro)
    address = hanging_ssh(hangs)

    code, errors = interrupted_at_wait(ouro, *words, address)

    assert code == 130
    assert f"waiting for {address}" in errors
    assert no_process_is_left(f"{tmp_path}/ssh")
    ouro.more = {}
    assert ouro.headless(*words, str(tmp_path / "remote.git")).code == 0
    assert git(tmp_path / "remote.git", "for-each-ref") != ""
    assert ouro.headless(words[0], "list").out != ""


def test_s25_password_of_the_address_is_not_shown(ouro, silent):
    fill(ouro)

    _, errors = interrupted_at_wait(
        ouro, "memory", "sync", "--remote", f"http://me:hunter2@127.0.0.1:{silent}/mine.git"
    )

    assert "hunter2" not in errors


def test_s25_esc_ends_it_on_the_screen(ouro, hanging_ssh, tmp_path):
    fill(ouro)
    address = hanging_ssh("upload-pack")
    terminal = ouro.screen(size=(40, 400))  # no line is wrapped
    terminal.say(f"/memory sync {address}")
    terminal.until_shows("waiting for", "Esc ends it")

    terminal.press("\x1b", lambda: not processes_with(f"{tmp_path}/ssh"))

    assert no_process_is_left(f"{tmp_path}/ssh")
    terminal.say("say: still here")
    terminal.until_shows("  still here")  # the answer: Ctrl+C before it would return the message
    assert terminal.leave() == 0


def test_s25_wait_for_another_synchronization_is_shown_and_ended(ouro, silent):
    remember_text(editor_of(ouro.home), "Always answer in German")
    store = editor_of(ouro.home).scope("user").store
    seen = []

    def stop(text):
        seen.append(text)
        if len(seen) > 2:
            raise LongTermMemoryError("stopped")

    first = ouro.begin("memory", "sync", "--remote", f"git://127.0.0.1:{silent}/mine.git")
    assert b"waiting" in first.stderr.readline()
    with pytest.raises(LongTermMemoryError, match="stopped"):
        synchronize(store, "/no/such/place.git", stop)
    assert seen == ["waiting for the synchronization of another ouro", "", ""]
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=10)
    with lock_for_sync(store.repository, lambda _text: None):
        pass
