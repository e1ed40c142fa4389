"""The real program, `python -m ouro`, with its own home and a model server, also as a program that
stays open.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fakes.model_server import ModelServer
from fakes.terminal import Terminal
from fakes.waiting import PATIENCE
from ouro.frontends.background.background_sessions import find_agents
from ouro.llm.providers import LOCAL

KEY = "sk-proj-0wnK3yOfTheTestsZ9y8X7w6V5u4T3s2"
ANTHROPIC = "anthropic/claude-sonnet-4-5"


@functools.cache
def secret_rules() -> Path:
    """The compiled rules for secrets. Compiling takes seconds, so all homes share them."""
    from kingfisher_sdk import Rules, Scanner

    folder = Path(os.environ["KF_RULE_CACHE_DIR"])  # shared by all tests
    Scanner(Rules(cache_dir=folder))
    return folder


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the homes of some tests are in memory
        shutil.copyfile(source, target)


def hosts_in(home: Path) -> list[int]:
    """The processes that host background sessions of this home."""
    records = [json.loads(path.read_text()) for path in (home / "background").glob("*.json")]
    return [record["pid"] for record in records if _has_file_open(record["pid"], home)]


def _has_file_open(pid: int, folder: Path) -> bool:
    """Whether the process has a file in the folder open: another process may have its number by
    now, and the command line of a warm start does not name ouro.
    """
    return any(file.is_relative_to(folder) for file in _open_files(pid))


def _open_files(pid: int) -> Iterator[Path]:
    """The files that a process has open. A busy one closes some meanwhile: they are left out, not
    the others.
    """
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield descriptor.readlink()


@dataclass(frozen=True)
class Done:
    """The result of a headless run."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict]:
        """The JSON lines on standard output."""
        return [json.loads(line) for line in self.out.splitlines()]


class OuroTerminal(Terminal):
    """ouro in a terminal, with the actions of a user."""

    GRACE = 0.6
    """Seconds after which keys answer a new question; earlier keys go to the prompt."""

    @property
    def pid(self) -> int:
        """The process of the session. The terminal waits for its launcher."""
        launcher: int = self.child.pid
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{launcher}/cmdline").read_bytes()
            children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
            for child in children.split():
                if Path(f"/proc/{child}/cmdline").read_bytes() == words:  # forked, not started
                    return int(child)
        return launcher

    def say(self, text: str, key: str = "\r") -> None:
        """Replace the content of the prompt with a message, and press Enter."""
        self.send("\x15" + text + key)

    def answer(self, key: str, *shown: str) -> None:
        """Answer the permission question that shows this."""
        self.until_shows("Allow?", *shown)
        self.press(key, lambda: not all(map(self.shows, ("Allow?", *shown))))

    def comment(self, text: str, *shown: str) -> None:
        """Write a comment to the permission question that shows this, without answering it."""
        self.until_shows("Allow?", *shown)
        self.press("\t", lambda: self.shows("comment for the agent"))
        self.send(text)
        self.until_shows(text)

    def press(self, key: str, done: Callable[[], bool]) -> None:
        """Press a key until it has an effect: a new question or paste ignores keys for a moment."""
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, self.text()
            self._watch(lambda: False)
            self.send(key)
            self._watch(done)

    def _watch(self, done: Callable[[], bool]) -> None:
        """Read until `done`, or until a new question accepts keys."""
        end = time.monotonic() + self.GRACE
        while time.monotonic() < end and not done():
            self.read(0.02)

    def leave(self) -> int:
        """Press Ctrl+C twice; returns the exit code."""
        self.send("\x15\x03")
        self.until_shows("Ctrl+C again quits")
        self.send("\x03")
        return self.end()


