"""Every test has its own home, no keys, and no network except loopback."""

from __future__ import annotations

import compileall
import contextlib
import gc
import importlib
import itertools
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from ouro.memory.index.embeddings import LocalEmbedder
from ouro.safety import choose_sandbox
from ouro.utils import log as ouro_log

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # numpy with two threads took twenty times as long on a busy machine
sys.dont_write_bytecode = False
"""Keep the bytecode of test modules: compiling them takes five seconds."""

pytest_plugins = ["fakes.time_limits"]
ROOT = Path(__file__).parents[1]
_numbers = itertools.count()
IN_MEMORY = (
    "commands/test_memory",
    "importers/",
    "memory/",
    *(f"faults/test_{code}_" for code in ("m5", "m6", "m8", "s1", "s6", "s7", "s11", "s19", "s22", "s26")),
)  # fmt: skip
"""How the paths of tests begin that make many small files. In none a decision depends on the place:
for the judge and the sandbox `/dev` is not as other folders.
"""
ADDRESSES_OF_LOCAL_SERVERS = (
    "OLLAMA_HOST",
    "LM_STUDIO_API_BASE",
    "LLAMA_CPP_API_BASE",
    "HOSTED_VLLM_API_BASE",
)
"""Without these variables ouro looks at the usual ports, and a test would use the model server of a
developer.
"""
NO_SERVER = "http://127.0.0.1:9/v1"
"""An address where nothing listens: the port of the `discard` service."""
MIN_FREE_MEMORY = 4 << 30
FOLDERS_SIDE_BY_SIDE = 50
"""How many folders of tests have the same parent: Landlock needs a rule for each neighbour of a hidden
place. Among 3,000 of them a command took 0.25 s of CPU.
"""
MAX_NAME = 200
"""Characters of a parameter in the name of a test."""

KEPT_VARIABLES = {
    "PATH",
    "LANG",
    "LC_ALL",
    "TERM",
    "TEXTUAL_SNAPSHOT_TEMPDIR",
    "TMPDIR",
    "VIRTUAL_ENV",
    "KF_RULE_CACHE_DIR",
    "TEST_ALL_EXAMPLES",
    "TEST_COLD_STARTS",
    "TEST_TIME_FACTOR",
    "PYTEST_CURRENT_TEST",
    "PYTEST_XDIST_WORKER",
}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give slow machines more time; compile ouro once: otherwise each worker compiles all of it."""
    from fakes.waiting import SLOWER

    # The background jobs of a shell ignore Ctrl+C, and so would what tests start in terminals.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if SLOWER != 1:
        os.environ["PYTEST_TIMEOUT"] = str(float(config.getini("timeout")) * SLOWER)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        for folder in ("ouro", "tests/fakes"):
            compileall.compile_dir(ROOT / folder, quiet=1, workers=0)


def pytest_collection(session: pytest.Session) -> None:
    """Each worker imports other test modules first, so that each module is compiled only once."""
    gc.disable()
    if worker := getattr(session.config, "workerinput", None):
        files = [
            file
            for folder in session.config.args
            for file in sorted(Path(folder).rglob("test_*.py"))
        ]
        for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
            # Reported at collection; a module may skip all its tests.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(
                    ".".join(file.resolve().relative_to(ROOT).with_suffix("").parts)
                )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests with litellm or Dask first in a worker: one worker runs them, and imports it once.
    Without workers they are last: its import takes seconds, and the first failure may come before.
    """
    is_worker = hasattr(config, "workerinput")
    slow_imports = re.compile("litellm|test_responses_bridge|test_c4_workers")
    items.sort(key=lambda item: bool(slow_imports.search(item.nodeid)) != is_worker)


