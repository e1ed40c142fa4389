import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.waiting import PATIENCE

from ouro.utils.fork_server import ForkServer, NoForkServer

SERVER = """
import os, sys, ouro.utils.fork_server as forks
{before}
words = forks.wait_for_fork(int(sys.argv[1]))
exec(words[0], {{"words": words, "os": os}})
os._exit(0)
"""


@pytest.fixture
def serving():
    servers = []

    def make(before=""):
        servers.append(ForkServer([sys.executable, "-P", "-c", SERVER.format(before=before)]))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def start(tmp_path):
    def start(server, code, *words, folder=tmp_path, variables=os.environ, keep=()):
        with (tmp_path / "out").open("ab") as out, (tmp_path / "err").open("ab") as err:
            files = {"output": out.fileno(), "errors": err.fileno()}
            return server.start((code, *words), folder, variables, keep=keep, **files)

    return start


def wait_until(done):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(pid):
    """Whether a process has ended; it may not have been waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_forked_process_has_the_folder_the_variables_and_the_output_that_were_asked_for(
    serving, start, tmp_path
):
    place = tmp_path / "a folder ü"
    place.mkdir()
    code = (
        "print(os.getcwd(), dict(os.environ), words[1:], os.getpid() == os.getpgrp(), flush=True)\n"
        "os.write(2, b'to errors')"
    )
    long = "x" * 300_000
    process = start(serving(), code, "a b", long, folder=place, variables={"SHOP": "\udcff"})
    process.wait()
    said = f"{place} {{'SHOP': '\\udcff'}} {['a b', long]} True\n"
    assert (tmp_path / "out").read_text() == said
    assert (tmp_path / "err").read_bytes() == b"to errors"


def test_processes_run_side_by_side_and_each_wait_ends_with_its_own(serving, start, tmp_path):
    server = serving()
    slow = start(server, "import time; time.sleep(600)")
    quick = [start(server, f"open('{n}', 'w')") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda process: process.wait(), quick))
    assert {path.name for path in tmp_path.iterdir()} == {"out", "err", *map(str, range(8))}
    os.killpg(slow.pid, signal.SIGKILL)
    slow.wait()


def test_a_lock_is_held_as_long_as_the_process_that_inherits_it(serving, start, tmp_path):
    reading, writing = os.pipe()
    process = start(serving(), "import time; time.sleep(600)", keep=(writing,))
    os.close(writing)
    os.set_blocking(reading, False)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_folder_that_is_gone_is_an_error_and_the_next_process_starts(serving, start, tmp_path):
    server = serving()
    with pytest.raises(NoForkServer):
        start(server, "", folder=tmp_path / "gone")
    start(server, "open('here', 'w')").wait()
    assert (tmp_path / "here").exists()


def test_what_a_killed_server_forked_goes_on_and_no_other_process_starts(serving, start, tmp_path):
    server = serving()
    code = "import time\nwhile not os.path.exists('go'): time.sleep(.02)\nopen('ended', 'w')"
    process = start(server, code)
    server.close()
    with pytest.raises(NoForkServer):
        start(server, "")
    (tmp_path / "go").touch()
    process.wait()
    assert (tmp_path / "ended").exists()


def test_a_server_whose_client_is_gone_ends(serving, start):
    server = serving()
    start(server, "pass").wait()
    pid = server._process.pid
    server._channel.close()
    wait_until(lambda: is_gone(pid))


@pytest.mark.parametrize("program", [("false",), ("no-such-program",)])
def test_a_server_that_does_not_start_is_an_error(start, program):
    server = ForkServer(program)
    with pytest.raises(NoForkServer):
        start(server, "")
