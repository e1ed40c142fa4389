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
from ouro.errors import ConfigError
from ouro.utils.files import write_private
from ouro.utils.git import Git
from ouro.utils.ouro_paths import ensure_private_dir
from ouro.utils.yaml import parse_table, read_section, table_of
from ouro.utils.yaml_nodes import EMPTY, YamlTable

INSTRUCTION, FIELDS, FILES, TESTS = "instruction.md", "task.yaml", "files", "tests"
"""The files in the folder of a task: the prompt, fields of a batch task, the contents of the
repository, and files that only the checks see.
"""
SETTINGS = "eval.yaml"
_DEFAULT_CHECK = f"sh {TESTS}/test.sh"
_RUNS, _REPOSITORIES = "runs.json", "repositories"
_NORMAL_QUANTILE = 1.96
"""The quantile of the normal distribution for a confidence of 95 %."""
_GIT_SECONDS = 60.0
_MAX_TASK, _MAX_ARM = 30, 24
"""Characters in the id of a run, which becomes a part of a branch."""
MemoryUse = Literal["none", "read"]


class EvalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings in `eval.yaml`, for all tasks of the folder."""

    models: tuple[str, ...] = ("",)
    """Names of models; an empty name is the default model."""
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
    """A folder of tasks as the runs of a batch."""

    batch: Batch
    runs: tuple[EvalRun, ...]
    repository_sources: dict[str, str]
    """The folders with the files of repositories that are made before the first run, by the path of
    the repository.
    """


class Score(msgspec.Struct, frozen=True):
    """How often the checks passed. Runs with a fault that is not the model's do not count."""

    passed: int
    counted: int
    faults: int
    missing: int
    cost: float | None
    """Dollars of all runs with a result; None if a price is unknown. A session without a turn of
    the model costs nothing.
    """
    seconds: float
    """The mean duration of a run."""
    tokens: float
    low: float
    high: float
    """With `low` the interval of Wilson at 95 %."""

    @property
    def rate(self) -> float:
        return self.passed / self.counted if self.counted else 0.0


def read_evaluation(folder: Path, state: Path, flags: EvalSettings | None = None) -> Evaluation:
    """The runs of a folder: each task, by each model, with each use of memory, `repeats` times.

    Args:
        state: the folder of the state, in which repositories are made.
        flags: settings of the command line. Fields that are not the default win over `eval.yaml`.

    Raises:
        ConfigError: a task is wrong, or has no check and no schema.
    """
    settings = _merge_settings(_read_settings(folder), flags)
    task_folders = [path for path in sorted(_subfolders(folder)) if _is_task(path)]
    if not task_folders:
        hint = f"Each task is a folder with {INSTRUCTION} or {FIELDS}."
        raise ConfigError(f"{folder} holds no tasks.", hint)
    repository_sources: dict[str, str] = {}
    tasks: list[Task] = []
    runs: list[EvalRun] = []
    arms = _arm_names(settings)
    for task_folder in task_folders:
        task = _read_task(task_folder, settings, state, repository_sources)
        for (model, memory), arm in arms.items():
            for repeat in range(1, settings.repeats + 1):
                run = EvalRun(
                    f"{task_folder.name}.{arm}.{repeat}",
                    task=task_folder.name,
                    model=model,
                    memory=memory,
                    repeat=repeat,
                )
                runs.append(run)
                tasks.append(replace(task, id=run.id, model=model or task.model, memory=memory))
    return Evaluation(Batch(_batch_name(folder), tuple(tasks)), tuple(runs), repository_sources)


def prepare(evaluation: Evaluation, state: BatchState) -> None:
    """Write the state, and make the repositories that do not exist yet. Blocks.

    Raises:
        UsageError: the state is that of other tasks.
        OSError, GitError: a repository cannot be made.
    """
    state.begin(evaluation.batch)
    # Not read by ouro: it tells other programs the task, model and memory of each result.
    write_private(state.folder / _RUNS, msgspec.json.encode(evaluation.runs))
    for target, source in evaluation.repository_sources.items():
        if not (Path(target) / ".git").is_dir():
            _make_repository(Path(target), Path(source))


def score(runs: Sequence[EvalRun], results: dict[str, TaskResult]) -> Score:
    """The score of some runs.

    Args:
        results: by the ids of runs. A run without a result counts as missing.
    """
    finished = [results[run.id] for run in runs if run.id in results]
    counted = [result for result in finished if not _is_fault(result)]
    passed = sum(result.outcome == DONE for result in counted)
    low, high = wilson(passed, len(counted))
    costs = [result.cost for result in finished if result.answer.turns]
    known_costs = [cost for cost in costs if cost is not None]
    return Score(
        passed=passed,
        counted=len(counted),
        faults=len(finished) - len(counted),
        missing=len(runs) - len(finished),
        cost=sum(known_costs) if len(known_costs) == len(costs) else None,
        seconds=_mean(result.seconds for result in counted),
        tokens=_mean(result.answer.tokens for result in counted),
        low=low,
        high=high,
    )