def pytest_collection_finish() -> None:
    """Collect garbage less often: by default it takes a fifth of the time of tests on screens. That
    of the collection of tests stays: finding it takes half a second.
    """
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of tests with long texts: each report and each worker sends all of them."""
    is_long = isinstance(val, str | bytes) and len(val) > MAX_NAME
    return f"{val[:MAX_NAME]!r} and {len(val) - MAX_NAME} more" if is_long else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Render a failure without a collection: a destructor that prints a traceback parses code, as
    pytest does at that moment, and Python 3.11 then ends the run with a SystemError.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_sessionfinish() -> None:
    """Collect garbage once: pytest does it five times at the end, which takes seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory) -> Iterator[Path]:
    """A folder in memory, where there is one: on a disk with a journal creating a file takes six
    times the CPU.
    """
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shutil.disk_usage(shared).free < MIN_FREE_MEMORY:
        yield tmp_path_factory.getbasetemp()
        return
    with tempfile.TemporaryDirectory(
        prefix="ouro-tests-", dir=shared, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@pytest.fixture
def base_folder(request, tmp_path_factory) -> Path:
    """Where the folders of a test are."""
    if os.path.relpath(request.path, ROOT / "tests").startswith(IN_MEMORY):
        return request.getfixturevalue("memory_folder")
    return tmp_path_factory.getbasetemp()


@pytest.fixture
def tmp_path(request, base_folder) -> Path:
    """A folder for the test. pytest's own lists all folders of earlier tests to find the next
    number.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return _new_folder(base_folder, name)


def _new_folder(base: Path, name: str) -> Path:
    """Make an empty folder for a test, whose name begins like this."""
    number = next(_numbers)
    parent = base / str(number // FOLDERS_SIDE_BY_SIDE)
    parent.mkdir(mode=0o700, exist_ok=True)
    folder = parent / f"{name}{number}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session", autouse=True)
def environment_of_all_tests() -> None:
    """An environment without keys and without the model servers of this machine, UTC."""
    for name in list(os.environ):
        if name not in KEPT_VARIABLES and not name.startswith(("PYTEST", "COV", "HYPOTHESIS")):
            del os.environ[name]
    os.environ |= {"TZ": "UTC", "PYTHONUTF8": "1", "GIT_CONFIG_NOSYSTEM": "1"}
    os.environ |= dict.fromkeys(ADDRESSES_OF_LOCAL_SERVERS, NO_SERVER)
    time.tzset()
    _find_python_itself()
    with tempfile.TemporaryDirectory() as folder:
        if choose_sandbox(Path(folder)).sandbox.tier == "none":
            os.environ["OURO_SANDBOX_ENABLED"] = (
                "false"  # without it `auto` would ask in every test
            )


def _find_python_itself() -> None:
    """Find `python` before a script of that name: the one of pyenv starts forty processes, which
    takes 80 ms of CPU for each command of a test.
    """
    found = shutil.which("python")
    if found and Path(found).read_bytes()[:2] == b"#!":
        folder = Path(os.path.realpath(sys.executable)).parent
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session")
def git_template(tmp_path_factory) -> Path:
    """The template of `git init`, without git's thirteen samples of hooks."""
    folder = tmp_path_factory.mktemp("git-template")
    (folder / "hooks").mkdir()
    (folder / "info").mkdir()
    (folder / "info" / "exclude").touch()
    return folder


@pytest.fixture(autouse=True)
def home(base_folder, monkeypatch, git_template) -> Path:
    """An empty home folder."""
    folder = _new_folder(base_folder, "home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("OURO_HOME", str(folder / ".ouro"))
    (folder / ".gitconfig").write_text(
        "[user]\n\tname = Test\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n"
        f"\ttemplateDir = {git_template}\n"
    )
    return folder


@pytest.fixture(scope="session", autouse=True)
def rules_of_all_tests(tmp_path_factory):
    """One folder for the compiled rules of the secret scanner, in the folder that pytest keeps
    between runs.

    Compiling takes seconds, and may end between two tests. Rules of another version are compiled
    again.
    """
    base = tmp_path_factory.getbasetemp()
    kept = next((each for each in base.parents if each.name.startswith("pytest-of-")), base)
    folder = kept / "secret-rules"
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KF_RULE_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def vectors_of_all_tests():
    """Cache vectors: the local model takes about 30 ms for a text, and most tests use the same
    ones.
    """
    import numpy  # not before the variable above is set

    embed, vectors = LocalEmbedder.embed, {}

    def known_or_embedded(self, texts):
        if new := [text for text in dict.fromkeys(texts) if text not in vectors]:
            vectors.update(zip(new, embed(self, new), strict=True))
        return numpy.stack([vectors[text] for text in texts])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEmbedder, "embed", known_or_embedded)
        yield


@pytest.fixture(scope="session", autouse=True)
def styles_of_all_tests():
    """Cache style sheets: parsing them takes a quarter of the time of a short test on a screen.

    A rule is hashed by its identity, in C instead of Python: hashing takes a fifteenth of the time.
    """
    from fakes.warm_python import parse_once
    from textual.css.model import RuleSet
    from textual.css.stylesheet import Stylesheet

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once(Stylesheet._parse_rules))
        patch.setattr(RuleSet, "__hash__", object.__hash__)
        yield


