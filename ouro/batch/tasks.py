"""The tasks of a batch, from a YAML file or from JSON lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ouro.errors import ConfigError, OuroError, UsageError
from ouro.utils.decoding import decode_json, from_plain
from ouro.utils.json_schema import validator_of
from ouro.utils.ouro_paths import expand_home
from ouro.utils.yaml import (
    convert,
    is_empty,
    items_of,
    parse_table,
    read_fields,
    table_of,
    unknown_key,
)
from ouro.utils.yaml_nodes import EMPTY, Scalar, YamlTable

_NAME_IN_BRANCHES = re.compile(r"\w[\w.-]{0,63}")
_LINE_FORMATS = (".jsonl", ".ndjson")
_FILE_KEYS = ("name", "defaults", "tasks")
_MAX_LIMIT = 1e9
"""Larger limits, also infinity, are mistakes: some of them could not be waited for."""


class TaskLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a task."""

    turns: int = 100
    cost: float | None = None
    """Dollars; None for its share of the rest of the budget."""
    seconds: float = 3600


class TaskPermissions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mode and the permission rules of a task."""

    mode: Literal["plan", "ask", "edit", "auto"] = "auto"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One prompt in one repository. Its fields are those of the file; `defaults` there sets them for
    all tasks.
    """

    id: str = ""
    """Its name in the state, in branches and reports; else the repository's name."""
    repo: str = "."
    """A folder, relative to the file, or the address of a repository."""
    revision: str = "HEAD"
    prompt: str
    model: str = ""
    answer_schema: dict[str, Any] | None = msgspec.field(default=None, name="schema")
    """A JSON schema that the answer must match."""
    checks: tuple[str, ...] = ()
    """Shell lines that must succeed in the changed tree, confined like commands of the agent."""
    tests: str = ""
    """A folder, relative to the file, that is copied to `tests` of the tree for the checks: the
    agent does not see it, and the branch does not hold it.
    """
    limits: TaskLimits = TaskLimits()
    permissions: TaskPermissions = TaskPermissions()
    memory: Literal["none", "read"] = "none"
    """`read`: memory is sent; what the session would write waits for the user's answer."""
    trust: bool = False
    """Whether the instructions and settings of the repository are obeyed."""

    @property
    def is_remote(self) -> bool:
        return "://" in self.repo or bool(re.match(r"[\w.-]+@[\w.-]+:", self.repo))


class Batch(msgspec.Struct, frozen=True):
    """Tasks with a name."""

    name: str
    """A part of the branches: `ouro/NAME/TASK`."""
    tasks: tuple[Task, ...]


def read_batch(path: Path, mirror: str = "") -> Batch:
    """Read the tasks of a file: YAML with `tasks`, `defaults` and `name`, or JSON lines with a task
    each.

    Args:
        mirror: where the repositories of SWE-bench's instances are, as for
            `swe_bench_format.as_task`; empty for a file with other tasks.

    Raises:
        ConfigError: it cannot be read, or a task is wrong; names the task.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {_reason(error)}.", "Name a file of tasks."
        ) from error
    if path.suffix in _LINE_FORMATS:
        # Programs write such files, so no hint at the format follows an error. SWE-bench's data,
        # which needs a mirror, is only in this format.
        name, tasks = "", _read_lines(text, path, mirror)
    else:
        try:
            name, tasks = _read_table(text, path)
        except ConfigError as error:
            hint = error.hint or "`ouro help batch` has the format."
            raise ConfigError(error.message, hint) from error
    name = name or path.name.partition(".")[0]
    if not _NAME_IN_BRANCHES.fullmatch(name):
        raise ConfigError(
            f"{path}: `{name}` cannot be the name of a batch.",
            "Use letters, digits, `-`, `_` and `.`: it becomes a part of branches.",
        )
    if not tasks:
        raise ConfigError(f"{path} has no tasks.", "Write at least one below `tasks:`.")
    return Batch(name, tuple(_add_ids(tasks)))


def batch_of_repositories(prompt: str, repositories: Path, name: str) -> Batch:
    """The same prompt for each line of a file with folders or addresses; `#` begins a comment.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    try:
        lines = repositories.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{repositories} cannot be read: {_reason(error)}.") from error
    names = map(str.strip, lines)
    repository_names = [name for name in names if name and not name.startswith("#")]
    if not repository_names:
        raise ConfigError(f"{repositories} names no repository.", "Write one on each line.")
    tasks = [
        Task(prompt=prompt, repo=_absolute_repository(repository, repositories))
        for repository in repository_names
    ]
    return Batch(name, tuple(_add_ids(tasks)))


