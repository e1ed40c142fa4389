"""A warm start behaves like a cold one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from fakes.ouro_program import BackgroundSessions
from fakes.warm_python import WARM

COLD = {"TEST_COLD_STARTS": "1"}
pytestmark = pytest.mark.skipif("TEST_COLD_STARTS" in os.environ, reason="nothing is started warm")


@pytest.fixture
def begin(tmp_path):
    begun = []

    def begin(*words, **more):
        environment = {**os.environ, **more}
        command = [sys.executable, *words]
        begun.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
                env=environment, start_new_session=True,
            )
        )  # fmt: skip
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def is_warm(process) -> bool:
    """Only for a running process: a finished process has no command line."""
    return b"warm_python" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    "words", ["--version", "--nonsense", "memory list", "-p hello", "-p", "sessions show none"]
)
def test_warm_start_gives_the_same_output_and_exit_code(begin, words):
    warm, cold = begin("-m", "ouro", *words.split()), begin("-m", "ouro", *words.split(), **COLD)
    assert warm.communicate() == cold.communicate()
    assert warm.returncode == cold.returncode


@pytest.mark.parametrize(
    "module", ["ouro.mcp.worker", "ouro.lsp.worker", "ouro.llm.litellm_worker"]
)
def test_warm_child_has_its_own_session_and_dies_of_signals(begin, module):
    worker = begin("-P", "-m", module)
    assert worker.stdout.readline() == b'{"ready": true}\n'
    assert is_warm(worker)
    assert os.getsid(worker.pid) == worker.pid
    worker.send_signal(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL


def test_warm_start_works_in_a_terminal(tmp_path):
    child = pexpect.spawn(
        sys.executable,
        ["-m", "ouro", "--plain"],
        cwd=str(tmp_path),
        dimensions=(30, 100),
        encoding="utf-8",
    )
    assert is_warm(child)
    child.expect("ouro models --setup|No model|models.yaml")
    child.sendintr()
    child.close(force=True)


@pytest.mark.parametrize(
    ("name", "environment"),
    [("yaml.py", {}), ("a.txt", {"PYTHONPATH": "/x"}), ("a.txt", {"PYTHONUTF8": "0"}), ("a", COLD)],
)
def test_unsupported_cases_start_cold(begin, tmp_path, name, environment):
    (tmp_path / name).touch()
    assert not is_warm(begin("-m", "ouro", "-p", **environment))
    assert not is_warm(begin("-X", "dev", "-m", "ouro", "-p"))


def test_code_with_the_mark_is_started_warm(tmp_path):
    code = "import sys; print(__name__, *sys.argv); sys.exit(3)"
    done = [
        subprocess.run(
            [sys.executable, "-c", each, "a b"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for each in (WARM + code, code)
    ]
    assert [(run.returncode, run.stdout, run.stderr) for run in done] == [
        (3, "__main__ -c a b\n", "")
    ] * 2


@pytest.mark.parametrize("is_warm_start", [True, False])
def test_host_of_a_background_session_starts_as_what_started_it(ouro, is_warm_start):
    ouro.more = {} if is_warm_start else COLD
    sessions = BackgroundSessions(ouro)
    session = sessions.start("say: done")
    host = sessions.until_state(session, "idle")["pid"]
    assert (b"warm_python" in Path(f"/proc/{host}/cmdline").read_bytes()) == is_warm_start
    assert os.getsid(host) == host
    assert sessions.stop(session).code == 0
    sessions.until_gone(host)