@pytest.fixture(scope="session", autouse=True)
def short_waits_for_screens():
    """Shorten Textual's waits: two times 20 ms after each key, and longer until its process is
    idle.
    """
    from textual import _wait

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_wait, "SLEEP_GRANULARITY", 0.01)
        patch.setattr(_wait, "SLEEP_IDLE", 0.0005)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk():
    """Skip fsync, which takes a twentieth of the time of all tests.

    Tests of flushes and their order replace this function, or run in other processes.
    """

    def known(descriptor):
        os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", known)
        yield


@pytest.fixture(scope="session", autouse=True)
def starts_of_all_tests():
    """Start ouro as a fork: a cold start takes 0.2 to 0.6 s of CPU; see `fakes.warm_python`."""
    from fakes.warm_python import warm_starts

    with warm_starts():
        yield


@pytest.fixture(autouse=True)
def no_log_of_another_test() -> Iterator[None]:
    """Remove log handlers of a program that ran in this process: they write into the home of its
    test.
    """
    yield
    for handler in ouro_log._file_handlers:
        logging.getLogger().removeHandler(handler)
    ouro_log._file_handlers.clear()


@pytest.fixture(scope="session", autouse=True)
def only_loopback():
    """Refuse every connection that would leave this machine."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in (
            "127.0.0.1",
            "::1",
            "localhost",
        ):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_delays():
    """Retry a failing model without a wait, and show open points of the last session without a
    delay.

    The process that makes missing vectors after a turn does not run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ouro.llm.model_call.FIRST_WAIT", 0.0)
        patch.setattr("ouro.memory.index.lookup.IDLE_SECONDS", 0.0)
        patch.setattr("ouro.memory.index.lookup.Lookup._start_process", lambda _lookup: None)
        patch.setattr("ouro.memory.long_term.maintenance.background.SETTLE_SECONDS", 0.0)
        yield


@pytest.fixture
def cpu_limit() -> Iterator[None]:
    """End the test after 10 s of CPU. Unlike time, CPU does not depend on the load of the machine."""
    signal.signal(signal.SIGVTALRM, lambda *_: pytest.fail("it took more than 10 s of CPU"))
    signal.setitimer(signal.ITIMER_VIRTUAL, 10)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@pytest.fixture(scope="session")
def repository_template(tmp_path_factory) -> Path:
    """The repository that `repository` copies: creating it with git takes ten times as long."""
    folder = tmp_path_factory.mktemp("template") / "repository"
    folder.mkdir()
    (folder / "api.py").write_text("import os\n\n\ndef hello(name):\n    return 'hello ' + name\n")
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid"]
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*identity, "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    for sample in (folder / ".git" / "hooks").glob("*.sample"):
        sample.unlink()
    return folder


@pytest.fixture
def repository(tmp_path, repository_template) -> Path:
    """A git repository with one commit."""
    return shutil.copytree(repository_template, tmp_path / "repository", symlinks=True)


@pytest.fixture
def model_server():
    """A scripted model server on loopback with the real wire formats; see its module."""
    from fakes.model_server import ModelServer

    with ModelServer() as server:
        yield server


@pytest.fixture
def ouro(model_server, repository):
    """The program in a repository; its model follows the lines of a prompt (see
    fakes.model_script.agent).
    """
    from fakes.model_server import agent
    from fakes.ouro_program import OuroProgram

    model_server.script(agent)
    program = OuroProgram(model_server, repository)
    yield program
    program.close()


@pytest.fixture(scope="session")
def litellm_kept():
    """Start the process of litellm once for the whole run: its import takes seconds."""
    from ouro.llm import litellm_model

    litellm_model.share_process("tests")
    yield
    litellm_model.leave_process("tests")


@pytest.fixture(params=["openai", "responses", "anthropic", "litellm-openai", "litellm-anthropic"])
def wire(request, model_server):
    """Each wire, connected to the model server; see fakes.wires."""
    from fakes.wires import Wire

    if request.param.startswith("litellm"):
        request.getfixturevalue("litellm_kept")
    return Wire(request.param, model_server)
