"""`ouro sync`: memory, sessions and settings over one git remote of the user."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.commands.action import ActionContext, Answer, confirm
from ouro.commands.memory_transfer import disputed_view
from ouro.commands.render import CommandText, View, line
from ouro.errors import ConfigError, OuroError, UsageError
from ouro.events import Event, Notice
from ouro.memory import long_term
from ouro.settings_sources import (
    SHARED_SETTINGS,
    check_setting,
    load_settings,
    shared_settings,
    write_setting,
)
from ouro.utils.git import remote_address
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_home
from ouro.utils.path_encoding import text_path
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.memory.backend import MemoryStore
    from ouro.memory.long_term import MemoryEditor, Scope, SyncReport
    from ouro.memory.session_sync import SessionSyncReport
    from ouro.memory.settings_remote import SettingsExchange, SettingsRemote
    from ouro.session import Session

Progress = Callable[[str], None]
"""Shows the present step to the user. It may raise an exception to end the synchronization."""
SyncMemory = Callable[["Scope", str, Progress], Awaitable["SyncReport"]]
"""Synchronizes the memory of a scope with a remote."""
_NAME_OF_PART = {"repo": "repository memory"}
_INTERRUPTED = "The synchronization was interrupted. Nothing is lost: sync again to continue."


class SyncedAll(msgspec.Struct):
    """What was sent and received. A part that failed is None, and `failures` has the reason."""

    remote: str
    memory: SyncReport | None = None
    repo: SyncReport | None = None
    """The memory of the repository; also None if it has no remote."""
    sessions: SessionSyncReport | None = None
    settings: SettingsExchange | None = None
    failures: dict[str, str] = {}

    @property
    def summary(self) -> str:
        """What was sent and received, in one line for the user."""
        counts = []
        if self.memory is not None:
            counts.append(("memory", len(self.memory.received), self.memory.sent))
        if self.repo is not None:
            counts.append((_NAME_OF_PART["repo"], len(self.repo.received), self.repo.sent))
        if self.sessions is not None:
            counts.append(("sessions", len(self.sessions.received), len(self.sessions.sent)))
        if self.settings is not None:
            counts.append(("settings", len(self.settings.received), len(self.settings.sent)))
        texts = [f"{name} {came} received, {went} sent" for name, came, went in counts]
        texts += [
            f"{_NAME_OF_PART.get(name, name)} failed: {why}" for name, why in self.failures.items()
        ]
        return f"Synchronized: {' · '.join(texts)}"


async def sync(
    context: ActionContext, remote: str, later: bool = False, quiet: bool = False
) -> Answer | None:
    """Synchronize memory, sessions and settings. Received settings are shown, and only used if the
    user agrees.

    Args:
        later: do not ask about received settings now.
        quiet: in a session, show no steps and occupy no turn: only the last line is returned.
    """
    remote = remote_address(remote, context.cwd)
    repo_remote = await _repo_remote(context)
    if context.session is None:
        return await _in_shell(context, remote, repo_remote, asks=not later)
    done: list[SyncedAll] = []  # gets the result, if it succeeds
    steps = _in_session(context.session, context.catalog.store, remote, repo_remote, done)
    async with context.session.session_memory.receiving():
        if quiet:
            notices = [event async for event in steps if isinstance(event, Notice)]
            return Answer(done, [line(notice.text) for notice in notices[-1:]])
        await context.front_end.run(steps)
    if not done:
        return None  # it failed or was interrupted, and that was shown
    view = await _ask_about_settings(context, done[0], asks=not later)
    return Answer(done[0], view) if view else None


async def _repo_remote(context: ActionContext) -> str:
    """The remote of the repository's memory; empty if it has none, or memory is off."""
    try:
        return await context.memory(
            lambda memory: long_term.repo_remote(memory.editor), reports=False
        )
    except OuroError as error:
        log.warning("sync: the memory of the repository is left out: %s", error)
        return ""