def _read_table(text: str, path: Path) -> tuple[str, list[Task]]:
    """The name of the batch, empty if the file has none, and the tasks. Raises ConfigError."""
    name = str(path)
    table = parse_table(text, name)
    for key, line in table.key_lines.items():
        if key not in _FILE_KEYS:
            raise unknown_key(f"{name}:{line}", key, _FILE_KEYS)
    entries = {**dict.fromkeys(_FILE_KEYS, EMPTY), **table.entries}
    defaults = task_fields(table_of(entries["defaults"], name, "defaults"), name, "defaults")
    tasks = []
    for number, node in enumerate(items_of(entries["tasks"], name, "tasks"), 1):
        item = table_of(node, name, f"tasks[{number}]")
        values = {**defaults, **task_fields(item, name, f"tasks[{number}]")}
        tasks.append(make_task(values, path, f"{name}:{node.line}: task {number}"))
    name_node = entries["name"]
    return "" if is_empty(name_node) else convert(name_node, to=str, name=name, path="name"), tasks


def task_fields(table: YamlTable, name: str, path: str = "") -> dict[str, Any]:
    """The fields of `Task` that a table sets; one without a value is not set.

    Args:
        name: the file, for messages.
        path: the position of the table in the file, for messages.

    Raises:
        ConfigError: a field is unknown or has another type; names its line.
    """
    nodes = {key: node for key, node in table.entries.items() if not is_empty(node)}
    schema = nodes.get("schema")
    # A schema may be written as a text of JSON, which is decoded apart from the other fields.
    if isinstance(schema, Scalar):
        del nodes["schema"]
    values = read_fields(table._replace(entries=nodes), Task, name, path)
    if isinstance(schema, Scalar):
        values["answer_schema"] = _json_schema(schema.text, f"{name}:{schema.line}")
    return values


