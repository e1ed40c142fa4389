"""The data format of SWE-bench as tasks, and its format of predictions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ouro.batch.state import FAULT, BatchState
from ouro.errors import ConfigError
from ouro.utils.lenient_json import string

_NEEDED = ("instance_id", "repo", "base_commit", "problem_statement")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_PROMPT = "Resolve this issue of the repository. Leave its tests as they are.\n\n"


def is_swe_bench(items: Sequence[Mapping[str, Any]]) -> bool:
    return bool(items) and all(name in items[0] for name in _NEEDED)


def as_task(item: Mapping[str, Any], mirror: str, where: str) -> dict[str, Any]:
    """The fields of a task. The reference patch, hints and tests of the instance are not read.

    Args:
        mirror: a folder with OWNER/NAME, or the start of an address.

    Raises:
        ConfigError: a field is missing or wrong; `where` names the instance.
    """
    values = {name: string(item.get(name)) for name in _NEEDED}
    wrong = [name for name, value in values.items() if not value]
    if wrong:
        raise ConfigError(f"{where}: {', '.join(wrong)} is missing.")
    if not _REPOSITORY.fullmatch(values["repo"]):
        raise ConfigError(f"{where}: `{values['repo']}` is not OWNER/NAME.")
    if not mirror:
        hint = "A folder that holds OWNER/NAME, or the start of an address: --mirror ~/mirrors"
        raise ConfigError(f"{where}: pass --mirror to say where to clone it from.", hint)
    return {
        "id": values["instance_id"],
        "repo": _place(mirror, values["repo"]),
        "revision": values["base_commit"],
        "prompt": _PROMPT + values["problem_statement"],
    }


def predictions(state: BatchState, name: str) -> Iterator[dict[str, str]]:
    """A prediction for each task with a result, in the format that SWE-bench's evaluation reads.
    Tasks that ended by a fault of the world have none.
    """
    for result in state.results():
        if result.outcome != FAULT:
            yield {
                "instance_id": result.id,
                "model_name_or_path": name,
                "model_patch": state.patch(result.id),
            }


def _place(mirror: str, repository: str) -> str:
    if "://" in mirror:
        return f"{mirror.rstrip('/')}/{repository}"
    folder = Path(mirror).expanduser().resolve() / repository
    bare = folder.with_name(f"{folder.name}.git")
    return str(bare if bare.is_dir() and not folder.is_dir() else folder)
