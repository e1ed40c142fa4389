"""Sequences of actions on long-term memory, drawn by a seed, and all bytes that they leave on disk.

From tests/: `python -m fakes.memory_actions --write` records 200 sequences in
`fixtures/memory_actions.json`; `--show 7` prints sequence 7 step by step. `--against TREE` compares
with the ouro in another tree, each sequence side by side: on a loaded machine commits are seconds
apart that were made in one when they were recorded, and git orders them by the second.

Times, ids of notes, commits, blobs and proposals are replaced by numbers in the order in which they
appear; everything else is compared byte by byte: the files, ouro's records about them, the pending
changes, the whole history with its trailers, the index of plain git, and the events.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path

from fakes.files import git, write
from fakes.knowledge import Conversation
from ouro.errors import OuroError
from ouro.events import CoreChanged, Event, Notice, QuestionAsked
from ouro.memory.long_term import (
    all_entries,
    forget_entries,
    open_file,
    save_file,
    sync_in_session,
)
from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.placement import Placement
from ouro.memory.long_term.remember import write_text
from ouro.utils.files import MARK

RECORDED = Path(__file__).parents[1] / "fixtures" / "memory_actions.json"
SEQUENCES, LENGTH = 200, 12
_UNCOMPARED = {"core", "folder", "lock", "sync", "writes-lock"}
"""Records of fingerprints and inodes, and lock files."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_HEX = re.compile(r"(?<![\w])(?:mem_)?(?=[a-f]*\d)[0-9a-f]{6,64}(?!\w)|(?<=mem_)[0-9a-f]{6,32}")
_CORE = ("decisions", "preferences", "facts")
_SUBJECTS = (
    "tea",
    "the harbour",
    "lint",
    "Oslo",
    "red buttons",
    "the parser",
    "Monday",
    "the moon",
)


