"""`ouro batch inbox`: the memory changes that the sessions of a batch propose, merged and decided once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ouro.batch.pending_memory import SharedChange, WaitingChange, merge_changes, propose_again
from ouro.batch.state import BatchState
from ouro.batch.tasks import Task
from ouro.commands.action import Answer, parse_indexes
from ouro.commands.current_folder import warn
from ouro.commands.render import CommandText, View, line, table
from ouro.errors import OuroError, UsageError
from ouro.utils.text import join_names, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.current_folder import Folder
    from ouro.commands.shell_context import ShellContext
    from ouro.memory.long_term import MemoryEditor, Proposal

_MAX_TEXT = 100
_MAX_TASK_NAMES = 3
"""Names of tasks in a row; of the others only the number is shown."""


async def inbox(context: ShellContext, state: str, words: Sequence[str]) -> Answer:
    """List the waiting changes with their numbers, if there are no words; else accept or reject some.

    Args:
        words: `accept` or `reject`, then numbers of the list, as `parse_indexes` reads them, or
            `all`.
    """
    batch_state = BatchState(Path(state))
    waiting_changes = collect_waiting_changes(context.folder, batch_state)
    if not words:
        return Answer(
            [_change_data(change) for change in waiting_changes], _list_view(waiting_changes, state)
        )
    verb, *number_words = words
    numbers = " ".join(number_words)
    if verb not in ("accept", "reject") or not numbers:
        raise UsageError(
            "Name what to decide: `accept 1,3`, `reject 2-5`, `accept all`.",
            commands=[f"batch inbox {state}"],
        )
    if numbers == "all":
        chosen = waiting_changes
    else:
        indexes = parse_indexes(numbers, len(waiting_changes))
        chosen = [waiting_changes[index] for index in indexes]
    is_accepted = verb == "accept"
    view: View = []
    failed = 0
    for change in chosen:
        memory_count, problems = _decide(context.folder, batch_state, change, accepts=is_accepted)
        view += _decision_view(change, memory_count, is_accepted=is_accepted)
        view += [line(problem, level="warning") for problem in problems]
        failed += len(problems)
    values = [_change_data(change) for change in chosen]
    return Answer(values, view or [line("There is nothing to decide.")], 1 if failed else 0)


def collect_waiting_changes(folder: Folder, state: BatchState) -> list[SharedChange]:
    """Put changes that came from other machines into the memories here. Returns all changes of the
    batch that wait for a decision; those with the same text are one.
    """
    tasks = [task for task in state.batch().tasks if task.memory == "read"]
    if not tasks:
        return []
    _deliver(folder, state, tasks)
    return merge_changes(_waiting_changes(folder, state, tasks))


def _deliver(folder: Folder, state: BatchState, tasks: Sequence[Task]) -> None:
    """Propose the changes of workers and clones in the memories here: the user's, and those of
    repositories that are folders. What no memory takes stays in the state.
    """
    for task in tasks:
        changes = state.learned(task.id)
        user_changes = [change for change in changes if change.scope == "user"]
        repo_changes = [change for change in changes if change.scope == "repo"]
        undelivered = _propose(folder, user_changes)
        if task.is_remote:  # its repository has no folder here, so no memory can take them
            undelivered += repo_changes
        else:
            undelivered += _propose(folder.at(Path(task.repo)), repo_changes)
        if len(undelivered) < len(changes):
            state.save_learned(task.id, undelivered)


def _propose(folder: Folder, changes: Sequence[Proposal]) -> list[Proposal]:
    """Propose in the memory of a folder the changes that tasks of the batch proposed elsewhere.
    Returns those that it does not take: it has no memory of their scope.
    """
    if not changes:
        return []
    with folder.memory() as (editor, _stores):
        return propose_again(editor, changes)


def _waiting_changes(
    folder: Folder, state: BatchState, tasks: Sequence[Task]
) -> Iterator[WaitingChange]:
    """Yields the changes that the tasks' sessions propose: those in the user's memory, those in the
    memory of each repository, and those that only the state of the batch keeps. A memory that
    cannot be read is left out with a warning.
    """
    task_of_session: dict[str, str] = {}
    for task in tasks:
        result = state.result(task.id)
        if result is not None and result.session_id:
            task_of_session[result.session_id] = task.id
    yield from _changes_in_memory(folder, task_of_session, "user", repository=None)
    # A repository that is not trusted has no memory.
    trusted_tasks = [task for task in tasks if task.trust and not task.is_remote]
    repositories = dict.fromkeys(Path(task.repo) for task in trusted_tasks)
    for repository in filter(Path.is_dir, repositories):
        try:
            yield from _changes_in_memory(
                folder.at(repository), task_of_session, scope_name="repo", repository=repository
            )
        except (OuroError, OSError) as error:
            warn(f"{repository}: {error}")
    for task in tasks:
        for change in state.learned(task.id):
            yield WaitingChange(task.id, change, place=None, is_kept_here=True)


def _changes_in_memory(
    folder: Folder, task_of_session: dict[str, str], scope_name: str, repository: Path | None
) -> list[WaitingChange]:
    """The changes that wait in one scope of the memory of a folder. Those of sessions that are not of
    the batch are left out.

    Args:
        task_of_session: the id of the task of each session of the batch.
        scope_name: `user` or `repo`.
        repository: the repository of the folder, which the changes then name as their place; None
            for the user's memory.
    """
    changes: list[WaitingChange] = []
    with folder.memory() as (editor, _stores):
        for scope in editor.scopes:
            if scope.store.scope != scope_name:
                continue
            for proposal in scope.proposals():
                task = task_of_session.get(proposal.session)
                if task is not None:
                    changes.append(WaitingChange(task, proposal, repository))
    return changes


class _DecidedChange(NamedTuple):
    """What became of a change that was accepted or rejected."""

    memory_count: int
    """The number of memories in which it was decided."""
    problems: list[str]
    """A line for each place where it could not be decided."""


def _decide(
    folder: Folder, state: BatchState, shared: SharedChange, *, accepts: bool
) -> _DecidedChange:
    """Accept the change once in each memory where it waits, or reject it everywhere. One that waits
    in the state of the batch, because no memory took it, can only be rejected: accepting it is a
    problem.
    """
    problems: list[str] = []
    by_repository: dict[Path | None, list[WaitingChange]] = {}
    for change in shared.changes:
        if not change.is_kept_here:
            by_repository.setdefault(change.place, []).append(change)
        elif accepts:
            problems.append(_no_memory_problem(state, change))
        else:
            _drop(state, change)
    memory_count = 0
    for repository, changes in by_repository.items():
        memory_folder = folder.at(repository) if repository else folder
        try:
            with memory_folder.memory() as (editor, _stores):
                _decide_in_memory(editor, changes, accepts=accepts)
        except (OuroError, OSError) as error:
            problems.append(f"{repository or 'your memory'}: {error}")
        else:
            memory_count += 1
    return _DecidedChange(memory_count, problems)


def _decide_in_memory(
    editor: MemoryEditor, changes: Sequence[WaitingChange], *, accepts: bool
) -> None:
    """Accept or reject the first of equal changes in a memory, and reject the others: a memory needs
    the text once. An id that occurs several times is decided once.
    """
    first_id, *other_ids = dict.fromkeys(change.proposal.id for change in changes)
    decide: Callable[[str], Any] = editor.accept if accepts else editor.reject
    decide(first_id)
    for proposal_id in other_ids:
        editor.reject(proposal_id)


def _no_memory_problem(state: BatchState, change: WaitingChange) -> str:
    """The problem line for an accepted change that no memory of this machine can take."""
    repository = state.task(change.task).repo
    return (
        f"{change.task}: {repository} has no memory on this machine. In a clone of it:"
        " ouro memory remember --scope repo TEXT"
    )


def _drop(state: BatchState, change: WaitingChange) -> None:
    """Remove a change from the state, where it waits because no memory took it."""
    changes = state.learned(change.task)
    state.save_learned(change.task, [other for other in changes if other.id != change.proposal.id])


def _change_data(change: SharedChange) -> dict[str, Any]:
    """The change as `--json` prints it."""
    return {
        "scope": change.scope,
        "text": "\n".join(change.rows),
        "tasks": list(change.tasks),
        "ids": list(dict.fromkeys(change.proposal.id for change in change.changes)),
    }


def _decision_view(change: SharedChange, memory_count: int, *, is_accepted: bool) -> View:
    """A line that says whether the change was accepted or rejected, and in how many repositories.
    Empty if no memory had the change.
    """
    if not memory_count:
        return []
    word = "Remembered" if is_accepted else "Rejected"
    where = ""
    if change.scope == "repo":
        where = f" ({plural(memory_count, 'repository', 'repositories')})"
    return [line(f"{word}: {_text(change)}{where}")]


def _list_view(changes: Sequence[SharedChange], state: str) -> View:
    """The changes with their numbers, and the commands that decide."""
    if not changes:
        return [line("The inbox is empty.")]
    rows = [
        (str(number), change.scope, _text(change), _tasks(change))
        for number, change in enumerate(changes, 1)
    ]
    accept = CommandText(f"batch inbox {state} accept 1")
    reject = CommandText(f"batch inbox {state} reject all")
    return [*table(rows), line("Decide: ", accept, " · ", reject)]


def _text(change: SharedChange) -> str:
    return one_line(" · ".join(change.rows), _MAX_TEXT)


def _tasks(change: SharedChange) -> str:
    return join_names(change.tasks, _MAX_TASK_NAMES)
