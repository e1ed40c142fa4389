"""Synchronizations of sessions and memory that are killed, with remotes that go back: no machine
loses a message or a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fakes.knowledge import editor_of

from ouro.memory.long_term import remember_text
from ouro.memory.manager import MemoryManager
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

_KINDS = {"write": 60, "fsync": 20, "rename": 15}
"""The calls before which a process is killed, and their approximate number in a synchronization."""
_LONGEST = 180.0
_ROUNDS = 12
"""Rounds on the same homes and remotes; then both machines must have everything."""
_SWEEP = """
import sys
from pathlib import Path
from ouro.utils.files import sweep_written_dirs
from ouro.utils.ouro_paths import get_written_dirs
sweep_written_dirs(get_written_dirs(Path(sys.argv[1])))
"""
"""What each start of ouro does."""
_SESSIONS, _MEMORY = "refs/heads/ouro-sessions", "refs/heads/main"


class SyncedHome:
    """One machine: its home, and what was written there."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / ".ouro"
        self.project = root / "work"
        self.project.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        self.store = YamlFileMemoryStore(self.home / "sessions")
        self.texts: set[str] = set()
        self.lines: set[str] = set()
        self.waiting: set[str] = set()
        """Lines of an editor that are not approved: they stay on this machine."""

    async def write_message(self, session: str, text: str) -> None:
        project = str(self.project)
        if session:
            memory = await MemoryManager.resume(self.store, session, project=project)
        else:
            memory = MemoryManager.start(self.store, project=project, model="m")
        await memory.add(user(text))
        await memory.close()
        self.texts.add(text)

    async def sessions(self) -> list[str]:
        return [info.id for info in await self.store.list_sessions()]

    async def found_texts(self) -> set[str]:
        """The texts of all messages in all sessions."""
        found: set[str] = set()
        for session in await self.sessions():
            memory = await MemoryManager.resume(self.store, session, project="", read_only=True)
            found |= {message.text for message in memory.messages()}
        return found

    def remember(self, line: str) -> None:
        remember_text(editor_of(self.home, indexed=False), line, "user")
        self.lines.add(line)

    def edit(self, line: str) -> None:
        """Add a line as an editor does while ouro is closed."""
        path = self.home / "memory" / "facts.md"
        path.parent.mkdir(exist_ok=True, mode=0o700)
        found = path.read_text() if path.exists() else ""
        path.write_text(f"{found}- {line}\n")
        self.waiting.add(line)

    def memory_text(self) -> str:
        return "".join(path.read_text() for path in (self.home / "memory").glob("*.md"))