class Actions:
    """The user, the agent, other programs and another machine, on one home and one repository."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self._random = random.Random(seed)
        self._home, self._project = root / "home" / ".ouro", root / "project"
        self._other_home = root / "laptop" / ".ouro"
        self._remote = root / "remote.git"
        self._write = self._random.choice(("tell", "tell", "tell", "ask", "silent"))
        self._number = 0
        self._names: dict[str, str] = {}
        self._contents: dict[str, str] = {}
        self._sessions = 0
        git(root, "init", "--bare", "--quiet", "remote.git")
        write(self._project / "api.py", "import os\n")
        git(self._project, "init", "--quiet", "-b", "main")
        git(self._project, "add", ".")
        git(self._project, "commit", "--quiet", "-m", "first")
        self._session = self._connect()

    async def run(self, length: int = LENGTH) -> Iterator[str]:
        """Do some actions; returns each with all that can be seen after it, and the history."""
        self._session.connect()
        steps = []
        for _ in range(length):
            action = self._random.choice(self._actions())
            try:
                done = await action()
            except (OuroError, OSError) as error:
                done = f"{type(error).__name__}: {error}"
            await self._session.settle()
            name = action.__name__.strip("_")
            steps.append(self._plain(f"{name}: {done or ''}\n{self._seen()}"))
        await self._close()
        steps.append(self._plain("\n".join(map(self._history, self._folders()))))
        return steps

    def _actions(self) -> list[Callable]:
        often = [self._remember, self._agent_writes, self._edit_by_hand]
        return [
            *often,
            *often,
            self._agent_writes_others_words,
            self._agent_runs_a_command,
            self._agent_commits,
            self._edit_during_a_turn,
            self._accept,
            self._accept,
            self._reject,
            self._undo,
            self._undo_hunk,
            self._forget,
            self._save_in_editor,
            self._kill,
            self._restart,
            self._sync,
            self._switch_branch,
            self._two_sessions,
            self._agent_writes_secret,
            self._turn_without_writes,
        ]

    # -- what the user does

    async def _remember(self) -> str:
        line = self._line()
        scope = self._random.choice(("user", "repo"))
        is_note = self._random.random() < 0.3
        category = "user-facts" if is_note else self._random.choice(_CORE)
        placed = Placement(line, scope, category, is_note, "drawn")
        entry, undo = await self._session.manager.with_editor(
            lambda editor: write_text(editor, placed)
        )
        return f"{entry.id} {bool(undo)}"

    async def _forget(self) -> str:
        def forget(editor) -> str:
            entries = all_entries(editor)
            chosen = sorted(entries, key=lambda entry: entry.text)[: self._random.randint(1, 2)]
            forget_entries(editor, chosen)
            return "; ".join(entry.text for entry in chosen)

        return await self._session.manager.with_editor(forget)

    async def _save_in_editor(self) -> str:
        name = f"{self._random.choice(('user', 'repo'))}/{self._random.choice(_CORE)}"

        def save(editor) -> str:
            opened = open_file(editor, name)
            kept = opened.text.splitlines()[: self._random.randint(0, 3)]
            return str(save_file(editor, opened, "\n".join([*kept, f"- {self._line()}"])).changed)

        return await self._session.manager.with_editor(save)

    async def _accept(self) -> str:
        return await self._answer(self._session.manager.accept)

    async def _reject(self) -> str:
        return await self._answer(self._session.manager.reject)

    async def _answer(self, answer: Callable) -> str:
        pending = self._session.manager.proposals()
        if not pending:
            return "nothing is pending"
        chosen = pending[self._random.randrange(len(pending))]
        await answer(chosen.id)
        return f"{chosen.origin} {[edit.name for edit in chosen.edits]}"

    async def _undo(self) -> str:
        return await self._undo_one(0)

    async def _undo_hunk(self) -> str:
        return await self._undo_one(1)

    async def _undo_one(self, hunk: int) -> str:
        stores = [store for store in self._session.manager.stores if store.repository.exists]
        commits = [commit for store in stores for commit in store.log(6)]
        if not commits:
            return "no commit"
        chosen = commits[self._random.randrange(len(commits))]
        done = await self._session.manager.undo(chosen.id, hunk)
        return f"{chosen.subject}: {len(done.edits)} edits, {len(done.conflicts)} conflicts"

    async def _edit_by_hand(self) -> None:
        """An editor, between turns; the next message of the user reads it."""
        self._edit_file()
        if self._random.random() < 0.7:
            await self._turn("And what next?")

    async def _switch_branch(self) -> str:
        """Of the project, or of memory's own repository."""
        folder = self._random.choice([self._project, *self._folders()])
        if not (folder / ".git").exists():
            return "no repository"
        name = self._random.choice(("main", "feature"))
        done = subprocess.run(
            ["git", "-C", str(folder), "switch", *(["-c"] if name != "main" else []), name],
            capture_output=True,
            check=False,
        )
        return f"{name} {done.returncode}"

    async def _restart(self) -> None:
        await self._close()
        self._session = self._connect().connect()

    async def _sync(self) -> str:
        """Another machine remembers something and sends it; then both are synchronized."""
        other = Conversation(self._other_home, session="s-laptop").connect()
        placed = Placement(self._line(), "user", self._random.choice(_CORE), False, "drawn")
        done = []
        for session in (other, self._session):
            try:
                if session is other:
                    await other.manager.with_editor(lambda editor: write_text(editor, placed))
                steps = sync_in_session(session.manager, "user", str(self._remote))
                done += [_shown(event) async for event in steps]
            except OuroError as error:
                done.append(str(error))
        await other.close()
        return "\n".join(done)

    # -- what the agent does

    async def _agent_writes(self) -> None:
        line = self._line()
        await self._turn(f"Remember: {line}.", lambda: self._append(line))

    async def _agent_writes_others_words(self) -> None:
        async def act() -> None:
            await self._session.read("README.md", "text from outside")
            await self._append(self._line())
            if self._random.random() < 0.3:
                await self._append("Look at the README")

        await self._turn("Look at the README.", act)

    async def _agent_writes_secret(self) -> None:
        await self._turn("Note the key.", lambda: self._append("The key is hunter2secret"))

    async def _agent_runs_a_command(self) -> None:
        folder = self._random.choice(self._folders())
        path, line = folder / f"{self._random.choice(_CORE)}.md", self._line()

        def act() -> None:
            write(path, (path.read_text() if path.exists() else "") + f"- {line}\n")

        said = line if self._random.random() < 0.5 else "Do it"
        command = {"command": f"sh tool.sh {path.name}"}
        await self._turn(said, lambda: self._session.call("shell", command, act=act))

    async def _agent_commits(self) -> None:
        line = self._line()

        async def act() -> None:
            folder = await self._append(line)
            if (folder / ".git").exists():
                await self._session.commit(folder)

        await self._turn(line, act)

    async def _edit_during_a_turn(self) -> None:
        line = self._line()

        async def act() -> None:
            self._edit_file()
            await self._append(line)
            if self._random.random() < 0.5:
                self._edit_file()

        await self._turn(line, act)

    async def _turn_without_writes(self) -> None:
        await self._turn("Only talk.")

    async def _kill(self) -> None:
        """ouro is killed in a turn, after the agent has written something."""
        line = self._line()
        said = line if self._random.random() < 0.6 else "Look at it."
        await self._session.begin(said)
        if self._random.random() < 0.5:
            await self._session.read("README.md", "text from outside")
        await self._append(line)
        self._session.kill()
        for task in self._session.tasks:
            task.cancel()
        self._session = self._connect().connect()

    async def _two_sessions(self) -> None:
        """Two sessions write into the same file; one turn ends before the other."""
        other = Conversation(
            self._home, self._project, session=f"s-other{self._number}", write=self._write
        ).connect()
        mine, theirs, folder = self._line(), self._line(), self._random.choice(self._folders())
        name = f"{self._random.choice(_CORE)}.md"
        await self._session.begin(mine)
        await other.begin(theirs if self._random.random() < 0.5 else "Look.")
        if self._random.random() < 0.5:
            await other.read("README.md", "text from outside")
        await self._append(mine, folder / name, self._session)
        await self._append(theirs, folder / name, other)
        for session in self._random.sample([self._session, other], 2):
            await session.end()
        await other.close()

    # -- the parts of these

    async def _turn(self, said: str, act: Callable | None = None) -> None:
        await self._session.begin(said)
        if act is not None:
            await act()
        await self._session.end()

    async def _append(
        self, line: str, path: Path | None = None, session: Conversation | None = None
    ) -> Path:
        """The agent adds a line with its file tool; returns the folder."""
        session = session or self._session
        folder = self._random.choice(self._folders())
        path = path or folder / f"{self._random.choice(_CORE)}.md"
        text = (path.read_text() if path.exists() else "") + f"- {line}\n"
        await session.write(path.name, text, path.parent)
        return path.parent

    def _edit_file(self) -> None:
        path = self._random.choice(self._folders()) / f"{self._random.choice(_CORE)}.md"
        lines = path.read_text().splitlines() if path.exists() else []
        how = self._random.choice(("append", "append", "remove", "first", "gone"))
        if how == "gone" and lines:
            path.unlink()
            return
        if how == "remove" and lines:
            del lines[self._random.randrange(len(lines))]
        else:
            lines.insert(0 if how == "first" else len(lines), f"- {self._line()}")
        write(path, "".join(f"{line}\n" for line in lines))

    def _line(self) -> str:
        self._number += 1
        return f"I like {self._random.choice(_SUBJECTS)} w{self._number}x"

    def _connect(self) -> Conversation:
        self._sessions += 1
        session, write_mode = f"s-{self._sessions}", self._write
        return Conversation(self._home, self._project, session=session, write=write_mode)

    async def _close(self) -> None:
        await self._session.close()

    def _folders(self) -> list[Path]:
        return [self._home / "memory", self._project / ".ouro" / "memory"]

    # -- what is on disk

    def _seen(self) -> str:
        # Sorted: a question is asked in its own task.
        found = sorted(_shown(event) for event in self._session.told)
        self._session.told.clear()
        for scope in self._session.scopes.values():
            found.append(f"{scope.name} trusts {dict(scope.texts)}, not {scope.untrusted}")
            found += [f"{scope.store.obstacle} {scope.store.plain_git}".strip()]
        for pending in self._session.manager.proposals():
            found.append(f"{pending.origin} waits: {pending.reason} {pending.sources}")
            found += [f"{edit.name}: {edit.before!r} -> {edit.after!r}" for edit in pending.edits]
        folders = [*self._folders(), self._home / "history.git"]
        paths = (path for folder in folders for path in folder.rglob("*"))
        files = [path for path in paths if path.is_file() and ".git" not in path.parts]
        files = [path for path in files if path.name != MARK]  # it names the version of ouro
        found += sorted(self._plain(self._file(path)) for path in sorted(files))
        return "\n".join(found)

    def _file(self, path: Path) -> str:
        name, data = str(path.relative_to(self.root)), path.read_bytes()
        text = data.decode(errors="backslashreplace")
        if path.suffix == ".md":
            self._contents[blob_id(data)] = _digest(self._plain(text))
        own = path.parent.name
        if own == "turns":
            text = ""
        elif "history.git" in name and (path.name in _UNCOMPARED or own == "common"):
            return name
        return f"== {name}\n{text}"

    def _history(self, folder: Path) -> str:
        """All commits with their files, and what plain git sees."""
        if not (folder / ".git").exists():
            return "no history"
        log = ("log", "--topo-order", "--root", "-m", "--raw", "--no-abbrev", "--no-renames")
        text = git(folder, *log, "--format=commit %H of %P by %an%n%B", "--all")
        for blob, data in self._blobs(folder, {*re.findall(r"\b[0-9a-f]{40}\b", text)}):
            self._contents[blob] = _digest(self._plain(data.decode(errors="replace")))
        lines = [text, git(folder, "ls-files", "-s"), git(folder, "status", "--short")]
        found: list[str] = []
        for is_sorted, group in groupby("\n".join(lines).splitlines(), _names_a_file):
            # git sorts by name, and the names of notes are random
            plain = map(self._plain, group)
            found += sorted(plain) if is_sorted else plain
        return "\n".join(found)

    def _blobs(self, folder: Path, ids: Set[str]) -> Iterator[tuple[str, bytes]]:
        """Those of the objects that are blobs, with their bytes."""
        given = "".join(f"{number}\n" for number in sorted(ids)).encode()
        command = ["git", "cat-file", "--batch"]
        done = subprocess.run(command, cwd=folder, input=given, capture_output=True, check=True)
        rest = done.stdout
        while rest:
            about, _, rest = rest.partition(b"\n")
            words = about.decode().split()
            if len(words) == 3:
                size = int(words[2])
                if words[1] == "blob":
                    yield words[0], rest[:size]
                rest = rest[size + 1 :]

    def _plain(self, text: str) -> str:
        """A text without what differs between two runs."""
        text = _TIME.sub("TIME", text.replace(str(self.root), "ROOT"))
        return _HEX.sub(lambda found: self._name_of(found[0]), text)

    def _name_of(self, number: str) -> str:
        if number in self._contents:
            return f"blob-{self._contents[number]}"
        known = next((full for full in self._names if full.startswith(number)), number)
        return self._names.setdefault(known, f"#{len(self._names)}")


