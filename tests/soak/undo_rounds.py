"""Turns that are killed and then undone, and undos that are killed: files are compared byte for
byte.
"""

from __future__ import annotations

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

import yaml
from fakes.model_server import Call, ModelServer, Reply, Request

from ouro.safety import Checkpoints

Files = dict[str, tuple[int, bytes]]
"""The bits of execution and the content of each file of a project."""
_KINDS = {"write": 60, "rename": 25}
_LONGEST = 120.0
_UNDO = """
import asyncio, sys
from pathlib import Path
from ouro.assemble import Options, open_session
from ouro.llm import ScriptedModel
from ouro.session import OpenRequest
async def main():
    options = Options(Path(sys.argv[1]), {}, ready_model=ScriptedModel([]))
    session = await open_session(options, OpenRequest("latest"))
    await session.rewind.describe_redoable()  # what was cut off is finished
    number = session.rewind.points()[0].number if session.rewind.points() else 0
    if number and await session.rewind.describe_undoable(number):
        print(*(await session.rewind.rewind(number, ("files",))).notices, sep="\\n")
    if session.rewind.unsure_files():
        print("asked", *(await session.rewind.restore_unsure()), sep="\\n")
    await session.close()
asyncio.run(main())
"""
_STEPS = (
    "for n in 1 2 3 4 5 6 7 8; do echo $n >> a.txt; echo $n > made-$n.txt; done",
    "rm -f b.txt && mv c.txt d.txt",
    "mkdir -p deep/er && cp a.txt deep/er/ && sed -i s/line/LINE/ a.txt",
    "sleep 0.05; chmod +x a.txt; ln -sf a.txt link; printf '\\0\\377' > bytes",
)


class UndoRounds:
    """Runs rounds in `folder` until the time is over."""

    def __init__(self, folder: Path, seed: int, killer: Path | None) -> None:
        self._rng = random.Random(seed)
        self._folder, self._killer = folder, killer
        self._project, self._home = folder / "undone", folder / "undone-home"
        self._server = ModelServer(self._reply)
        self._left = 0
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> list[str]:
        """Run rounds; returns the broken rules, one line each."""
        self._server.start()
        end = time.monotonic() + seconds
        broken: list[str] = []
        try:
            while time.monotonic() < end and not broken:
                broken = list(self._round())
        finally:
            self._server.stop()
        return broken

    def summary(self) -> str:
        ends = ", ".join(f"{count} × {name}" for name, count in sorted(self.counts.items()))
        return f"Killed turns and undos: {ends}."

    def _reply(self, _request: Request) -> Reply:
        self._left -= 1
        if self._left < 0:
            return Reply("Done.")
        calls = [self._call(number) for number in range(self._rng.randint(1, 2))]
        return Reply("", calls=calls)

    def _call(self, number: int) -> Call:
        name = f"call_{self._left}_{number}"
        if self._rng.random() < 0.4:
            path = self._rng.choice(["new.txt", "b.txt", "deep/tool.txt"])
            content = f"{self._rng.random()}\n"
            return Call("write", {"path": path, "content": content}, id=name)
        return Call("shell", {"command": self._rng.choice(_STEPS)}, id=name)

    def _round(self) -> Iterator[str]:
        before = self._prepare()
        self._left = self._rng.randint(1, 4)
        words = ["-m", "ouro", "-p", "change files", "--mode", "auto", "--trust"]
        self.counts["turn killed" if self._run(words) < 0 else "turn ended"] += 1
        if not list((self._home / "sessions").glob("2*")):
            return  # killed before the session was there: nothing ran
        for _ in range(self._rng.choice([0, 1, 2])):
            code = self._run(["-c", _UNDO, str(self._project)])
            self.counts["undo killed" if code < 0 else "undo ended"] += 1
        done = subprocess.run(
            [sys.executable, "-c", _UNDO, str(self._project)], cwd=self._project, check=False,
            env=self._environment(), capture_output=True, text=True, timeout=_LONGEST,
        )  # fmt: skip
        after = _snapshot(self._project)
        if done.returncode and "No session of this folder yet" not in done.stderr:
            yield f"the last undo: exit code {done.returncode}: {done.stderr[-1000:]}"
        names = self._not_restored(before, after)
        if names:
            yield f"not restored: {names}: {done.stdout}{done.stderr[-500:]}"
        left = [path.name for path in (self._home / "checkpoints").glob("*/[ou][pn]*ing/*")]
        if left:
            yield f"left behind: {left}"
        if "asked" in done.stdout.splitlines():
            self.counts["asked about a file"] += 1
        self.counts["restored"] += 1

    def _not_restored(self, before: Files, after: Files) -> list[str]:
        """The files that differ and that ouro did not name, or whose content is gone."""
        lost = self._named_as_lost()
        self.counts["named as not restored"] += bool(lost)
        kept_contents = {after[name][1] for name in lost & after.keys()}
        names = []
        for name in sorted(before.keys() | after.keys()):
            is_moved = name not in after and before[name][1] in kept_contents
            if before.get(name) != after.get(name) and name not in lost and not is_moved:
                names.append(name)
        return names

    def _named_as_lost(self) -> set[str]:
        """The files of the killed turn whose earlier state ouro says that it does not know."""
        lost = set[str]()
        for file in (self._home / "sessions").glob("2*/session.yaml"):
            header = yaml.safe_load(file.read_text().split("\n---\n")[0])
            if header is None:  # killed before its first record: no turn had begun
                continue
            session = header["session"]["id"]
            kept = Checkpoints(self._project, self._home / "checkpoints", session)
            for turn in kept.turns():
                lost |= kept.turn_changes(turn).lost.keys()
        return lost

    def _run(self, words: list[str]) -> int:
        """Run a process that is killed at a random moment; returns its exit code."""
        environment = self._environment()
        is_counted = self._killer is not None and self._rng.random() < 0.5
        if is_counted:
            kind = self._rng.choice(list(_KINDS))
            plan = f"{kind}:{self._rng.randint(1, _KINDS[kind])}"
            environment |= {"LD_PRELOAD": str(self._killer), "OURO_SOAK_KILL": plan}
        with subprocess.Popen(
            [sys.executable, *words], cwd=self._project, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:  # fmt: skip
            if not is_counted:
                time.sleep(0.3 + self._rng.random() * 1.5)
                process.send_signal(signal.SIGKILL)
            return process.wait(_LONGEST)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "OURO_HOME": str(self._home),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "LANG": "C.UTF-8",
            "OURO_SESSIONS_TITLES": "false",
        }

    def _prepare(self) -> Files:
        for place in (self._home, self._project):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(mode=0o700)
        model = {"api_base": self._server.openai_url, "api_key": "sk-test", "window": 100_000}
        models = {"default": "openai/m", "models": {"openai/m": model}}
        (self._home / "models.yaml").write_text(yaml.safe_dump(models))
        (self._home / "models.yaml").chmod(0o600)
        for name in ("a.txt", "b.txt", "c.txt"):
            (self._project / name).write_text("line\n" * 40)
        if self._rng.random() < 0.7:
            git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.invalid")
            for command in (("init", "-q"), ("add", "a.txt", "b.txt"), ("commit", "-qm", "x")):
                subprocess.run([*git, *command], cwd=self._project, check=True)
            (self._project / "b.txt").write_text("not committed\n")
        return _snapshot(self._project)


def _snapshot(root: Path) -> Files:
    found: Files = {}
    for path in root.rglob("*"):
        is_kept = ".git" not in path.parts and (path.is_file() or path.is_symlink())
        if is_kept:
            data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(root))] = (path.lstat().st_mode & 0o111, data)
    return found
