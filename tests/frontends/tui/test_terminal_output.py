"""TerminalOutput: texts arrive whole and in order, at once where the terminal takes them."""

import io
import os
import time
import tty

import pytest
from textual.drivers._writer_thread import WriterThread

from ouro.frontends.tui.terminal_output import TerminalOutput


@pytest.fixture
def terminal():
    """The end of the program, as a file, and the descriptor of the other end."""
    leader, follower = os.openpty()
    tty.setraw(follower)
    with os.fdopen(follower, "w", encoding="utf-8") as file:
        yield file, leader
    os.close(leader)


def read(leader, size):
    data = b""
    while len(data) < size:
        data += os.read(leader, 65536)
    return data


def test_a_text_is_written_at_once(terminal):
    file, leader = terminal
    output = TerminalOutput(file)
    assert output.write_at_once("naïve 日本") == b""
    assert read(leader, 13).decode() == "naïve 日本"
    assert os.get_blocking(file.fileno())  # other programs rely on it
    output.close()


def test_a_terminal_that_takes_nothing_does_not_stop_the_loop(terminal):
    file, leader = terminal
    output = TerminalOutput(file)
    thread = WriterThread(output)
    thread._queue.maxsize = 0
    thread.start()
    texts = [f"{number} 日本語 ö " * 700 for number in range(40)]
    began = time.monotonic()
    rests = []
    for text in texts:
        rest = output.write_at_once(text)
        if rest:
            rests.append(rest)
            thread.write(rest)
    assert time.monotonic() - began < 2
    assert isinstance(rests[0], bytes), "the terminal took a part of the first text"
    expected = "".join(texts)
    received = read(leader, len(expected.encode())).decode()
    assert received == expected
    end = time.monotonic() + 5
    while output._flushed < output._passed and time.monotonic() < end:
        time.sleep(0.01)
    assert output.write_at_once("at once again") == b""
    assert read(leader, 13) == b"at once again"
    thread.stop()
    output.close()


def test_without_a_terminal_all_goes_to_the_thread():
    output = TerminalOutput(io.StringIO())
    assert output.write_at_once("text") == "text"


def test_all_is_dropped_when_the_terminal_is_gone():
    leader, follower = os.openpty()
    with os.fdopen(follower, "w", encoding="utf-8") as file:
        output = TerminalOutput(file)
        os.close(leader)
        assert output.write_at_once("text") == b""
        output.close()