def wilson(passed: int, count: int) -> tuple[float, float]:
    """The interval of Wilson (1927) for the share of runs that passed, at 95 %: low and high, from 0
    to 1. Without a run it is (0, 1).
    """
    if not count:
        return 0.0, 1.0
    share, square = passed / count, _NORMAL_QUANTILE * _NORMAL_QUANTILE
    middle = (share + square / (2 * count)) / (1 + square / count)
    spread = math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    half = _NORMAL_QUANTILE * spread / (1 + square / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def _is_fault(result: TaskResult) -> bool:
    """Whether a run shows nothing about the model, because a server, git or the disk failed. A run
    that ended at a limit, or without an answer after calls, counts for the model. Without a turn
    the model has done nothing that could count.
    """
    if result.outcome in (DONE, CHECKS):
        return False
    return result.outcome == FAULT or not result.answer.turns


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _read_settings(folder: Path) -> EvalSettings:
    """The settings in the folder of an evaluation; the defaults if it has no such file. Raises
    ConfigError.
    """
    path = folder / SETTINGS
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.", "Name a folder of tasks.")
    if not path.is_file():
        return EvalSettings()
    table = _read_file(path)
    defaults = table.entries.get("defaults", EMPTY)
    other_entries = {key: node for key, node in table.entries.items() if key != "defaults"}
    try:
        settings = read_section(table._replace(entries=other_entries), EvalSettings, str(path))
        fields = task_fields(table_of(defaults, str(path), "defaults"), str(path), "defaults")
    except ConfigError as error:
        hint = "`ouro help evaluation` has the format."
        raise ConfigError(error.message, error.hint or hint) from error
    return replace(settings, defaults=fields)


def _merge_settings(file_settings: EvalSettings, flags: EvalSettings | None) -> EvalSettings:
    """The settings of the file, changed by the flags that are not the default. Raises ConfigError
    if no model, no use of memory or no repeat is left.
    """
    if flags is None:
        return file_settings
    default = EvalSettings()
    flag_values = {name: getattr(flags, name) for name in ("models", "memory", "repeats")}
    changed = {
        name: value for name, value in flag_values.items() if value != getattr(default, name)
    }
    merged = replace(file_settings, **changed)
    if not merged.models or not merged.memory or merged.repeats < 1:
        raise ConfigError("An evaluation needs a model, a use of memory and one repeat at least.")
    return merged


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _is_task(folder: Path) -> bool:
    return (folder / INSTRUCTION).is_file() or (folder / FIELDS).is_file()


def _read_task(
    folder: Path, settings: EvalSettings, state: Path, repository_sources: dict[str, str]
) -> Task:
    """Read the task in a folder. If it has files for a repository, they are added to
    `repository_sources`. Raises ConfigError.
    """
    if not re.fullmatch(rf"\w[\w.-]{{0,{_MAX_TASK - 1}}}", folder.name):
        hint = f"Use letters, digits, `-`, `_` and `.`, at most {_MAX_TASK}."
        raise ConfigError(f"{folder}: this name cannot be part of a branch.", hint)
    values: dict[str, Any] = {**settings.defaults, **_read_fields(folder / FIELDS)}
    forbidden = {"id", "memory"} & set(values)
    if forbidden:
        raise ConfigError(f"{folder}: {', '.join(sorted(forbidden))} cannot be set for one task.")
    values |= _fields_from_files(folder)
    if "tests" in values:
        values.setdefault("checks", (_DEFAULT_CHECK,))
    if (folder / FILES).is_dir():
        target = (state / _REPOSITORIES / folder.name).resolve()
        repository_sources[str(target)] = str((folder / FILES).resolve())
        values["repo"] = str(target)
    _require_check_and_repository(folder, values)
    return make_task(values, folder / FIELDS, str(folder))


def _fields_from_files(folder: Path) -> dict[str, Any]:
    """The fields of a task that are files in its folder: the prompt and the tests."""
    fields: dict[str, Any] = {}
    if (folder / INSTRUCTION).is_file():
        fields["prompt"] = (folder / INSTRUCTION).read_text("utf-8")
    if (folder / TESTS).is_dir():
        fields["tests"] = TESTS
    return fields


def _require_check_and_repository(folder: Path, values: dict[str, Any]) -> None:
    """Raise ConfigError if a task has neither a check nor a schema, or no repository."""
    if not values.get("checks") and not values.get("answer_schema"):
        hint = f"Write {TESTS}/test.sh, or `checks:` or `schema:` in {FIELDS}."
        raise ConfigError(f"{folder}: nothing says whether it succeeded.", hint)
    if "repo" not in values:
        raise ConfigError(f"{folder}: it has no repository.", f"Add {FILES}/, or `repo:`.")


def _read_fields(path: Path) -> dict[str, Any]:
    return task_fields(_read_file(path), str(path)) if path.is_file() else {}


def _read_file(path: Path) -> YamlTable:
    """The table in a YAML file. Raises ConfigError if it cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    return parse_table(text, str(path))


def _arm_names(settings: EvalSettings) -> dict[tuple[str, MemoryUse], str]:
    """A short name for each arm, which is a model with a use of memory. The ids of its runs hold
    this name. If the last parts of two models are equal, the second one gets a number.
    """
    names: dict[tuple[str, MemoryUse], str] = {}
    for model in dict.fromkeys(settings.models):
        last_part = model.rstrip("/").rpartition("/")[2] or "default"
        model_name = re.sub(r"[^\w-]+", "-", last_part).strip("-")[:_MAX_ARM] or "model"
        for memory in dict.fromkeys(settings.memory):
            first_choice = model_name if memory == "none" else f"{model_name}-memory"
            name, number = first_choice, 1
            while name in names.values():
                number += 1
                name = f"{first_choice}-{number}"
            names[model, memory] = name
    return names


def _batch_name(folder: Path) -> str:
    name = re.sub(r"[^\w.-]+", "-", folder.resolve().name).strip("-.")[:40]
    return f"eval-{name}" if name else "eval"


def _make_repository(target: Path, source: Path) -> None:
    """Make a repository at `target` with one commit of the files in `source`. It is made in a temporary
    folder and renamed: after a kill, no half repository is at `target`.
    """
    temporary = target.with_name(f"{target.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    ensure_private_dir(target.parent)
    shutil.copytree(source, temporary, symlinks=True)
    Git(temporary, _GIT_SECONDS).begin("Begin")
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
