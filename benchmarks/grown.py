"""Rows of `benchmarks.compare` about ouro with much work behind it: notes, sessions, files, a large
diff.

Each row has a home of its own, which is made at its first run and kept for the next. Other programs
have no notes, and nobody but they can write their sessions: these rows are of ouro, those of
`search` beside ripgrep.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import subprocess
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.generate_sessions import generate
from benchmarks.programs import Program, ouro
from benchmarks.terminal import Terminal, spent_since, used_cpu
from ouro.memory.index import Index, MemoryFolder, Sources, Vectors
from ouro.memory.index.embeddings import LOCAL_NAME
from ouro.memory.long_term.store import user_store
from ouro.safety import Workspace
from ouro.tools.glob import Glob, GlobArgs
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs, find_ripgrep

if TYPE_CHECKING:
    from fakes.model_server import Reply, Request
    from numpy.typing import NDArray

NOTES = 10_000
NOTES_OF_HEADLESS = (0, 1_000, NOTES, 50_000)
_LENGTH_OF_VECTORS = 384
SESSIONS = 10_000
LINES = 5_000
_AGE = re.compile(r" \d+ (?:min|h|d) ")
"""The age of a session in the picker: ` 3 h `."""
NOTE = (
    "The service number {0} of the mail queue listens on port {0}. "
    + "It was decided to keep this as it is. " * 9
)


def notes(program: Program) -> None:
    """A headless answer with each number of notes; with 10,000 also messages on the screen, and the
    commands that list, count and search them.
    """
    if program.name != "ouro":
        return
    for count in NOTES_OF_HEADLESS:
        with_notes = _grown(program, f"notes-{count}", partial(_write_notes, count=count))
        _time_headless(program, with_notes, f"{count:,} notes")
    with_notes = _grown(program, f"notes-{NOTES}", partial(_write_notes, count=NOTES))
    _time_messages(program, with_notes)
    for words in (["memory", "list"], ["memory", "stats"], ["memory", "search", "port 4711"]):
        took = _run(with_notes, [*with_notes.screen, *words])
        program.note(f"{' '.join(words[:2])} ms", took)


def _time_headless(program: Program, with_notes: Program, name: str) -> None:
    """A headless answer, from exec to the first request and to the end, by the clock and in CPU of
    its processes. The question is about one of the notes.
    """
    at_request: list[float] = []
    program.server.begin(
        before_answer=lambda: at_request.append(sum(used_cpu(with_notes.home).values()))
    )
    before, began = os.times(), time.monotonic()
    took = _run(with_notes, [*with_notes.headless, "Which service listens on port 4711?"])
    after = os.times()
    spent = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    request = program.server.asked[0].came - began
    program.note(f"{name}: headless, first request ms", request * 1000)
    program.note(f"{name}: headless, CPU to the first request ms", at_request[0] * 1000)
    program.note(f"{name}: headless, start to answer ms", took)
    program.note(f"{name}: headless, CPU ms", spent * 1000)


def _time_messages(program: Program, with_notes: Program) -> None:
    """On the screen, from Enter to the request, the first message of a session and the second: both
    are compared with the notes.
    """
    terminal = Terminal(with_notes.screen, with_notes.full_environment(), with_notes.work)
    terminal.after(lambda screen: "Ask for anything" in screen, 30)
    _read(terminal, 3.0)
    for number, name in enumerate(("first", "second")):
        program.server.begin()
        terminal.send(f"Which service listens on port {4711 + number}?")
        _read(terminal, 1.0)
        began = time.monotonic()
        terminal.send("\r")
        while not program.server.asked and time.monotonic() < began + 20:
            _read(terminal, 0.005)
        came = program.server.asked[0].came
        program.note(f"Enter to {name} request with notes ms", (came - began) * 1000)
        _read(terminal, 7.0)  # the model of the vectors leaves the memory meanwhile
    terminal.close()


def sessions(program: Program) -> None:
    """With 10,000 sessions: the list of a command, and the picker on the screen."""
    if program.name != "ouro":
        return
    grown = _grown(program, "sessions", _write_sessions)
    program.note("sessions list ms", _run(grown, [*grown.screen, "sessions", "list"]))
    terminal = Terminal([*grown.screen, "--resume"], grown.full_environment(), grown.work)
    picker = terminal.after(_shows_sessions, 30)
    terminal.close()
    program.note("session picker from exec ms", picker)
    terminal = Terminal(grown.screen, grown.full_environment(), grown.work)
    terminal.after(lambda screen: "Ask for anything" in screen, 30)
    _read(terminal, 2.0)
    terminal.send("/resume")
    _read(terminal, 0.5)
    began = time.monotonic()
    terminal.send("\r")
    if terminal.after(_shows_sessions, 30):
        program.note("/resume, first page ms", (terminal.arrived - began) * 1000)
    terminal.close()


def diff(program: Program) -> None:
    """A question with the diff of a whole file of 5,000 lines, from Enter of the second message on:
    a read, two requests, and the question on the screen.
    """
    if program.name != "ouro":
        return
    from fakes.model_server import ModelServer  # `benchmarks.terminal` makes it importable

    with ModelServer(_rewrite_big_file) as server:
        grown = _grown(program, "diff", _write_big_file)
        _name_server(grown, server.openai_url)
        terminal = Terminal(grown.screen, grown.full_environment(), grown.work)
        terminal.after(lambda screen: "Ask for anything" in screen, 30)
        for text, seconds in (("hello\r", 3.0), ("rewrite it", 0.5)):
            terminal.send(text)
            _read(terminal, seconds)
        before, began = used_cpu(grown.home), time.monotonic()
        terminal.send("\r")
        if terminal.after(lambda screen: "Allow?" in screen, 30):
            program.note("question with a large diff ms", (terminal.arrived - began) * 1000)
            program.note("the same, CPU ms", 1000 * spent_since(before, grown.home))
        terminal.close()


def search(program: Program) -> None:
    """glob and grep in 50,000 files, and ripgrep with the same question."""
    if program.name != "ouro":
        return
    from benchmarks.compare import many_files

    folder = many_files(program)
    rg = [str(find_ripgrep()), "--hidden", "-g", "!.git"]
    by_time = [*rg, "--files", "--sortr", "modified"]
    glob, grep = Glob(Workspace(folder)), Grep(Workspace(folder))
    for pattern in ("*.py", "**/file99*.py"):
        ours = partial(glob.run, GlobArgs(pattern), None)
        program.note(f"glob {pattern} ms", _time_tool(ours))
        program.note(f"rg {pattern} ms", _run(program, [*by_time, "-g", pattern], cwd=folder))
    ours = partial(grep.run, GrepArgs("value = 4711", glob="*.py"), None)
    program.note("grep with a glob ms", _time_tool(ours))
    same = [*rg, "--json", "-g", "*.py", "value = 4711"]
    program.note("rg with a glob ms", _run(program, same, cwd=folder))


def _grown(program: Program, name: str, fill: Callable[[Program], None]) -> Program:
    """ouro with a home of its own, which `fill` fills at the first call."""
    home = program.home.parent / f"ouro-{name}"
    is_new = not home.exists()
    (home / "work").mkdir(parents=True, exist_ok=True)
    if is_new:
        subprocess.run(["git", "init", "-q", str(home / "work")], check=True)
        fill(ouro(home, program.server.url, Path()))
    return dataclasses.replace(
        program, home=home, environment={"OURO_HOME": str(home / ".ouro")}, figures={}
    )


def _write_notes(program: Program, count: int) -> None:
    """Write the notes as files, accept them, and index them with vectors. The vectors are random:
    the model would take an hour for 50,000, and a search takes as long with any.
    """
    folder = program.home / ".ouro/memory"
    folder.mkdir()
    for number in range(count):
        (folder / f"mem_{number:08x}.md").write_text(NOTE.format(number) + "\n")
    if not count:
        return
    _run(program, [*program.screen, "memory", "accept"])
    store = user_store(folder, program.home / ".ouro/history.git", lambda _text: "")
    sources = Sources(None, (MemoryFolder.of(store, store.load_all()),))
    index = Index(program.home / ".ouro/cache/index.db")
    index.update(sources)
    vectors = Vectors(index, _RandomVectors())
    vectors.fill_all()
    vectors.store_signs()
    index.close()
    (
        program.home / ".ouro/cache/index.db.vectors"
    ).touch()  # as the process that makes vectors does
    _run(program, [*program.headless, "hello"])  # records the listing for the next start


class _RandomVectors:
    """An embedder that counts as the local one."""

    name = LOCAL_NAME

    def __init__(self) -> None:
        self._random = np.random.default_rng(4711)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self._random.normal(size=(len(texts), _LENGTH_OF_VECTORS)).astype(np.float32)
        lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / lengths

    def prepare(self) -> None:
        """Do nothing: there is no model to load."""

    def close(self) -> None: ...


def _write_sessions(program: Program) -> None:
    """Write the sessions, and list them once: that makes their index."""
    generate(program.home / ".ouro/sessions", SESSIONS, project=str(program.work))
    _run(program, [*program.screen, "sessions", "list"])


def _write_big_file(program: Program) -> None:
    """Write the file that the model rewrites."""
    (program.work / "big.txt").write_text("".join(f"old line {n} of text\n" for n in range(LINES)))


def _name_server(program: Program, url: str) -> None:
    """Write settings that name the server of this run."""
    models = program.home / ".ouro/models.yaml"
    models.write_text(
        f"default: openai/bench\nmodels:\n  openai/bench: {{api_base: {url}, api_key: k, window:"
        " 100000}\n"
    )


def _rewrite_big_file(request: Request) -> Reply:
    """The answers of the model: greet, read the file, rewrite it."""
    from fakes.model_server import Call, Reply

    roles = [message["role"] for message in request.body["messages"]]
    if not request.body.get("tools") or roles.count("user") == 1:
        return Reply("Hello.")
    results = roles.count("tool")
    if results == 0:
        return Reply("", [Call("read", {"path": "big.txt"})])
    text = "".join(f"new line {n} of text\n" for n in range(LINES))
    return Reply("", [Call("write", {"path": "big.txt", "content": text})])


def _shows_sessions(screen: str) -> bool:
    """Whether a list of generated sessions is on the screen."""
    return len(_AGE.findall(screen)) >= 5


def _read(terminal: Terminal, seconds: float) -> None:
    """Draw what the program writes for some time."""
    terminal.after(lambda _: False, seconds)


def _run(program: Program, command: list[str], *, cwd: Path | None = None) -> float:
    """Milliseconds of a command with the environment of a program."""
    began = time.monotonic()
    subprocess.run(
        command,
        check=True,
        cwd=cwd or program.work,
        env=program.full_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    return (time.monotonic() - began) * 1000


def _time_tool(run: Callable[[], Coroutine[Any, Any, object]]) -> float:
    """Milliseconds of one run of a tool."""
    began = time.monotonic()
    asyncio.run(run())
    return (time.monotonic() - began) * 1000