async def _in_shell(context: ActionContext, remote: str, repo_remote: str, *, asks: bool) -> Answer:
    """Synchronize without a session; then, if `asks`, ask the user about received settings. The exit
    code is 1 if something could not be synchronized.
    """
    assert context.session is None

    async def sync_memory(scope: Scope, address: str, _progress: Progress) -> SyncReport:
        return await context.sync_memory(scope, address)

    projects = await _projects(context.cwd, context.store)
    with context.synchronizing():  # not in a thread: Ctrl+C ends it at any moment
        done = await _synchronize(
            remote, repo_remote, sync_memory, projects, context.sync_progress, in_thread=False
        )
    view: View = [line(done.summary, level="warning" if done.failures else "info")]
    for report in filter(None, (done.memory, done.repo)):
        unsent = long_term.unsent_summary(report, "ouro ")
        view += [line(unsent)] if unsent else []
        view += disputed_view(report)
    return Answer(
        done,
        [*view, *await _ask_about_settings(context, done, asks=asks)],
        1 if done.failures else 0,
    )


async def _in_session(
    session: Session, store: MemoryStore, remote: str, repo_remote: str, done: list[SyncedAll]
) -> AsyncGenerator[Event, None]:
    """Synchronize in a session, and yield a notice for each step, then one with the result, or with the
    error. Closing the generator stops the synchronization before its next step.

    `done`: gets the result, because a generator of events cannot return it.
    """
    steps: asyncio.Queue[str | None] = asyncio.Queue()
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    def progress(what: str) -> None:
        """Queue a step for the user, from any thread. Raises UsageError if the generator was closed."""
        if stopped.is_set():
            raise UsageError(_INTERRUPTED)
        if what:
            loop.call_soon_threadsafe(steps.put_nowait, what)

    async def sync_memory(scope: Scope, address: str, progress: Progress) -> SyncReport:
        def work(editor: MemoryEditor) -> SyncReport:
            return long_term.sync_scope(editor, scope, address, progress)

        return await session.session_memory.with_editor(work)

    projects = await _projects(session.cwd, store)
    work = _synchronize(remote, repo_remote, sync_memory, projects, progress, in_thread=True)
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda _task: steps.put_nowait(None))
    try:
        while (what := await steps.get()) is not None:
            ends = " Esc ends it." if what.startswith("waiting") else ""
            yield Notice(f"Sync: {what} …{ends}")
        result = await task
    except OuroError as error:
        yield Notice(str(error), "error")
        return
    finally:
        stopped.set()
        # The error of a task that nobody awaits any more is read, so that asyncio does not log it.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    done.append(result)
    for report in filter(None, (result.memory, result.repo)):
        if unsent := long_term.unsent_summary(report, "/"):
            yield Notice(unsent)
    yield Notice(result.summary, "warning" if result.failures else "info")


async def _synchronize(
    remote: str,
    repo_remote: str,
    sync_memory: SyncMemory,
    projects: Sequence[Path],
    progress: Progress,
    *,
    in_thread: bool,
) -> SyncedAll:
    """Synchronize the parts, one after the other; one that fails does not stop the others. The
    memory of the repository has a remote of its own: `repo_remote`, or none.

    Args:
        remote: for all other parts; empty: for each part the one that it had before.
        in_thread: whether sessions and settings are synchronized in a thread.

    Raises:
        UsageError: no remote is known, or the user has interrupted it.
    """
    from ouro.memory.session_sync import sync_sessions
    from ouro.memory.settings_remote import SettingsRemote

    encrypts = load_settings().sessions.encrypt
    remotes = _remotes()
    result = SyncedAll(remote or next(filter(None, remotes.values()), ""))
    if not result.remote:
        raise UsageError(
            "There is no remote yet.",
            "Name your own git repository, or set `memory.remote`.",
            ["sync git@example.org:me/ouro.git"],
        )

    async def run(work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work) if in_thread else work()

    def exchange() -> SettingsExchange:
        """Exchange the settings."""
        address = remote or remotes["settings"]
        return SettingsRemote(_settings_dir(), address, progress).exchange(shared_settings())

    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "memory": lambda: sync_memory("user", remote or remotes["memory"], progress),
        "repo": lambda: sync_memory("repo", repo_remote, progress),
        "sessions": lambda: run(
            lambda: sync_sessions(
                remote or remotes["sessions"], projects, progress, encrypt=encrypts
            )
        ),
        "settings": lambda: run(exchange),
    }
    if not repo_remote:
        del parts["repo"]
    for name, part in parts.items():
        try:
            setattr(result, name, await part())
        except OuroError as error:
            if error.message == _INTERRUPTED:
                raise
            result.failures[name] = one_line(clean(error.message), 200)
    return result


