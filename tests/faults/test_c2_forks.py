"""C2: the server that forks the sessions of a batch is killed: no task is lost or at work twice."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from fakes.files import make_repository, touch, write_tasks
from fakes.waiting import PATIENCE

from ouro.utils.fork_server import ForkServer, NoForkServer


def wait_until(done):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def _running(text):
    """The processes whose command line has a text, and that have not ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_of = text.encode() in (place / "cmdline").read_bytes()
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if is_of and fields[0] != "Z":
            found.append((int(place.name), int(fields[1])))
    return found


def test_c2_a_process_that_its_client_does_not_know_does_not_begin(tmp_path):
    """The server is killed between the fork and its answer: the client starts another one."""
    code = """
import os, sys, ouro.utils.fork_server as forks
send = forks._send
forks._send = lambda *words, **named: os._exit(1) if len(words) > 2 else send(*words, **named)
forks.wait_for_fork(int(sys.argv[-1]))
open("begun", "w")
"""
    server = ForkServer([sys.executable, "-P", "-c", code, str(tmp_path)])
    with (tmp_path / "out").open("wb") as out, pytest.raises(NoForkServer):
        server.start((), tmp_path, os.environ, output=out.fileno(), errors=out.fileno())
    wait_until(lambda: not _running(str(tmp_path)))
    assert not (tmp_path / "begun").exists()


def test_c2_a_batch_whose_server_is_killed_is_done_and_asks_no_model_twice(ouro, tmp_path):
    shop = make_repository(tmp_path / "shop")
    tasks = [
        {"id": f"t{n}", "repo": str(shop), "prompt": f"run: sleep 1\n{touch(f'a{n}')}"}
        for n in range(3)
    ]
    write_tasks(ouro.folder, tasks)
    batch = ouro.begin("batch", "run", "tasks.yaml", "-j", "1", "--json")
    wait_until(lambda: ouro.server.requests)
    own = [pid for pid, parent in _running("ouro.warm_start") if parent == batch.pid]
    assert len(own) == 1
    os.kill(own[0], signal.SIGKILL)
    out = batch.communicate(timeout=PATIENCE)[0]
    results = json.loads(out)["results"]
    assert [result["files"] for result in results] == [["a0"], ["a1"], ["a2"]]
    prompts = [request.body["messages"][-1] for request in ouro.server.requests]
    assert len([prompt for prompt in prompts if prompt["role"] == "user"]) == 3