class SyncRounds:
    """Runs rounds in `folder` until the time is over."""

    def __init__(self, folder: Path, seed: int, killer: Path | None) -> None:
        self._rng = random.Random(seed)
        self._folder, self._killer = folder / "synced", killer
        self._number = 0
        self._is_sealed = False
        self._machines: list[SyncedHome] = []
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> list[str]:
        """Run rounds; returns the broken rules, one line each."""
        end = time.monotonic() + seconds
        broken: list[str] = []
        while time.monotonic() < end and not broken:
            broken = list(self._world(end))
        return broken

    def summary(self) -> str:
        ends = ", ".join(f"{count} × {name}" for name, count in sorted(self.counts.items()))
        return f"Killed synchronizations: {ends}."

    def _world(self, end: float) -> Iterator[str]:
        """Rounds with two new machines and two new remotes."""
        self._prepare()
        for _ in range(_ROUNDS):
            broken = asyncio.run(self._round())
            yield from broken
            if broken or time.monotonic() > end:
                return
        yield from self._converge()

    def _prepare(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        for name in ("sessions.git", "memory.git"):
            _git(self._folder, "init", "-q", "--bare", name)
        self._machines = [SyncedHome(self._folder / name) for name in ("one", "two")]
        self._is_sealed = self._rng.random() < 0.5
        if self._is_sealed:
            asyncio.run(self._machines[0].write_message("", self._text()))
            self._run(self._machines[0], self._sessions_command(), kills=False)
            key = self._machines[0].home / "sessions.key"
            shutil.copy(key, self._machines[1].home / "sessions.key")

    def _text(self) -> str:
        self._number += 1
        return f"text {self._number}-{self._rng.getrandbits(32):x}"

    async def _round(self) -> list[str]:
        machine = self._rng.choice(self._machines)
        await self._write(machine)
        if self._rng.random() < 0.4:
            self._go_back()
        for command in (self._sessions_command(), self._memory_command()):
            if self._rng.random() < 0.7:
                # Where the N-th call is git's, only git is killed, which gives no reason.
                code, error = self._run(machine, command, kills=self._rng.random() < 0.7)
                if code > 0 and "no reason" not in error:
                    return [f"{' '.join(command[:2])}: exit code {code}: {error[-1000:]}"]
        return await self._check()

    async def _write(self, machine: SyncedHome) -> None:
        sessions = await machine.sessions()
        for _ in range(self._rng.randint(1, 3)):
            await machine.write_message(self._rng.choice([*sessions, ""]), self._text())
        if self._rng.random() < 0.7:
            machine.remember(f"The number {self._text()} matters.")
        if self._rng.random() < 0.3:
            machine.edit(f"The editor wrote {self._text()}.")

    def _go_back(self) -> None:
        """A remote loses its newest commits, or its branch."""
        name, branch = self._rng.choice([("sessions.git", _SESSIONS), ("memory.git", _MEMORY)])
        remote = self._folder / name
        count = _git(remote, "rev-list", "--count", "--all").strip()
        if count in ("", "0"):
            return
        self.counts["remote went back"] += 1
        back = self._rng.randint(1, int(count))
        if back >= int(count) or self._rng.random() < 0.2:
            _git(remote, "update-ref", "-d", branch)
        else:
            older = _git(remote, "rev-list", branch).split()
            _git(remote, "update-ref", branch, older[min(back, len(older) - 1)])

    def _sessions_command(self) -> list[str]:
        sealed = ["--encrypt"] if self._is_sealed else []
        return ["sessions", "sync", str(self._folder / "sessions.git"), *sealed]

    def _memory_command(self) -> list[str]:
        return ["memory", "sync", "--remote", str(self._folder / "memory.git")]

    def _run(self, machine: SyncedHome, command: list[str], *, kills: bool) -> tuple[int, str]:
        """Run ouro, perhaps until it is killed; returns its exit code and its errors."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(machine.root),
            "OURO_HOME": str(machine.home),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "LANG": "C.UTF-8",
        }
        is_counted = kills and self._killer is not None and self._rng.random() < 0.6
        if is_counted:
            kind = self._rng.choice(list(_KINDS))
            plan = f"{kind}:{self._rng.randint(1, _KINDS[kind])}"
            environment |= {"LD_PRELOAD": str(self._killer), "OURO_SOAK_KILL": plan}
        with subprocess.Popen(
            [sys.executable, "-m", "ouro", *command], cwd=machine.project, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:  # fmt: skip
            if kills and not is_counted:
                time.sleep(0.2 + self._rng.random() * 2.0)
                process.send_signal(signal.SIGKILL)
            _, error = process.communicate(timeout=_LONGEST)
        for lock in self._folder.glob("*.git/refs/**/*.lock"):
            lock.unlink()  # of a git at the remote that was killed: its owner does what ouro says
        self.counts[f"{command[0]} {'killed' if process.returncode < 0 else 'ended'}"] += 1
        return process.returncode, error.decode(errors="replace")

    async def _check(self) -> list[str]:
        broken: list[str] = []
        for machine in self._machines:
            name = machine.root.name
            lost = machine.texts - await machine.found_texts()
            broken += [f"lost of sessions on {name}: {text}" for text in sorted(lost)]
            memory = machine.memory_text()
            broken += [
                f"lost of memory on {name}: {line}"
                for line in sorted(machine.lines | machine.waiting)
                if line not in memory
            ]
            for place in (machine.home / "memory" / ".git", machine.home / "sessions.git"):
                broken += _damage(place)
        return broken

    def _converge(self) -> Iterator[str]:
        """After synchronizations that are not killed both machines have everything."""
        for machine in self._machines:
            _age(machine)
        for machine in (*self._machines, *self._machines):
            for command in (self._sessions_command(), self._memory_command()):
                code, error = self._run(machine, command, kills=False)
                if code:
                    yield f"{' '.join(command[:2])} at the end: exit code {code}: {error[-1000:]}"
        yield from asyncio.run(self._check())
        texts = set[str]().union(*(machine.texts for machine in self._machines))
        lines = set[str]().union(*(machine.lines for machine in self._machines))
        for machine in self._machines:
            missing = sorted(texts - asyncio.run(machine.found_texts()))
            memory = machine.memory_text()
            missing += sorted(line for line in lines if line not in memory)
            yield from (f"did not reach {machine.root.name}: {text}" for text in missing)
            yield from _left_behind(machine)
        self.counts["converged"] += 1


def _damage(place: Path) -> list[str]:
    """What git finds wrong with a repository."""
    if not (place / "HEAD").exists():  # killed while it was created; the next run creates it
        return []
    done = subprocess.run(
        ["git", f"--git-dir={place}", "fsck", "--no-dangling", "--no-progress"],
        capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    output = f"{done.stdout}{done.stderr}"[:500]
    return [f"git fsck of {place}: {output}"] if done.returncode else []


def _age(machine: SyncedHome) -> None:
    """Let an hour pass for what killed gits left: a younger file may belong to one that runs."""
    for pattern in ("tmp_obj_*", "tmp_pack_*", "tmp_idx_*"):
        for path in machine.home.rglob(pattern):
            os.utime(path, (0, 0))


def _left_behind(machine: SyncedHome) -> Iterator[str]:
    """What a killed process left, and the next start does not remove."""
    environment = {"OURO_HOME": str(machine.home), "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(
        [sys.executable, "-c", _SWEEP, str(machine.project)], check=True, env=environment
    )
    for pattern in ("tmp_obj_*", "tmp_pack_*", ".*.tmp", "*.lock"):
        for path in machine.home.rglob(pattern):
            is_of_git = any((parent / "HEAD").exists() for parent in path.parents)
            if is_of_git or path.suffix != ".lock":  # other locks are permanent files
                yield f"left behind: {path.relative_to(machine.root)}"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(machine.root):
                yield f"still running: {(process / 'cmdline').read_bytes()[:200]!r}"


def _git(place: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments], cwd=place, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout
