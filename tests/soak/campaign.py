"""One home, one project, many killed processes: the records that they acknowledged are compared
with what is left.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from fakes.killed_sessions import _is_sendable
from fakes.model_server import Call, ModelServer, Reply, Request
from fakes.waiting import wait

from ouro.memory.backend import MessageRecord
from ouro.memory.short_term import make_sendable
from ouro.memory.transcript import Transcript
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolReply

_KINDS = {"write": 120, "fsync": 40, "rename": 15}
"""The calls before which a process is killed, and their approximate number in a turn."""
_AT_ONCE = (1, 1, 2, 2, 8)
_LONGEST = 180.0
"""Seconds after which a process counts as stuck, which is an error."""
_KEY = "sk-test-soak"


@dataclass
class Killed:
    """One process and what it acknowledged."""

    process: subprocess.Popen[bytes]
    plan: str
    output: Path
    session: str = ""
    texts: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Read the output; an incomplete line was not acknowledged."""
        for line in self.output.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                self._take(json.loads(line))
        self.output.unlink()

    @property
    def error(self) -> str:
        """The standard error; can be read once."""
        path = self.output.with_suffix(".errors")
        text = path.read_text()
        path.unlink()
        return text

    def _take(self, event: dict) -> None:
        match event["type"]:
            case "session":
                self.session = event["session_id"]
            case "prompted":
                self.texts.append(event["text"])
            case "replied":
                self.texts.append(event["text"])
            case "tool_finished":
                self.results.append(event["call_id"])


