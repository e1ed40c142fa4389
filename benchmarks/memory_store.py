"""The git store of long-term memory: the cost of a start, a commit, the end of a turn and a long
history.

python -m benchmarks.memory_store --runs 30
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import timed
from ouro.assemble import Options, opener
from ouro.events import Replied, TurnFinished
from ouro.llm import ScriptedModel, call
from ouro.memory.long_term import GitMemoryStore
from ouro.session import OpenRequest

TOKENS = 5_000
SEVERAL = (0, 1_000, 10_000)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    print(f"{'commits before':>15} {'what':<46} {'median':>8} {'lowest':>8} {'highest':>8}   (ms)")
    for commits in SEVERAL:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), commits, runs)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OURO_HOME"] = f"{folder}/home"
        project = Path(folder, "project")
        project.mkdir()
        print_row(
            0, "from the last answer to the end of the turn", asyncio.run(turn_ends(project, runs))
        )


def measure(folder: Path, commits: int, runs: int) -> None:
    """Print the figures for a history of that many commits."""
    stores = [with_history(folder / scope, commits) for scope in ("user", "repo")]
    user = stores[0]

    def load() -> None:
        # New objects, as at a start.
        for store in stores:
            GitMemoryStore(store.folder, store.scope, store.repository.state_dir).load_all()

    loaded = user.load_all()
    numbers = iter(range(1_000_000))
    print_row(commits, f"load both scopes, {TOKENS:,} tokens each", timed(load, runs)[0])
    print_row(
        commits, "check for changes", timed(lambda: user.has_changed_since_load(loaded), runs)[0]
    )
    print_row(
        commits,
        "write and commit",
        timed(lambda: user.rewrite("facts.md", add_line(next(numbers)), "Learn"), runs)[0],
    )
    print_row(commits, "find edits from outside", timed(user.outside_edits, runs)[0])
    print_row(commits, "the last 50 commits", timed(user.log, runs)[0])
    size = disk_usage(user.repository.git_dir)
    began = time.perf_counter()
    user.repository.pack()
    packed = disk_usage(user.repository.git_dir)
    took = 1000 * (time.perf_counter() - began)
    print(
        f"{commits:>15,} packing loose objects: {took:.0f} ms, {size / 1e6:.1f} MB ->"
        f" {packed / 1e6:.1f} MB\n"
    )


async def turn_ends(project: Path, runs: int) -> list[float]:
    """Milliseconds from the last answer of a turn that wrote memory to its end, without the first
    turn.
    """
    facts = Path(os.environ["OURO_HOME"], "memory", "facts.md")
    learned = (
        call("write", path=str(facts), content=f"- Fact {number}.\n") for number in range(runs + 1)
    )
    model = ScriptedModel([step for write in learned for step in (write, "Noted.")])
    session = await opener(Options(project, {"permissions.mode": "auto"}, ready_model=model))(
        OpenRequest()
    )
    figures = []
    for number in range(runs + 1):
        async for event in session.send(f"Fact {number}."):
            if isinstance(event, Replied):
                began = time.perf_counter()
            elif isinstance(event, TurnFinished):
                figures.append(1000 * (time.perf_counter() - began))
    await session.close()
    return figures[1:]


def with_history(folder: Path, commits: int) -> GitMemoryStore:
    """A store with a packed history of that many commits."""
    store = GitMemoryStore(folder / "memory", "user", folder / "history.git")
    line = "- It was decided to keep this line as it is, for the measure.\n"
    text = line * int(TOKENS * 3.5 / 3 / len(line))
    store.ensure_repo()
    lines = []
    for number in range(commits):
        body = f"{text}- fact {number}\n"
        lines.append(
            f"commit refs/heads/main\ncommitter ouro <ouro@localhost> {1_700_000_000 + number}"
            f" +0000\ndata 5\nLearn\nM 100644 inline facts.md\ndata {len(body)}\n{body}\n"
        )
    git = ["git", f"--git-dir={store.repository.git_dir}", "fast-import", "--quiet"]
    subprocess.run(git, input="".join(lines).encode(), check=True)
    store.save_and_commit(
        {f"{name}.md": text for name in ("decisions", "preferences", "facts")}, "Begin"
    )
    store.accept(store.get_current_head())
    return store


def disk_usage(folder: Path) -> int:
    """Bytes on disk of the files below a folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def add_line(number: int) -> Callable[[str], str]:
    """A change that adds one line."""
    return lambda text: f"{text}- fact {number}\n"


def print_row(commits: int, what: str, figures: list[float]) -> None:
    """Print one line of the table."""
    print(
        f"{commits:>15,} {what:<46} {statistics.median(figures):8.1f} {min(figures):8.1f}"
        f" {max(figures):8.1f}"
    )


if __name__ == "__main__":
    main()
