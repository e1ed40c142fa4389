"""`ouro batch inbox`: what the sessions of a batch would remember, merged and asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.batch.pending_memory import SharedChange, WaitingChange, merge_changes, propose_again
from ouro.batch.state import BatchState
from ouro.batch.tasks import Task
from ouro.commands.action import Answer, places_in
from ouro.commands.current_folder import warn
from ouro.commands.render import CommandText, View, line, table
from ouro.errors import OuroError, UsageError
from ouro.utils.text import join_names, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.current_folder import Folder
    from ouro.commands.subcommands import ShellContext
    from ouro.memory.long_term import MemoryEditor, Proposal

_MAX_TEXT = 100
_SHOWN = 3
"""Names of tasks in a row; more are counted."""


async def inbox(context: ShellContext, state: str, words: Sequence[str]) -> Answer:
    found = BatchState(Path(state))
    waiting = find_waiting(context.folder, found)
    if not words:
        return Answer([_change_data(change) for change in waiting], _list_view(waiting, state))
    verb, numbers = words[0], " ".join(words[1:])
    if verb not in ("accept", "reject") or not numbers:
        raise UsageError(
            "Name what to decide: `accept 1,3`, `reject 2-5`, `accept all`.",
            commands=[f"batch inbox {state}"],
        )
    indexes = range(len(waiting)) if numbers == "all" else places_in(numbers, len(waiting))
    chosen = [waiting[index] for index in indexes]
    view: View = []
    failed = 0
    for change in chosen:
        done, problems = _decide(context.folder, found, change, accepts=verb == "accept")
        view += _decision_view(change, verb, done)
        view += [line(problem, level="warning") for problem in problems]
        failed += len(problems)
    values = [_change_data(change) for change in chosen]
    return Answer(values, view or [line("There is nothing to decide.")], 1 if failed else 0)


def find_waiting(folder: Folder, state: BatchState) -> list[SharedChange]:
    """What waits of this batch; what came from other machines is put into the memories first."""
    tasks = [task for task in state.batch().tasks if task.memory == "read"]
    if not tasks:
        return []
    _deliver(folder, state, tasks)
    return merge_changes(_waiting_changes(folder, state, tasks))


def _deliver(folder: Folder, state: BatchState, tasks: Sequence[Task]) -> None:
    """Put what workers and clones sent into the memories here: that of the user, and those of
    repositories that are folders. The rest stays in the state.
    """
    for task in tasks:
        kept = state.learned(task.id)
        of_user = [change for change in kept if change.scope == "user"]
        of_repo = [change for change in kept if change.scope == "repo"]
        left = _propose(folder, of_user)
        left += of_repo if task.is_remote else _propose(folder.at(Path(task.repo)), of_repo)
        if len(left) < len(kept):
            state.save_learned(task.id, left)


def _propose(folder: Folder, changes: Sequence[Proposal]) -> list[Proposal]:
    """Let changes wait in the memory of a folder; returns those that it does not take."""
    if not changes:
        return []
    with folder.memory() as (editor, _stores):
        return propose_again(editor, changes)


def _waiting_changes(
    folder: Folder, state: BatchState, tasks: Sequence[Task]
) -> Iterator[WaitingChange]:
    """The changes of the tasks' sessions: of the user's memory, of each repository, of the state."""
    found = filter(None, (state.result(task.id) for task in tasks))
    by_session = {result.session_id: result.id for result in found if result.session_id}
    yield from _changes_in_memory(folder, by_session, "user", None)
    # A repository that is not obeyed has no memory.
    obeyed = [task for task in tasks if task.trust and not task.is_remote]
    repositories = dict.fromkeys(Path(task.repo) for task in obeyed)
    for repository in filter(Path.is_dir, repositories):
        try:
            yield from _changes_in_memory(folder.at(repository), by_session, "repo", repository)
        except (OuroError, OSError) as error:
            warn(f"{repository}: {error}")
    for task in tasks:
        for change in state.learned(task.id):
            yield WaitingChange(task.id, change, None, is_kept_here=True)


def _changes_in_memory(
    folder: Folder, by_session: dict[str, str], scope: str, repository: Path | None
) -> list[WaitingChange]:
    """The changes of the batch's sessions that wait in a memory of a folder. `repository` is None
    for the user's.
    """
    with folder.memory() as (editor, _stores):
        changes: list[Proposal] = []
        for found in editor.scopes:
            changes += found.proposals() if found.store.scope == scope else ()
        return [
            WaitingChange(by_session[change.session], change, repository)
            for change in changes
            if change.session in by_session
        ]


def _decide(
    folder: Folder, state: BatchState, shared: SharedChange, *, accepts: bool
) -> tuple[int, list[str]]:
    """Accept the change once in each memory, or reject it everywhere; returns the number of
    memories, and what could not be done.
    """
    problems: list[str] = []
    by_repository: dict[Path | None, list[WaitingChange]] = {}
    for change in shared.changes:
        if not change.is_kept_here:
            by_repository.setdefault(change.place, []).append(change)
        elif accepts:
            problems.append(_has_no_memory(state, change))
        else:
            _drop(state, change)
    done = 0
    for repository, changes in by_repository.items():
        try:
            with (folder.at(repository) if repository else folder).memory() as (editor, _stores):
                _decide_in_memory(editor, changes, accepts=accepts)
        except (OuroError, OSError) as error:
            problems.append(f"{repository or 'your memory'}: {error}")
        else:
            done += 1
    return done, problems


def _decide_in_memory(
    editor: MemoryEditor, changes: Sequence[WaitingChange], *, accepts: bool
) -> None:
    """Decide about the first of equal changes in a memory. The others are rejected: it is needed
    once.
    """
    first, *same = [change.proposal.id for change in changes]
    decide: Callable[[str], Any] = editor.accept if accepts else editor.reject
    decide(first)
    for proposal in dict.fromkeys(same):
        if proposal != first:
            editor.reject(proposal)


def _has_no_memory(state: BatchState, change: WaitingChange) -> str:
    repository = state.task(change.task).repo
    return (
        f"{change.task}: {repository} has no memory on this machine. In a clone of it:"
        " ouro memory remember --scope repo TEXT"
    )


def _drop(state: BatchState, change: WaitingChange) -> None:
    """Remove a change from the state, where it waits because no memory took it."""
    kept = state.learned(change.task)
    state.save_learned(change.task, [item for item in kept if item.id != change.proposal.id])


def _change_data(change: SharedChange) -> dict[str, Any]:
    """A change for `--json`."""
    return {
        "scope": change.scope,
        "text": "\n".join(change.rows),
        "tasks": list(change.tasks),
        "ids": list(dict.fromkeys(change.proposal.id for change in change.changes)),
    }


def _decision_view(change: SharedChange, verb: str, count: int) -> View:
    """What was decided, and in how many repositories; empty if it was done nowhere."""
    if not count:
        return []
    word = "Remembered" if verb == "accept" else "Rejected"
    where = f" ({plural(count, 'repository', 'repositories')})" if change.scope == "repo" else ""
    return [line(f"{word}: {_text(change)}{where}")]


def _list_view(waiting: Sequence[SharedChange], state: str) -> View:
    """The changes with their numbers, and the commands that decide."""
    if not waiting:
        return [line("The inbox is empty.")]
    rows = [
        (str(number), change.scope, _text(change), _tasks(change))
        for number, change in enumerate(waiting, 1)
    ]
    accept = CommandText(f"batch inbox {state} accept 1")
    reject = CommandText(f"batch inbox {state} reject all")
    return [*table(rows), line("Decide: ", accept, " · ", reject)]


def _text(change: SharedChange) -> str:
    return one_line(" · ".join(change.rows), _MAX_TEXT)


def _tasks(change: SharedChange) -> str:
    return join_names(change.tasks, _SHOWN)