def _json_schema(text: str, where: str) -> dict[str, Any]:
    """The schema in a text of JSON. Raises ConfigError, with its place `where`, if it is not one."""
    try:
        return decode_json(text, dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{where}: `schema` is not a JSON object: {error}.") from error


def _read_lines(text: str, path: Path, mirror: str) -> list[Task]:
    """The tasks in a file with a JSON object on each line: of ouro, or of SWE-bench. Raises
    ConfigError.
    """
    items: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            items[number] = decode_json(line, dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path}:{number}: not a JSON object: {error}.") from error
    from ouro.batch import swe_bench_format  # it reads states, which hold tasks

    if swe_bench_format.is_swe_bench([*items.values()]):
        items = {
            number: swe_bench_format.as_task(item, mirror, f"{path}:{number}")
            for number, item in items.items()
        }
    return [_task_of_line(item, path, f"{path}:{number}") for number, item in items.items()]


def _task_of_line(item: Mapping[str, Any], path: Path, where: str) -> Task:
    """The task of a JSON line. Raises ConfigError."""
    values = dict(item)
    if isinstance(schema := values.get("schema"), str):
        values["schema"] = _json_schema(schema, where)
    try:
        task = from_plain(values, Task, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_plain_message(error)}.") from error
    return _check_task(task, path, where)


def make_task(values: Mapping[str, Any], path: Path, where: str) -> Task:
    """One task from its fields, with absolute paths.

    Args:
        values: field of Task -> its value, of the right type.
        path: the file that folders are relative to.
        where: names the task in messages.

    Raises:
        ConfigError: the prompt is missing, or a value is not valid.
    """
    if "prompt" not in values:
        raise ConfigError(f"{where} needs `prompt`.")
    return _check_task(Task(**values), path, where)


def _check_task(task: Task, path: Path, where: str) -> Task:
    """Check the fields of a task; returns it with absolute paths. Raises ConfigError if one is wrong.

    Args:
        path: the file that folders are relative to.
        where: names the task in messages.
    """
    if task.answer_schema is not None:
        try:
            validator_of(task.answer_schema)
        except UsageError as error:
            raise ConfigError(f"{where}: {_plain_message(error)}.") from error
    if task.id and not _NAME_IN_BRANCHES.fullmatch(task.id):
        hint = "Use letters, digits, `-`, `_` and `.`, at most 64."
        raise ConfigError(f"{where}: this id cannot name a file.", hint)
    if not task.prompt.strip():
        raise ConfigError(f"{where}: its prompt is empty.")
    for name, value in msgspec.structs.asdict(task.limits).items():
        if value is not None and not 0 < value <= _MAX_LIMIT:
            hint = "A limit is more than 0. Leave it out for the default."
            raise ConfigError(f"{where}: its limit of {name} cannot be {value}.", hint)
    tests = str((path.parent / expand_home(task.tests)).resolve()) if task.tests else ""
    if tests and not Path(tests).is_dir():
        raise ConfigError(f"{where}: its tests are no folder: {tests}.")
    return msgspec.structs.replace(task, repo=_absolute_repository(task.repo, path), tests=tests)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    """Why a file cannot be read, as the end of a sentence."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return error.strerror or str(error)


def _plain_message(error: Exception) -> str:
    """The message of an error, with the terms of msgspec replaced by plain words."""
    return (
        str(error)
        .replace("Object contains", "it has")
        .replace("Object missing", "it has no")
        .rstrip(".")
    )


def _absolute_repository(repo: str, file: Path) -> str:
    """The absolute path of a repository, if it is a folder. An address stays as it is."""
    if Task(prompt="-", repo=repo).is_remote:
        return repo
    return str((file.parent / expand_home(repo)).resolve())


def _add_ids(tasks: Sequence[Task]) -> list[Task]:
    """The tasks, each with its own id. It is the id in the file; a task without one gets the name
    of its repository.

    Raises:
        ConfigError: two tasks of the file have one id.
    """
    count_of_id = Counter(task.id for task in tasks if task.id)
    repeated_id = next((name for name, count in count_of_id.items() if count > 1), "")
    if repeated_id:
        raise ConfigError(f"Two tasks have the id `{repeated_id}`.", "Give each an id of its own.")
    used_names, tasks_with_ids = set(count_of_id), []
    numbers: Counter[str] = Counter()
    for task in tasks:
        name = task.id or _free_name(task.repo, used_names, numbers)
        used_names.add(name)
        tasks_with_ids.append(msgspec.structs.replace(task, id=name))
    return tasks_with_ids


def _free_name(repo: str, used_names: set[str], numbers: Counter[str]) -> str:
    """A name for a task, made of the name of its repository. If it is used, the next number is
    added, from 2.

    Args:
        numbers: the last number of each name. It is changed, so that a search continues there.
    """
    last_part = repo.rstrip("/").rpartition("/")[2].removesuffix(".git")
    name = re.sub(r"[^\w.-]+", "-", last_part).strip("-.")[:50] or "task"
    free_name = name
    numbers[name] = max(numbers[name], 1)
    while free_name in used_names:
        numbers[name] += 1
        free_name = f"{name}-{numbers[name]}"
    return free_name


class UnknownTask(OuroError):
    """A name that no task of the batch has."""

    exit_code = 2
