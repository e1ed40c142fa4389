"""Evaluation: a folder of tasks with checks, run by each model with and without memory, as a batch."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ouro.batch.state import CHECKS, DONE, FAULT, BatchState, TaskResult
from ouro.batch.tasks import Batch, Task, make_task, task_fields
from ouro.errors import ConfigError, UsageError
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.git import Git
from ouro.utils.runtime import ensure_private_dir
from ouro.utils.yaml import EMPTY, YamlTable, parse_table, read_section, table_of

INSTRUCTION, FIELDS, FILES, TESTS = "instruction.md", "task.yaml", "files", "tests"
"""What the folder of a task holds: the prompt, fields of a batch task, the state of the repository,
and files that only the checks see.
"""
SETTINGS = "eval.yaml"
_DEFAULT_CHECK = f"sh {TESTS}/test.sh"
_RUNS, _REPOSITORIES = "runs.json", "repositories"
_Z = 1.96
"""Of a confidence of 95 %."""
_GIT_SECONDS = 60.0
_MAX_TASK, _MAX_ARM = 30, 24
"""Characters in the id of a run, which becomes a part of a branch."""
MemoryUse = Literal["none", "read"]


class EvalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`eval.yaml`: what holds for all tasks of the folder."""

    models: tuple[str, ...] = ("",)
    """Empty: the default model."""
    memory: tuple[MemoryUse, ...] = ("none",)
    repeats: int = 1
    defaults: dict[str, Any] = {}


class EvalRun(msgspec.Struct, frozen=True):
    """One run of one task: the id of its batch task, and what it belongs to."""

    id: str
    task: str
    model: str
    memory: MemoryUse
    repeat: int

    @property
    def arm(self) -> tuple[str, str]:
        return self.model, self.memory


class Evaluation(msgspec.Struct, frozen=True):
    batch: Batch
    runs: tuple[EvalRun, ...]
    states: dict[str, str]
    """Repositories that are made before the first run: folder -> the folder with their files."""


class Score(msgspec.Struct, frozen=True):
    """How often the checks passed; runs that ended by a fault of the world do not count."""

    passed: int
    counted: int
    faults: int
    missing: int
    cost: float | None
    """Dollars of all runs; None: a price is unknown."""
    seconds: float
    """The mean of one run."""
    tokens: float
    low: float
    high: float
    """The interval of Wilson, 95 %."""

    @property
    def rate(self) -> float:
        return self.passed / self.counted if self.counted else 0.0


def read_evaluation(folder: Path, state: Path, given: EvalSettings | None = None) -> Evaluation:
    """The runs of a folder: each task, by each model, with each use of memory, `repeats` times.

    Args:
        given: what the command line says instead of `eval.yaml`: fields that are not the default.

    Raises:
        ConfigError: a task is wrong, or has nothing that says whether it succeeded.
    """
    settings = _merged(_read_settings(folder), given)
    places = [path for path in sorted(_subfolders(folder)) if _is_task(path)]
    if not places:
        hint = f"Each task is a folder with {INSTRUCTION} or {FIELDS}."
        raise ConfigError(f"{folder} holds no tasks.", hint)
    states: dict[str, str] = {}
    tasks: list[Task] = []
    runs: list[EvalRun] = []
    arms = _arm_names(settings)
    for place in places:
        task = _read_place(place, settings, state, states)
        for (model, memory), arm in arms.items():
            for repeat in range(1, settings.repeats + 1):
                run = EvalRun(f"{place.name}.{arm}.{repeat}", place.name, model, memory, repeat)
                runs.append(run)
                tasks.append(replace(task, id=run.id, model=model or task.model, memory=memory))
    return Evaluation(Batch(_batch_name(folder), tuple(tasks)), tuple(runs), states)


def prepare(evaluation: Evaluation, state: BatchState) -> None:
    """Write the state, and make the repositories that are not there yet. Blocks.

    Raises:
        UsageError: the state is that of other tasks.
        OSError, GitError: a repository cannot be made.
    """
    state.begin(evaluation.batch)
    write_private(state.folder / _RUNS, msgspec.json.encode(evaluation.runs))
    for target, source in evaluation.states.items():
        if not (Path(target) / ".git").is_dir():
            _make_repository(Path(target), Path(source))


def read_runs(state: BatchState) -> tuple[EvalRun, ...]:
    """The runs of a state. Raises UsageError: it is not that of an evaluation."""
    try:
        data = (state.folder / _RUNS).read_bytes()
        return decode_json(data, tuple[EvalRun, ...])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{state.folder} is not the state of an evaluation.") from error


def score(runs: Sequence[EvalRun], results: dict[str, TaskResult]) -> Score:
    ended = [results[run.id] for run in runs if run.id in results]
    counted = [result for result in ended if not _is_fault(result)]
    passed = sum(result.outcome == DONE for result in counted)
    low, high = wilson(passed, len(counted))
    costs = [result.cost for result in ended if result.answer.turns]
    known = [cost for cost in costs if cost is not None]
    return Score(
        passed,
        len(counted),
        len(ended) - len(counted),
        len(runs) - len(ended),
        sum(known) if len(known) == len(costs) else None,
        _mean(result.seconds for result in counted),
        _mean(result.answer.tokens for result in counted),
        low,
        high,
    )


