"""What the user does with the branches of a batch: merge, delete, push."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec

from ouro.batch.remote import BUNDLE, fetch_bundle
from ouro.batch.state import BatchState, TaskResult
from ouro.batch.tree import TaskTree, TreeError
from ouro.errors import OuroError
from ouro.utils.git import Git, GitError

_GIT_SECONDS = 600.0


class BranchError(OuroError):
    """A branch could not be merged, deleted or pushed."""


def accept(state: BatchState, result: TaskResult) -> TaskResult:
    """Merge the branch of a result into what is checked out in its repository; returns the result,
    marked as accepted. The mark is saved.

    Raises:
        BranchError: the branch is in a clone, the repository has uncommitted changes, or the merge
            conflicts. Nothing is changed then.
    """
    repository = _repository(state, result)
    is_clone = repository != Path(result.repo)
    if is_clone:
        raise BranchError(
            f"{result.id} is of {result.repo}: its branch is in {repository}.",
            "Open a pull request, or push it yourself.",
            [f"batch pr {state.folder} {result.id}"],
        )
    git = Git(repository, _GIT_SECONDS)
    if git.ask("status", "--porcelain", "--untracked-files=no").strip():
        raise BranchError(f"{repository} has changes.", "Commit them first, then accept again.")
    try:
        git.merge(result.branch)
    except GitError as error:
        hint = f"Merge it yourself: git merge {result.branch}"
        raise BranchError(f"{result.id}: {error}", hint) from error
    return _save_mark(state, result, "accepted")


def reject(state: BatchState, result: TaskResult) -> TaskResult:
    """Delete the branch of a result; its patch stays in the state. Raises BranchError."""
    repository = _repository(state, result)
    if repository != Path(result.repo):  # a clone, made for this task only
        shutil.rmtree(repository, ignore_errors=True)
        return _save_mark(state, result, "rejected")
    try:
        Git(repository, _GIT_SECONDS).change("branch", "--quiet", "-D", result.branch)
    except GitError as error:
        raise BranchError(f"{result.id}: {error}") from error
    return _save_mark(state, result, "rejected")


def open_pull_request(state: BatchState, result: TaskResult) -> TaskResult:
    """Push the branch to `origin` by the user's git, and open a pull request by `gh`.

    Returns the result. Its state is the address of the pull request, or `pushed` if `gh` printed no
    address.

    Raises:
        BranchError: one of them is missing or failed.
    """
    folder = _repository(state, result)
    if shutil.which("gh") is None:
        raise BranchError("`gh` is not installed.", "Install GitHub's command line, and log in.")
    _run(folder, "git", "push", "--quiet", "--set-upstream", "origin", result.branch)
    title = state.task(result.id).prompt.strip().splitlines()[0][:70]
    words = ("gh", "pr", "create", "--head", result.branch, "--title", title)
    output = _run(folder, *words, "--body", result.answer.text[:60_000] or title)
    output_lines = output.strip().splitlines()
    return _save_mark(state, result, output_lines[-1] if output_lines else "pushed")


def _repository(state: BatchState, result: TaskResult) -> Path:
    """The repository that has the branch of a result. It is the repository of the task if that is a
    folder, otherwise a clone in the state. Raises BranchError if the result has no branch, or not
    any more.
    """
    if not result.branch:
        raise BranchError(f"{result.id} has changed nothing.")
    if result.state in ("accepted", "rejected"):
        raise BranchError(f"{result.id} is {result.state} already.")
    folder = Path(result.repo)
    if not folder.is_dir():
        folder = state.ensure_task_folder(result.id) / "tree"
        _clone_for_bundle(state, result, folder)
    if not folder.is_dir():
        raise BranchError(f"{folder} does not exist any more.", "Run the task again.")
    return folder


def _clone_for_bundle(state: BatchState, result: TaskResult, folder: Path) -> None:
    """Clone the repository of a task into the folder, and fetch its branch from the bundle that a
    worker has sent. Does nothing if there is no bundle, or if the folder exists already. Raises
    BranchError.
    """
    bundle = state.ensure_task_folder(result.id) / BUNDLE
    if folder.is_dir() or not bundle.is_file():
        return
    task = state.task(result.id)
    try:
        TaskTree.make(task, folder, f"{result.branch}-base")
        fetch_bundle(folder, bundle, result.branch)
    except (TreeError, GitError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise BranchError(f"{result.id}: {error}") from error


def _run(folder: Path, *words: str) -> str:
    """Run a command; returns what it printed. Raises BranchError, with its last line, if it fails."""
    process = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        reason = (process.stderr or process.stdout).strip().splitlines()
        raise BranchError(f"`{' '.join(words[:3])}`: {reason[-1] if reason else 'failed'}")
    return process.stdout


def _save_mark(state: BatchState, result: TaskResult, mark: str) -> TaskResult:
    """Save `mark`, what the user did with the branch, as the state of a result; returns this result."""
    saved = msgspec.structs.replace(result, state=mark)
    state.save(saved)
    return saved
