"""Counts calls, because growth is guarded by counts, not by clocks: of given functions, and of all
functions of a package that an action enters, with the deepest chain, and the objects that a chain
goes through.

From tests/: `python -m fakes.entered_functions` prints them for one remembered line, path by path;
`--chain` with that chain and these objects, `--all` with all functions.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

from fakes.files import git

PACKAGE = f"{os.sep}ouro{os.sep}memory{os.sep}long_term{os.sep}"


class Entered(msgspec.Struct):
    functions: Counter[str] = msgspec.field(default_factory=Counter)
    """Module and name -> number of calls."""
    chain: list[str] = []
    """The deepest chain of calls within the package, the outermost first."""
    objects: list[str] = []
    """The objects that a chain goes through, of the chain with most; for a function its module."""

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not (name := _function_name(frame.f_code)):
            return
        self.functions[name] += 1
        chain: list[str] = []
        objects: list[str] = []
        above: FrameType | None = frame
        while above is not None:
            if name := _function_name(above.f_code):
                chain.append(name)
                owner = _owner(above, name)
                if objects[-1:] != [owner]:
                    objects.append(owner)
            above = above.f_back
        if len(chain) > len(self.chain):
            self.chain = chain[::-1]
        if len(objects) > len(self.objects):
            self.objects = objects[::-1]


def _function_name(code: CodeType) -> str:
    """Empty for code of other packages, and for what has no name: comprehensions, generators,
    lambdas, modules.
    """
    module = code.co_filename.rpartition(PACKAGE)[2]
    if PACKAGE not in code.co_filename or code.co_name.startswith("<"):
        return ""
    return f"{module.removesuffix('.py')}: {code.co_qualname}"


def _owner(frame: FrameType, name: str) -> str:
    """The class of the object whose method runs; of a function its module."""
    if "self" in frame.f_code.co_varnames and "self" in frame.f_locals:
        return type(frame.f_locals["self"]).__name__
    return name.partition(":")[0]


@contextmanager
def entered() -> Iterator[Entered]:
    """What is entered inside this context, in this thread and in threads that begin meanwhile."""
    found = Entered()
    threading.setprofile(found.note)
    sys.setprofile(found.note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


async def remembered_lines(root: Path) -> dict[str, Entered]:
    """One line remembered on each path, in a memory that has some already: path -> what was
    entered.
    """
    from fakes.knowledge import Conversation, editor_of
    from ouro.memory.long_term import remember_text

    home, project = root / ".ouro", root / "project"
    project.mkdir()
    git(project, "init", "--quiet")
    session = Conversation(home, project).connect()

    async def remember(text: str) -> None:
        await session.manager.with_editor(lambda editor: remember_text(editor, text))

    async def write(line: str) -> None:
        await session.begin(f"{line}.")
        await session.write("preferences.md", f"{_text(session.folder)}- {line}\n")
        await session.end()

    async def outside_of_a_session() -> None:
        remember_text(editor_of(home, project), "user I like pears")

    for text in ("user I like tea", "repo The harbour is at Oslo"):
        await remember(text)
    await write("I like plums")
    paths: dict[str, Callable[[], Awaitable[None]]] = {
        "/remember, a line of the core": lambda: remember("user I like coffee more than sun"),
        "/remember, a note": lambda: remember("api.py is made from api.tmpl"),
        "the agent writes a line in its turn": lambda: write("I like green apples"),
        "ouro memory remember": outside_of_a_session,
    }
    found = {}
    for name, act in paths.items():
        # A thread is profiled if it begins inside the context.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with entered() as found[name]:
            await act()
    await session.close()
    return found


def _text(folder: Path) -> str:
    path = folder / "preferences.md"
    return path.read_text() if path.exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chain", action="store_true")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        os.environ.update(HOME=root, OURO_HOME=f"{root}/.ouro")
        for path, found in asyncio.run(remembered_lines(Path(root))).items():
            counts = f"{len(found.chain):3} floors, {len(found.objects)} objects"
            print(f"{len(found.functions):4} functions, {counts}: {path}")
            for name in (*found.chain, " > ".join(found.objects)) if arguments.chain else ():
                print(f"       {name}")
            for name, count in sorted(found.functions.items()) if arguments.all else ():
                print(f"  {count:4} {name}")


@contextmanager
def counted_calls(*functions: Callable[..., Any]) -> Iterator[Counter[str]]:
    """The number of calls of these functions in this thread, by their names."""
    codes = {function.__code__: function.__qualname__ for function in functions}
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code in codes:
            counts[codes[frame.f_code]] += 1

    sys.setprofile(note)
    try:
        yield counts
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    main()