def wilson(passed: int, count: int) -> tuple[float, float]:
    """The interval of Wilson (1927) for a share, at 95 %; all of 0 to 1 without a run."""
    if not count:
        return 0.0, 1.0
    share, square = passed / count, _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    spread = math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    half = _Z * spread / (1 + square / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def _is_fault(result: TaskResult) -> bool:
    """Whether the world is to blame: the run says nothing about the model. A run that ended at a
    limit, or without an answer after calls, does.
    """
    if result.outcome in (DONE, CHECKS):
        return False
    return result.outcome == FAULT or not result.answer.turns


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _read_settings(folder: Path) -> EvalSettings:
    path = folder / SETTINGS
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.", "Name a folder of tasks.")
    if not path.is_file():
        return EvalSettings()
    table = _read_file(path)
    defaults = table.entries.get("defaults", EMPTY)
    rest = {key: node for key, node in table.entries.items() if key != "defaults"}
    try:
        settings = read_section(table._replace(entries=rest), EvalSettings, str(path))
        fields = task_fields(table_of(defaults, str(path), "defaults"), str(path), "defaults")
    except ConfigError as error:
        hint = "`ouro help evaluation` has the format."
        raise ConfigError(error.message, error.hint or hint) from error
    return replace(settings, defaults=fields)


def _merged(read: EvalSettings, given: EvalSettings | None) -> EvalSettings:
    if given is None:
        return read
    standard = EvalSettings()
    own = {name: getattr(given, name) for name in ("models", "memory", "repeats")}
    changed = {name: value for name, value in own.items() if value != getattr(standard, name)}
    merged = replace(read, **changed)
    if not merged.models or not merged.memory or merged.repeats < 1:
        raise ConfigError("An evaluation needs a model, a use of memory and one repeat at least.")
    return merged


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _is_task(place: Path) -> bool:
    return (place / INSTRUCTION).is_file() or (place / FIELDS).is_file()


def _read_place(place: Path, settings: EvalSettings, state: Path, states: dict[str, str]) -> Task:
    """The task of a folder. Raises ConfigError."""
    if not re.fullmatch(rf"\w[\w.-]{{0,{_MAX_TASK - 1}}}", place.name):
        hint = f"Use letters, digits, `-`, `_` and `.`, at most {_MAX_TASK}."
        raise ConfigError(f"{place}: this name cannot be part of a branch.", hint)
    values: dict[str, Any] = {**settings.defaults, **_read_fields(place / FIELDS)}
    taken = {"id", "memory"} & set(values)
    if taken:
        raise ConfigError(f"{place}: {', '.join(sorted(taken))} cannot be set for one task.")
    values |= _files_of(place)
    if (place / FILES).is_dir():
        target = (state / _REPOSITORIES / place.name).resolve()
        states[str(target)] = str((place / FILES).resolve())
        values["repo"] = str(target)
    _demand_check_and_repository(place, values)
    return make_task(values, place / FIELDS, str(place))


def _files_of(place: Path) -> dict[str, Any]:
    """The fields that files of a task's folder stand for."""
    found: dict[str, Any] = {}
    if (place / INSTRUCTION).is_file():
        found["prompt"] = (place / INSTRUCTION).read_text("utf-8")
    if (place / TESTS).is_dir():
        found["tests"] = TESTS
    return found


def _demand_check_and_repository(place: Path, values: dict[str, Any]) -> None:
    """Let `tests/test.sh` be the check if there is no other. Raises ConfigError."""
    if "tests" in values:
        values.setdefault("checks", (_DEFAULT_CHECK,))
    if not values.get("checks") and not values.get("answer_schema"):
        hint = f"Write {TESTS}/test.sh, or `checks:` or `schema:` in {FIELDS}."
        raise ConfigError(f"{place}: nothing says whether it succeeded.", hint)
    if "repo" not in values:
        raise ConfigError(f"{place}: it has no repository.", f"Add {FILES}/, or `repo:`.")


def _read_fields(path: Path) -> dict[str, Any]:
    return task_fields(_read_file(path), str(path)) if path.is_file() else {}


def _read_file(path: Path) -> YamlTable:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    return parse_table(text, str(path))


def _arm_names(settings: EvalSettings) -> dict[tuple[str, MemoryUse], str]:
    """A short name of each arm, for the ids of its runs."""
    names: dict[tuple[str, MemoryUse], str] = {}
    for model in dict.fromkeys(settings.models):
        last = model.rstrip("/").rpartition("/")[2] or "default"
        short = re.sub(r"[^\w-]+", "-", last).strip("-")[:_MAX_ARM] or "model"
        for memory in dict.fromkeys(settings.memory):
            name = short if memory == "none" else f"{short}-memory"
            number = sum(taken.startswith(name) for taken in names.values())
            names[model, memory] = name if name not in names.values() else f"{name}-{number + 1}"
    return names


def _batch_name(folder: Path) -> str:
    name = re.sub(r"[^\w.-]+", "-", folder.resolve().name).strip("-.")[:40]
    return f"eval-{name}" if name else "eval"


def _make_repository(target: Path, source: Path) -> None:
    """A repository with one commit of these files."""
    new = target.with_name(f"{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    ensure_private_dir(target.parent)
    shutil.copytree(source, new, symlinks=True)
    Git(new, _GIT_SECONDS).begin("Begin")
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