async def _projects(cwd: Path, store: MemoryStore) -> list[Path]:
    """The current folder, and those of all sessions, if they exist on this machine."""
    folders = [cwd, *(text_path(info.project) for info in await store.list_sessions())]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _remotes() -> dict[str, str]:
    """The remote of each part; empty if none is known. After an `ouro sync` its remote is that of all
    parts. Before the first one, memory and sessions have their own remotes; a part without one has
    that of another part.
    """
    from ouro.memory.session_remote import last_remote
    from ouro.memory.settings_remote import last_settings_remote

    settings, home = load_settings(), get_home()
    remote_of_all = last_settings_remote(_settings_dir())  # only `ouro sync` exchanges settings
    sessions = settings.sessions.remote or last_remote(home / "sessions.git")
    shared = remote_of_all or settings.memory.remote or sessions
    return {
        "memory": remote_of_all or settings.memory.remote or shared,
        "sessions": remote_of_all or sessions or shared,
        "settings": shared,
    }


def _settings_dir() -> Path:
    """The folder of the git repository that exchanges settings."""
    return get_home() / "settings.git"


async def _ask_about_settings(context: ActionContext, done: SyncedAll, *, asks: bool) -> View:
    """Ask the user about each received setting, and use it if they agree: the remote never decides.
    If `asks` is False or no user can be asked, only list the settings, and use none.
    """
    from ouro.memory.settings_remote import SettingsRemote

    received = done.settings.received if done.settings else {}
    if not received:
        return []
    if not asks or not context.can_ask:
        names = ", ".join(sorted(received))
        return [line(f"Not used before you agree: {clean(names)}. ", CommandText("sync"))]
    remote = SettingsRemote(_settings_dir(), done.remote)
    own, view = await asyncio.to_thread(shared_settings), []
    for name, value in sorted(received.items()):
        view += await _ask_about_setting(context, remote, name, value, own=own.get(name))
    return view


async def _ask_about_setting(
    context: ActionContext, remote: SettingsRemote, name: str, value: str, own: str | None
) -> View:
    """Ask whether a received setting is used, save it, and record the answer. An invalid one is not
    asked about.
    """
    if problem := _problem_of(name, value):
        log.warning("sync: a received setting is not used: %s", problem)
        await asyncio.to_thread(remote.answer, name, value, own, used=False)
        return [line(f"Not used: {one_line(clean(problem), 200)}", level="warning")]
    present = one_line(clean(own), 80) if own is not None else "the default"
    question = f"Use `{name}: {one_line(clean(value), 200)}` of another machine? Now: {present}"
    is_used = await confirm(context, question, "Use it")
    if is_used:
        await asyncio.to_thread(write_setting, name, value)
    await asyncio.to_thread(remote.answer, name, value, own, used=is_used)
    what = "In use from the next start on" if is_used else "Kept as it was here"
    return [line(f"{what}: {name}")]


def _problem_of(name: str, value: str) -> str:
    """The reason why a received setting may not be used; empty if it may."""
    if name not in SHARED_SETTINGS:
        return f"`{name}` is not among the settings that are shared."
    try:
        check_setting(name, value)
    except ConfigError as error:
        return error.message
    return ""