def _shown(event: Event) -> str:
    match event:
        case CoreChanged():
            ends = f"{bool(event.undo)} {bool(event.proposal)}"
            return f"event {event.scope} {event.origin}: {event.summary} {ends}"
        case QuestionAsked():
            return f"question {event.question}"
        case Notice():
            return f"notice {event.level}: {event.text}"
    return type(event).__name__


def _names_a_file(line: str) -> bool:
    return line.startswith((":", "100644 "))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def record(seed: int) -> list[str]:
    """The steps of one sequence, each with what can be seen after it; the last is the history."""
    with tempfile.TemporaryDirectory() as root:
        return asyncio.run(Actions(Path(root), seed).run())


def digest_of(seed: int) -> str:
    return _digest("\n".join(record(seed)))


def leaves(seed: int, digest: str) -> bool:
    """Whether a sequence leaves the recorded bytes.

    A difference is looked at twice: git orders two lines of history by the second, so that a second
    that ends between two commits of a merge may change what the next undo is drawn from.
    """
    return any(digest_of(seed) == digest for _ in range(2))


def is_same_in(tree: Path, seed: int) -> bool:
    """Whether the ouro in another tree leaves the same bytes now; looked at twice, as in `leaves`."""
    command = [sys.executable, "-m", "fakes.memory_actions", "--show", str(seed)]
    there = {"cwd": tree / "tests", "env": {**os.environ, "PYTHONPATH": str(tree)}}
    for _ in range(2):
        with ThreadPoolExecutor(1) as other:
            shown = other.submit(subprocess.check_output, command, text=True, **there)
            if "\n\n".join(record(seed)).strip() == shown.result().strip():
                return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", type=int)
    parser.add_argument("--against", type=lambda name: Path(name).resolve(), metavar="TREE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, OURO_HOME=f"{home}/.ouro", GIT_TEMPLATE_DIR="")
        write(
            Path(home) / ".gitconfig",
            "[user]\n\tname = Test\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n",
        )
        if arguments.show is not None:
            print("\n\n".join(record(arguments.show)))
            return
        with ProcessPoolExecutor(2) as pool:
            if arguments.write:
                found = dict(enumerate(pool.map(digest_of, range(SEQUENCES), chunksize=5)))
                RECORDED.write_text(json.dumps(found, indent=0) + "\n")
                return
            recorded = json.loads(RECORDED.read_text())
            are_same = (
                pool.map(partial(is_same_in, arguments.against), range(SEQUENCES))
                if arguments.against
                else pool.map(leaves, range(SEQUENCES), recorded.values(), chunksize=5)
            )
            other = [seed for seed, is_same in zip(recorded, are_same, strict=True) if not is_same]
    print(f"{SEQUENCES - len(other)} sequences as recorded; others: {', '.join(other) or 'none'}")
    sys.exit(bool(other))


if __name__ == "__main__":
    main()
