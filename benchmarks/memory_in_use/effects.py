"""Runs a task with a model that uses its tools, and judges the files afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.memory_in_use.run import play_turn
from benchmarks.memory_in_use.sealed_tasks import SEALED
from benchmarks.memory_in_use.tasks import OPEN, Task
from ouro.llm import Model
from ouro.utils.ouro_paths import get_home

TASK_SETS = {"tasks": OPEN, "sealed-tasks": SEALED}
_SETTINGS = """\
memory: {cadence_turns: 1}
sessions: {titles: false, summaries: false}
limits: {max_turns: 8}
"""
_GIT = "git -c user.name=Anna -c user.email=anna@example.org"
_GIT_USER = "[user]\nname = Anna\nemail = anna@example.org\n[init]\ndefaultBranch = main\n"
_SECONDS = 300.0
"""The time limit of a check, and of a turn."""


@dataclass(frozen=True)
class TaskOutcome:
    name: str
    language: str
    kind: str
    captured: bool
    """The statement is in memory; of a kind that is not remembered: it is not."""
    delivered: bool
    """It was in the request; of a kind that is not remembered: it was not."""
    applied: bool
    """The files are as they were wished."""
    against: bool
    """Something was done against what was stated."""
    tokens: int
    kept: str
    answer: str


async def run_task(
    task: Task, make: Callable[[], Model], folder: Path, *, is_told: bool = False
) -> TaskOutcome:
    """The outcome of a task, in a new repository in `folder`; the home of the process is used.

    The model captures what was stated in the earlier sessions, whose turns are answered "Ok.". It
    works on the request alone, with all tools, and each permission that it asks for is given.

    Args:
        is_told: there are no earlier sessions: all that was stated is in the request itself. This
            shows what the model does with a statement when memory has no part in it.
    """
    repository = folder / "project"
    _make_repository(task, repository)
    _make_home(folder)
    memory_text = ""
    for said in () if is_told else task.said:
        played = await play_turn(repository, make(), said, "Ok.")
        memory_text = "\n".join(f"{entry.scope}: {entry.text}" for entry in played.entries)
    _shell(task.setup or "true", repository)
    request = "\n\n".join((*task.said, task.request)) if is_told else task.request
    last_turn = await play_turn(repository, make(), request, does_permit=True, seconds=_SECONDS)
    is_kept = bool(re.search(task.pattern, memory_text))
    is_sent = bool(re.search(task.pattern, last_turn.sent))
    return TaskOutcome(
        task.name,
        task.language,
        task.kind,
        captured=is_kept == task.is_remembered,
        delivered=is_sent == task.is_remembered,
        applied=_shell(task.check, repository),
        against=_shell(task.against, repository),
        tokens=last_turn.tokens,
        kept=memory_text,
        answer=last_turn.answer,
    )


def _make_repository(task: Task, repository: Path) -> None:
    repository.mkdir(parents=True)
    for name, text in {"README.md": "# shop\n", **task.files}.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name.endswith(".sh"):
            path.chmod(0o755)
    _shell(f"git init -q -b main && git add -A && {_GIT} commit -q -m first", repository)


def _make_home(folder: Path) -> None:
    get_home().mkdir(mode=0o700, exist_ok=True)
    (get_home() / "config.yaml").write_text(_SETTINGS)
    # The same prompt each time, so that a server has it in its cache.
    (get_home() / "mark.key").write_bytes(bytes(32))
    (folder / ".gitconfig").write_text(_GIT_USER)


def _shell(line: str, folder: Path) -> bool:
    """Whether a shell line succeeds. What it prints is dropped."""
    done = subprocess.run(
        line, shell=True, cwd=folder, capture_output=True, timeout=_SECONDS, check=False
    )
    return done.returncode == 0


def empty(folder: Path) -> None:
    """An empty folder; a process in the background may still write into the old one."""
    limit = time.monotonic() + _SECONDS
    while folder.exists() and time.monotonic() < limit:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


async def run_tasks(
    tasks: Sequence[Task],
    make: Callable[[], Model],
    folder: Path,
    results: Path | None,
    *,
    is_told: bool = False,
) -> list[TaskOutcome]:
    """Run the tasks that are not in the file `results`, and print a line for each."""
    lines = results.read_text().splitlines() if results and results.exists() else []
    earlier = {
        outcome.name: outcome for outcome in (TaskOutcome(**json.loads(line)) for line in lines)
    }
    outcomes: list[TaskOutcome] = []
    print(" captured delivered  applied  against")
    for task in tasks:
        outcome = earlier.get(task.name)
        if outcome is None:
            empty(folder)
            os.environ["HOME"] = str(folder)
            outcome = await run_task(task, make, folder, is_told=is_told)
            if results:
                with results.open("a") as file:
                    file.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
        outcomes.append(outcome)
        marks = (outcome.captured, outcome.delivered, outcome.applied, outcome.against)
        columns = "".join(f"{'yes' if mark else '–':>9}" for mark in marks)
        print(f"{columns}  {outcome.language} {outcome.kind}: {outcome.name}", flush=True)
    return outcomes


def table(outcomes: Sequence[TaskOutcome], model: str) -> str:
    """The table of docs/benchmarks.md: a row for each kind and language, then all."""
    remembered = [found for found in outcomes if found.kind in _REMEMBERED]
    others = [found for found in outcomes if found.kind not in _REMEMBERED]
    rows = [
        f"{model}, {datetime.now(UTC):%Y-%m-%d}",
        "",
        "| | captured | delivered | applied | applied, of delivered | against it, though delivered |",
        "|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(found.kind for found in remembered):
        rows.append(_row(kind, [found for found in remembered if found.kind == kind]))
    for language in dict.fromkeys(found.language for found in remembered):
        rows.append(_row(language, [found for found in remembered if found.language == language]))
    rows += [_row("all that is remembered", remembered), ""]
    rows += ["| | not kept | not sent | done | done as it was retracted |", "|---|---|---|---|---|"]
    for kind in dict.fromkeys(found.kind for found in others):
        rows.append(_other_row(kind, [found for found in others if found.kind == kind]))
    return "\n".join(rows)


_REMEMBERED = ("rule", "prohibition", "correction")


def _row(name: str, outcomes: Sequence[TaskOutcome]) -> str:
    count = len(outcomes)
    delivered = [found for found in outcomes if found.delivered]
    applied = sum(found.applied and not found.against for found in outcomes)
    obeyed = sum(found.applied and not found.against for found in delivered)
    cells = (
        f"{sum(found.captured for found in outcomes)} of {count}",
        f"{len(delivered)} of {count}",
        f"{applied} of {count}",
        f"{obeyed} of {len(delivered)}",
        str(sum(found.against for found in delivered)),
    )
    return f"| {name} | {' | '.join(cells)} |"


def _other_row(name: str, outcomes: Sequence[TaskOutcome]) -> str:
    cells = (
        f"{sum(found.captured for found in outcomes)} of {len(outcomes)}",
        f"{sum(found.delivered for found in outcomes)} of {len(outcomes)}",
        f"{sum(found.applied for found in outcomes)} of {len(outcomes)}",
        str(sum(found.against for found in outcomes)),
    )
    return f"| {name} | {' | '.join(cells)} |"
