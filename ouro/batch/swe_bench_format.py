"""The data format of SWE-bench as tasks, and its format of predictions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ouro.batch.state import FAULT, BatchState
from ouro.errors import ConfigError
from ouro.utils.lenient_json import string
from ouro.utils.ouro_paths import expand_home

_REQUIRED_FIELDS = ("instance_id", "repo", "base_commit", "problem_statement")
_OWNER_AND_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_PROMPT = "Resolve this issue of the repository. Leave its tests as they are.\n\n"


def is_swe_bench(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the lines of a file are instances of SWE-bench, by the fields of the first one."""
    return bool(items) and all(name in items[0] for name in _REQUIRED_FIELDS)


def as_task(item: Mapping[str, Any], mirror: str, where: str) -> dict[str, Any]:
    """The fields of the task for an instance. Its reference patch, hints and tests are not read.

    Args:
        mirror: a folder with OWNER/NAME, or the start of an address.

    Raises:
        ConfigError: a field is missing or wrong; `where` names the instance.
    """
    values = {name: string(item.get(name)) for name in _REQUIRED_FIELDS}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise ConfigError(f"{where}: {', '.join(missing)} is missing.")
    if not _OWNER_AND_NAME.fullmatch(values["repo"]):
        raise ConfigError(f"{where}: `{values['repo']}` is not OWNER/NAME.")
    if not mirror:
        hint = "A folder that holds OWNER/NAME, or the start of an address: --mirror ~/mirrors"
        raise ConfigError(f"{where}: pass --mirror to say where to clone it from.", hint)
    return {
        "id": values["instance_id"],
        "repo": _repository_in(mirror, values["repo"]),
        "revision": values["base_commit"],
        "prompt": _PROMPT + values["problem_statement"],
    }


def predictions(state: BatchState, name: str) -> Iterator[dict[str, str]]:
    """Yields a prediction for each task with a result, in the format of SWE-bench's evaluation. Tasks
    that ended by a fault of a server, git or the disk have none.
    """
    for result in state.results():
        if result.outcome != FAULT:
            yield {
                "instance_id": result.id,
                "model_name_or_path": name,
                "model_patch": state.patch(result.id),
            }


def _repository_in(mirror: str, repository: str) -> str:
    """The folder or the address of a repository in the mirror; a bare one may end with `.git`."""
    if "://" in mirror:
        return f"{mirror.rstrip('/')}/{repository}"
    folder = expand_home(mirror).resolve() / repository
    bare = folder.with_name(f"{folder.name}.git")
    return str(bare if bare.is_dir() and not folder.is_dir() else folder)