@dataclass
class OuroProgram:
    """Starts ouro in `folder`; `close` ends everything that was started."""

    server: ModelServer
    folder: Path
    more: dict[str, str] = field(default_factory=dict)
    """Further environment variables."""
    titles: bool = False
    """Whether a model finds titles: one more request, at a time that a script cannot predict."""
    terminals: list[OuroTerminal] = field(default_factory=list)
    processes: list[subprocess.Popen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.mkdir(mode=0o700)
        (self.home / "cache").mkdir(mode=0o700)
        rules = self.home / "cache" / "secret-rules"
        shutil.copytree(secret_rules(), rules, copy_function=_link_or_copy)
        models = {
            "openai/test-model": {
                "api_base": self.server.openai_url,
                "api_key": KEY,
                "window": 100_000,
            },
            "openai/other-model": {
                "api_base": self.server.openai_url,
                "api_key": KEY,
                "window": 50_000,
            },
            ANTHROPIC: {"api_base": self.server.url, "api_key": KEY},
        }
        file = self.home / "models.yaml"
        file.write_text(yaml.safe_dump({"default": "openai/test-model", "models": models}))
        file.chmod(0o600)

    @property
    def home(self) -> Path:
        return Path(os.environ["OURO_HOME"])

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {"PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        # The language servers of this machine would read the files of tests.
        own["OURO_LSP_ENABLED"] = "false"
        if not self.titles:
            own["OURO_SESSIONS_TITLES"] = "false"
        # A model server on this machine would be found.
        variables = [name for provider in LOCAL for name in provider.base_variables]
        closed = dict.fromkeys(variables, "http://127.0.0.1:1/v1")
        return {**closed, **os.environ, **own, **self.more}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ouro", *arguments]

    def start(self, *arguments: str, size: tuple[int, int] = (30, 100)) -> OuroTerminal:
        """ouro in a terminal."""
        self.terminals.append(
            OuroTerminal(self.command(*arguments), self.environment, self.folder, size)
        )
        return self.terminals[-1]

    def screen(self, *arguments: str, size: tuple[int, int] = (30, 100)) -> OuroTerminal:
        """ouro on the full screen, its session open."""
        terminal = self.start(*arguments, size=size)
        terminal.until_shows("❯", "test-model")
        return terminal

    def headless(self, *arguments: str, given: str = "") -> Done:
        """Run ouro without a terminal to its end."""
        run = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment, input=given.encode(), capture_output=True,
            check=False, timeout=PATIENCE,
        )  # fmt: skip
        return Done(run.returncode, run.stdout.decode(), run.stderr.decode())

    def begin(self, *arguments: str, **options: object) -> subprocess.Popen:
        """Start ouro without a terminal; the test waits for it."""
        pipes = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        self.processes.append(
            subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env=self.environment, **pipes
            )
        )
        return self.processes[-1]

    def sessions(self) -> list[dict]:
        """The output of `ouro sessions list --json`, newest first."""
        return json.loads(self.headless("sessions", "list", "--json").out)

    def sessions_of_all(self) -> list[dict]:
        """The same for all folders."""
        return json.loads(self.headless("sessions", "list", "--all", "--json").out)

    def number_in(self, name: str, terminal: OuroTerminal) -> int:
        """Wait until a command has written its process id into a file of the folder; returns that
        process.

        In a sandbox a process has another id than outside.
        """
        file = self.folder / name
        terminal.until(lambda: file.exists() and file.read_text().endswith("\n"))
        number = file.read_text().strip()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                numbers = (
                    (process / "status")
                    .read_text()
                    .partition("NSpid:")[2]
                    .partition("\n")[0]
                    .split()
                )
                if (
                    numbers[1:]
                    and numbers[-1] == number
                    and (process / "cwd").readlink() == self.folder
                ):
                    return int(process.name)
        return int(number)

    def close(self) -> None:
        """End all running processes."""
        for terminal in self.terminals:
            terminal.close()
        for host in hosts_in(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(host, signal.SIGKILL)
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class BackgroundSessions:
    def __init__(self, ouro: OuroProgram) -> None:
        self.ouro = ouro

    def start(self, *words: str) -> str:
        """The id of a new session; the last word is its task."""
        done = self.ouro.headless(*words[:-1], "--bg", words[-1])
        assert done.code == 0, done.err
        return done.out.split()[0]

    def rows(self) -> list[dict]:
        """As `ouro agents --json`, without a new process."""
        return [row.to_json() for row in asyncio.run(find_agents())]

    def row(self, session: str) -> dict:
        return next((row for row in self.rows() if row["id"].startswith(session)), {})

    def until(self, session: str, is_so: Callable[[dict], object]) -> dict:
        """Ask until the row of a session is as wanted."""
        end = time.monotonic() + PATIENCE
        while not is_so(row := self.row(session)):
            assert time.monotonic() < end, row
            time.sleep(0.05)
        return row

    def until_state(self, session: str, state: str) -> dict:
        return self.until(session, lambda row: row.get("state") == state)

    def answer(self, session: str, *words: str) -> Done:
        return self.ouro.headless("agents", "answer", session, *words)

    def stop(self, session: str) -> Done:
        return self.ouro.headless("agents", "stop", session, "--yes")

    def until_gone(self, pid: int) -> None:
        """Wait until a process has ended; nobody may have asked for its exit code."""
        end = time.monotonic() + PATIENCE
        while runs(pid):
            assert time.monotonic() < end, pid
            time.sleep(0.05)

    def kill(self, session: str) -> None:
        """Kill the process, as the system does without memory."""
        os.kill(self.row(session)["pid"], signal.SIGKILL)


class Talk:
    """One session; `say` sends a message and waits for the end of the turn."""

    def __init__(self, ouro: OuroProgram, *arguments: str) -> None:
        self.process = ouro.begin(
            "-p",
            "--input",
            "stream-json",
            "--output",
            "stream-json",
            *arguments,
            stdin=subprocess.PIPE,
            text=True,
        )

    def send(self, text: str) -> None:
        """Send a message without waiting."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"type": "user", "text": text}) + "\n")
        self.process.stdin.flush()

    def until(self, kind: str) -> list[dict[str, Any]]:
        """The events up to the first one of that kind."""
        assert self.process.stdout is not None
        events = []
        for line in self.process.stdout:
            events.append(json.loads(line))
            if events[-1]["type"] == kind:
                return events
        raise AssertionError(f"no {kind} in {[event['type'] for event in events]}")

    def say(self, text: str) -> dict[str, str]:
        """Send a message; returns what recall found for it, by id and state."""
        self.send(text)
        events = self.until("result")
        kinds = [event["type"] for event in events]
        found = [event for event in events if event["type"] == "notes_recalled"]
        if found:
            assert kinds[kinds.index("prompted") + 1] == "notes_recalled"
        return {item["id"]: item["state"] for event in found for item in event["items"]}

    def end(self) -> None:
        """Close the input, and wait for exit code 0."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(20) == 0