class Campaign:
    """Runs rounds in `folder` until the time is over, and ends all processes that it started."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._home, self._project = folder / "home", folder / "project"
        self._remote = folder / "remote"
        self._numbers = itertools.count(1)
        self._server = ModelServer(self._reply)
        self._acknowledged: dict[str, tuple[list[str], list[str]]] = {}
        self._written: list[str] = []
        self._ends: Counter[str] = Counter()
        self._rounds = 0
        self._prepare()

    def __enter__(self) -> Campaign:
        self._server.start()
        self._write_models()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def run(self, seconds: float, rounds: int = 0) -> list[str]:
        """Run rounds; returns the broken rules, one line each."""
        broken: list[str] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and (not rounds or self._rounds < rounds) and not broken:
            self._rounds += 1
            broken = [*self._round(), *self._check()]
        return broken or self._check_end()

    def summary(self) -> str:
        messages = sum(len(texts) + len(results) for texts, results in self._acknowledged.values())
        ends = ", ".join(f"{count} × {name}" for name, count in sorted(self._ends.items()))
        return (
            f"{self._rounds} rounds, {len(self._acknowledged)} sessions, {messages} messages and"
            f" results acknowledged, {len(self._written)} lines of an editor. Ended: {ends}."
        )

    def _prepare(self) -> None:
        for place in (self._home, self._home / "ouro", self._project):
            place.mkdir(mode=0o700)
        (self._home / "ouro" / "memory").mkdir(mode=0o700)
        (self._home / ".gitconfig").write_text(
            "[user]\n\tname = Soak\n\temail = soak@example.invalid\n"
        )
        self._git(self._project, "init", "-q", "-b", "main")
        (self._project / "a.txt").write_text("line\n" * 400)
        self._git(self._project, "add", "-A")
        self._git(self._project, "commit", "-qm", "start")
        self._git(self._folder, "clone", "-q", str(self._project), str(self._remote))
        self.killer = self._compile()

    def _compile(self) -> Path | None:
        """Compile the library that kills before the N-th call; returns None without a C compiler."""
        compiler, library = shutil.which("cc"), self._folder / "killer.so"
        if compiler is None or sys.platform != "linux":
            return None
        source = str(Path(__file__).with_name("killer.c"))
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True
        )
        return library

    def _write_models(self) -> None:
        models = {
            "openai/test-model": {
                "api_base": self._server.openai_url,
                "api_key": _KEY,
                "window": 100_000,
            }
        }
        path = self._home / "ouro" / "models.yaml"
        path.write_text(yaml.safe_dump({"default": "openai/test-model", "models": models}))
        path.chmod(0o600)

    def _reply(self, request: Request) -> Reply:
        """Several tool calls, or a text, each with a unique name."""
        name, rng = f"{next(self._numbers)}-{self._rng.getrandbits(32):x}", self._rng
        asked = [message for message in request.messages if message["role"] == "user"]
        if rng.random() < 0.5 and len(request.messages) < 80 and asked:
            count = rng.randint(1, 3)
            return Reply(f"Doing {name}.", calls=[self._call(rng) for _ in range(count)])
        return Reply(f"Answer {name}.\n" + "---\n...\n  x\n" * rng.randint(0, 20))

    def _call(self, rng: random.Random) -> Call:
        number = next(self._numbers)
        match rng.randint(0, 3):
            case 0:
                return Call("read", {"path": "a.txt"}, id=f"call_{number}")
            case 1:
                return Call(
                    "write",
                    {"path": f"made/{number % 7}/{number}.txt", "content": "x\n" * 50},
                    id=f"call_{number}",
                )
            case 2:
                return Call(
                    "shell", {"command": f"echo {number} >> log.txt; seq 4000"}, id=f"call_{number}"
                )
            case _:
                return Call(
                    "shell", {"command": f"sleep 0.0{rng.randint(1, 9)}"}, id=f"call_{number}"
                )

    def _round(self) -> Iterator[str]:
        started = [self._start() for _ in range(self._rng.choice(_AT_ONCE))]
        self._edit()
        self._pull()
        for killed in started:
            if killed.plan == "random":
                time.sleep(self._rng.random() * 1.5 / len(started))
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(killed.process.pid, signal.SIGKILL)
        for killed in started:
            try:
                killed.process.wait(_LONGEST)
            except subprocess.TimeoutExpired:
                group = ["ps", "-o", "pid,ppid,stat,wchan:24,args", "-g", str(killed.process.pid)]
                shown = subprocess.run(group, capture_output=True, text=True, check=False).stdout
                yield f"a process ({killed.plan}) did not end within {_LONGEST:g} s:\n{shown}"
                os.killpg(killed.process.pid, signal.SIGKILL)
                killed.process.wait()
            killed.read()
            code, error = killed.process.returncode, killed.error
            self._ends["killed" if code < 0 else f"exit code {code}"] += 1
            if code > 0 and "This session is in use" not in error:
                yield f"exit code {code} ({killed.plan}, {killed.session}): {error[-1500:]}"
            if killed.session:
                texts, results = self._acknowledged.setdefault(killed.session, ([], []))
                texts += killed.texts
                results += killed.results

    def _start(self) -> Killed:
        rng, plan = self._rng, "random"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "OURO_HOME": str(self._home / "ouro"),
        }
        environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
        environment |= {
            "LANG": "C.UTF-8",
            "OURO_SESSIONS_TITLES": "false",
            "OURO_SANDBOX_ENABLED": "false",
        }
        if self.killer and rng.random() < 0.6:
            kind = rng.choice(list(_KINDS))
            plan = f"{kind}:{rng.randint(1, _KINDS[kind])}"
            environment |= {"LD_PRELOAD": str(self.killer), "OURO_SOAK_KILL": plan}
        # A session without a saved message is removed at the next start.
        resumable = [session for session, (texts, _) in self._acknowledged.items() if texts]
        session = rng.choice([*resumable, ""]) if rng.random() < 0.7 else ""
        words = f"prompt {next(self._numbers)}-{rng.getrandbits(32):x}"
        command = [
            sys.executable,
            "-m",
            "ouro",
            "-p",
            words,
            "--output",
            "stream-json",
            "--mode",
            "auto",
            "--trust",
        ]
        output = self._folder / f"output-{next(self._numbers)}"
        with output.open("wb") as file, output.with_suffix(".errors").open("wb") as errors:
            process = subprocess.Popen(
                command + (["--resume", session] if session else []), cwd=self._project, env=environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=errors, start_new_session=True,
            )  # fmt: skip
        return Killed(process, plan, output, session)

    def _edit(self) -> None:
        """Add a line to memory as an editor does: it replaces the file by a new one."""
        path = self._home / "ouro" / "memory" / "preferences.md"
        line = f"Editor line {next(self._numbers)}."
        found = path.read_text() if path.exists() else ""
        new = path.with_name("preferences.md~new")
        new.write_text(f"{found}{line}\n")
        new.replace(path)
        self._written.append(line)

    def _pull(self) -> None:
        (self._remote / f"remote-{self._rounds}.txt").write_text("from elsewhere\n")
        self._git(self._remote, "add", "-A")
        self._git(self._remote, "commit", "-qm", f"round {self._rounds}")
        self._git(self._project, "pull", "-q", str(self._remote), "main")

    def _check(self) -> Iterator[str]:
        store = YamlFileMemoryStore(self._home / "ouro" / "sessions")
        for session, (texts, results) in self._acknowledged.items():
            yield from self._check_session(store, session, texts, results)
        memory = self._home / "ouro" / "memory"
        kept = (memory / "preferences.md").read_text()
        yield from (f"lost of an editor: {line}" for line in self._written if line not in kept)
        for place in [self._project, *(git.parent for git in memory.rglob(".git"))]:
            done = subprocess.run(
                ["git", "fsck", "--no-dangling", "--no-progress"], cwd=place, capture_output=True, text=True,
                env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
            )  # fmt: skip
            if done.returncode:
                yield f"git fsck of {place.name}: {done.stdout}{done.stderr}"[:500]

    def _check_session(
        self, store: YamlFileMemoryStore, session: str, texts: list[str], results: list[str]
    ) -> Iterator[str]:
        if not texts:
            return
        try:
            loaded = wait(store.load_session(session, read_only=True))
        except Exception as error:
            yield f"session {session} does not open: {error!r}"
            return
        messages = [
            record.message for record in loaded.records if isinstance(record, MessageRecord)
        ]
        said = [message.text for message in messages]
        yield from (f"lost of {session}: {text[:60]!r}" for text in texts if text not in said)
        answered = {reply.call_id for message in messages for reply in message.parts_of(ToolReply)}
        yield from (
            f"lost of {session}: the result of {call}" for call in results if call not in answered
        )
        if not _is_sendable(make_sendable(Transcript.of(loaded).sent())):
            yield f"{session} cannot be sent"
        yield from (
            f"{session}: {notice}" for notice in loaded.notices if "cannot be read" in notice
        )

    def _check_end(self) -> list[str]:
        """What is left after one more start that is not killed."""
        sessions = self._home / "ouro" / "sessions"
        for folder in sessions.glob(
            "2*"
        ):  # makes them old: a folder that may still be in creation is not removed
            os.utime(folder, (0, 0))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "OURO_HOME": str(self._home / "ouro"),
        }
        environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-m", "ouro", "-p", "the last one", "--mode", "auto", "--trust"]
        done = subprocess.run(
            command, cwd=self._project, env={**environment, "LANG": "C.UTF-8"}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=_LONGEST,
        )  # fmt: skip
        broken = (
            [f"the last start: exit code {done.returncode}: {done.stderr[-300:]}"]
            if done.returncode
            else []
        )
        left = [
            *sessions.glob(".unfinished-*"),
            *sessions.glob("2*/.*"),
            *sessions.glob("2*/outputs/.*"),
        ]
        left += [folder for folder in sessions.glob("2*") if not (folder / "session.yaml").exists()]
        left += [
            path for path in (self._home / "ouro").rglob("*.lock") if path.parent.name == ".git"
        ]
        left += (self._home / "ouro").rglob("tmp_obj_*")
        left += [*(self._home / "ouro").rglob(".*.tmp"), *self._project.rglob(".*.tmp")]
        return (
            broken
            + [f"left behind: {path.relative_to(self._home)}" for path in left]
            + list(self._processes())
        )

    def _processes(self) -> Iterator[str]:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cwd").readlink() == self._project:
                    words = (
                        (process / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode("utf-8", "replace")
                    )
                    yield f"still running: {words[:100]}"

    def _git(self, place: Path, *arguments: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        subprocess.run(
            ["git", *arguments], cwd=place, env=environment, check=True, capture_output=True
        )
