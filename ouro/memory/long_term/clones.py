"""Clones: other folders with the repository of a project, and the memory in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ouro.errors import OuroError
from ouro.memory.long_term.git.files import ARCHIVE
from ouro.memory.long_term.git.memory_folders import MEMORY, known_folders, repo_folder
from ouro.safety import TrustStore, acting_files
from ouro.utils.git import find_origin
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_history_dir, get_trust_path


def find_clone_memories(root: Path) -> Iterator[Path]:
    """Yield the memory folders of other clones of a repository: those that have the same remote
    `origin`. Runs git.
    """
    own_folder = repo_folder(root)
    for folder in known_folders(get_history_dir()):
        if folder != own_folder and is_clone(project_of(folder), root):
            yield folder


def is_clone(project: Path, root: Path) -> bool:
    """Whether two repositories have the same remote `origin`. Runs git."""
    origin = find_origin(root)
    return bool(origin) and find_origin(project) == origin


def memory_folder_of(path: Path) -> Path | None:
    """The memory folder of a repository that has this file; None if it is elsewhere, or in the
    user's own memory.
    """
    path = path.resolve()
    folder = path.parent.parent if path.parent.name == ARCHIVE else path.parent
    is_of_repository = (
        folder.parts[-2:] == MEMORY.parts and repo_folder(project_of(folder)) == folder
    )
    return folder if is_of_repository else None


def is_approved(path: Path, folder: Path) -> bool:
    """Whether the user trusts the project with this memory folder, and has approved this file in
    it. An error is logged, and counts as no. Runs git.
    """
    from ouro.memory.long_term.store import store_of_other

    project, trust = project_of(folder), TrustStore(get_trust_path())
    try:
        is_trusted = trust.is_trusted(project, acting_files(project))
        name = str(path.resolve().relative_to(folder))
        return is_trusted and not store_of_other(project).find_unapproved([name])
    except (OuroError, OSError, ValueError) as error:
        log.info("the memory of %s is not taken as approved: %s", project, error)
        return False


def project_of(folder: Path) -> Path:
    """The root of the repository that has this memory folder."""
    return folder.parent.parent
