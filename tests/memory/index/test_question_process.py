"""The process that makes the vectors of a first message: when it is started, what it gets, how it
ends.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.waiting import until, wait

from ouro.memory.index import local_embedder, question_process
from ouro.memory.index.question_process import (
    end_question_process,
    running_question_process,
    start_question_process,
)
from ouro.utils.ouro_paths import get_home, get_memory_dir

pytestmark = pytest.mark.skipif(
    local_embedder() is None, reason="requirements/vectors.txt is not installed"
)
TEXTS = ["Which port has the mail queue?", "Wie heißt der Server? \ud800", ""]


@pytest.fixture(autouse=True)
def notes(home, monkeypatch):
    monkeypatch.setattr(question_process, "ANSWER_SECONDS", 60.0)
    monkeypatch.setattr(question_process, "_has_idle_core", lambda: True)
    get_memory_dir().mkdir(parents=True)
    (get_memory_dir() / "mem_00000001.md").write_text("note\n")


@pytest.fixture
def process():
    with start_question_process("/", ""):
        yield running_question_process()


def variables_of(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")


def test_its_vectors_are_those_of_this_process(process):
    vectors = process.embed(TEXTS)
    for vector, row in zip(vectors, local_embedder().embed(TEXTS), strict=True):
        assert vector.tolist() == pytest.approx(row.tolist(), abs=1e-5)
    assert process.embed(TEXTS[:1]) == vectors[:1]


def test_the_vector_of_the_message_is_made_before_it_is_asked_for():
    with start_question_process("/", TEXTS[0]):
        process = running_question_process()
        assert [len(vector) for vector in process.embed([TEXTS[1], TEXTS[0]])] == [384, 384]


def test_it_gets_no_text_on_its_command_line_and_no_variable(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with start_question_process("/", TEXTS[0]):
        process = running_question_process()
        process.embed(TEXTS)
        assert "mail queue" not in Path(f"/proc/{process._pid}/cmdline").read_text()
        names = {line.partition("=")[0] for line in variables_of(process._pid)}
        # numpy's own are set by the process itself, and are not in this list.
        assert names <= {"", "LD_LIBRARY_PATH", "LC_CTYPE"}
        assert str(Path(f"/proc/{process._pid}/fd/2").readlink()) == os.devnull


def test_it_is_gone_when_the_context_ends():
    with start_question_process("/", ""):
        pid = running_question_process()._pid
    assert running_question_process() is None
    with pytest.raises(ProcessLookupError):  # it was waited for, so it is no zombie
        os.kill(pid, 0)


def test_it_is_gone_when_it_is_ended_before_it_has_loaded_anything(process):
    end_question_process()
    assert process.embed(TEXTS) == []
    process.close()  # once more


@pytest.mark.parametrize("when", ["at once", "after an answer"])
def test_a_killed_process_gives_no_vector(process, when):
    if when != "at once":
        process.embed(TEXTS)
    os.kill(process._pid, signal.SIGKILL)
    assert process.embed(TEXTS) == []
    assert process.embed(TEXTS) == []


def test_a_stopped_process_is_ended_in_time(process, monkeypatch):
    process.embed(TEXTS)
    os.kill(process._pid, signal.SIGSTOP)
    monkeypatch.setattr(question_process, "ANSWER_SECONDS", 0.01)
    assert process.embed(["another"]) == []
    os.waitid(os.P_PID, process._pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("answer", [b"", b"\x00", b"\x08\x00\x00\x00ab"])
def test_an_answer_that_is_cut_off_gives_no_vector(answer):
    to_read, texts = os.pipe()
    vectors, to_write = os.pipe()
    os.write(to_write, answer)
    os.close(to_write)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = question_process.QuestionProcess(child.pid, texts, vectors)
    assert process.embed(["text"]) == []
    process.close()
    os.close(to_read)
    child.wait()


def test_it_ends_when_ouro_was_killed(tmp_path):
    code = (
        "import sys, os, signal\nfrom ouro.memory.index import question_process as q\n"
        "q._has_idle_core = lambda: True\nwith q.start_question_process('/', ''):\n"
        " print(q.running_question_process()._pid, flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    wait(until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid)))


def _is_zombie(pid):
    """Whether it has ended, and nothing has waited for it: the first process of a container may not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _open_descriptors():
    """Those of this process; the listing itself has one, which is closed again."""
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


@pytest.mark.parametrize("reason", ["no notes", "one core", "no process"])
def test_it_is_not_started_without_use(monkeypatch, reason):
    match reason:
        case "no notes":
            (get_memory_dir() / "mem_00000001.md").rename(get_memory_dir() / "facts.md")
        case "one core":
            monkeypatch.setattr(question_process, "_has_idle_core", lambda: False)
        case "no process":
            monkeypatch.setattr(sys, "executable", str(get_home() / "missing"))
    before = _open_descriptors()
    with start_question_process("/", "text"):
        assert running_question_process() is None
    assert _open_descriptors() == before


def test_notes_of_the_project_are_found_from_a_folder_in_it(tmp_path):
    (get_memory_dir() / "mem_00000001.md").unlink()
    memory, folder = tmp_path / "app" / ".ouro" / "memory", tmp_path / "app" / "src" / "a"
    memory.mkdir(parents=True)
    folder.mkdir(parents=True)
    assert not question_process._has_notes(str(folder))
    (memory / "mem_00000001.md").write_text("note\n")
    assert question_process._has_notes(str(folder))


@pytest.mark.parametrize(
    ("quota", "cores", "load", "has_idle"),
    [
        ("max 100000", 2, 0.5, True),
        ("max 100000", 1, 0.5, False),
        ("max 100000", 2, 2.0, False),
        ("max 100000", 8, 3.0, True),
        ("100000 100000", 8, 0.5, False),
        ("200000 100000", 8, 0.5, True),
        ("odd", 2, 0.5, True),
    ],
)
def test_it_needs_a_core_that_is_idle(tmp_path, monkeypatch, quota, cores, load, has_idle):
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    monkeypatch.setattr(question_process, "_QUOTA_PATH", str(tmp_path / "cpu.max"))
    assert question_process._has_idle_core() is has_idle
