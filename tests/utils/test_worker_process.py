"""Workers: both sides notice the end of the other, also if it was killed while it wrote."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import aclosing

import pytest

from ouro.utils.worker_process import WorkerProcess, WorkerStopped

_DIES_IN_A_LINE = textwrap.dedent(
    """
    import os, sys
    sys.stdin.buffer.readline()
    os.write(1, b'{"ready": true}\\n{"id": 1, "event": {"te')
    """
)
_SERVES_NOTHING = textwrap.dedent(
    """
    from ouro.utils.worker_process import run_worker
    run_worker(lambda: None, lambda error: {})
    """
)


async def test_a_worker_that_dies_in_the_middle_of_a_line_has_stopped():
    worker = WorkerProcess(("-c", _DIES_IN_A_LINE))
    async with aclosing(worker.ask("anything", {}, first=10)) as lines:
        with pytest.raises(WorkerStopped) as caught:
            await anext(lines)
    assert caught.value.died


def test_a_worker_ends_with_a_session_that_was_killed_in_the_middle_of_a_request():
    worker = subprocess.Popen(
        [sys.executable, "-c", _SERVES_NOTHING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert worker.stdout.readline() == b'{"ready": true}\n'
        worker.stdin.write(b'{"id": 1, "do": "call", "wi')
        worker.stdin.close()
        assert worker.wait(timeout=10) == 0
    finally:
        worker.kill()
        worker.stdout.close()
