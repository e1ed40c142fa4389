"""Build what the tools of an agent work with: a workspace, its sandbox, its files and a shell.

The same functions build it for the agent of a session and for its subagents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.agent.tool_runner import PermissionJudge, without_checkpoint
from ouro.assemble_extensions import FoundExtensions
from ouro.errors import ConfigError, ToolError, UsageError
from ouro.llm import ModelSource
from ouro.memory import long_term
from ouro.messages import Usage
from ouro.safety import (
    Confinement,
    Effect,
    GuardedMemory,
    LateCheckpoints,
    Permissions,
    Workspace,
    child_environment,
)
from ouro.session.budget import Budget
from ouro.session.file_undo import FileUndo
from ouro.session.session_hooks import SessionHooks
from ouro.session_options import Options, SessionBasis, SessionInputs
from ouro.settings_sources import build_settings, explain_settings, settings_by_place
from ouro.tools.files_seen import FilesSeen
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.shell_process import Terminals
from ouro.tools.tool import AnyTool
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import expand_home, get_checkpoints_dir, get_home

if TYPE_CHECKING:
    from ouro.llm import ProviderSearch
    from ouro.safety import DevContainer
    from ouro.tools.memory_search import SearchMemory


SEARCH_VARIABLES = (
    "BRAVE_API_KEY",
    "BRAVE_SEARCH_API_KEY",
    "EXA_API_KEY",
    "TAVILY_API_KEY",
    "KAGI_API_KEY",
    "SEARXNG_URL",
)
"""The variables with a key or an address for `web_search`."""


class AgentServices(msgspec.Struct, frozen=True, eq=False):
    """What the agent of a session and its subagents share."""

    basis: SessionBasis
    budget: Budget
    models: ModelSource
    confinement: Confinement
    permissions: Permissions
    judge: PermissionJudge | None
    extensions: FoundExtensions
    hooks: SessionHooks
    files: FileUndo | None
    """The undo of files; None if no checkpoints are taken."""
    session_memory: long_term.SessionMemory

    @property
    def changing(self) -> Callable[[Effect, Sequence[str]], AbstractAsyncContextManager[None]]:
        """The context in which a tool that may change files runs (`ToolRunner.changing`)."""
        return self.files.changing if self.files else without_checkpoint


def build_confinement(
    basis: SessionBasis, cwd: Path, unreadable: Callable[[], Sequence[Path]]
) -> Confinement:
    """Build what confines commands that run in `cwd`: the sandbox of this machine, or a container.

    Args:
        unreadable: returns the files that rules deny to read.
    """
    settings = basis.settings.sandbox
    make_confinement: Callable[..., Confinement] = Confinement
    if settings.in_container:
        from ouro.safety import ContainerConfinement  # imported late: few sessions use containers

        read_trusted = partial(_trusted_devcontainer, basis.inputs)
        make_confinement = partial(ContainerConfinement, devcontainer=read_trusted)
    return make_confinement(
        cwd,
        get_home() / "sandbox",
        settings,
        also_writable=basis.options.add_dirs,
        memory=[scope.store.folder for scope in basis.opened_scopes],
        visible=[basis.memory.outputs],
        unreadable=unreadable,
    )


def container_files(root: Path, options: Options) -> tuple[Path, ...]:
    """The files of a project that define its container, if the user wants to run commands in it:
    only then must they be trusted. Blocks.
    """
    settings_of_user = build_settings(
        explain_settings(settings_by_place(project=None, flags=options.settings))
    )
    sandbox = settings_of_user.sandbox
    if not (sandbox.in_container and sandbox.devcontainer):
        return ()
    from ouro.safety import devcontainer_files

    return devcontainer_files(root)


def _trusted_devcontainer(inputs: SessionInputs) -> DevContainer:
    """Read the devcontainer of the project.

    Raises:
        ToolError: its files are not trusted as they are now, or it cannot be used.
    """
    from ouro.safety import devcontainer_files, read_devcontainer

    root = find_root(inputs.options.cwd)
    files = devcontainer_files(root)
    is_trusted = inputs.is_trusted and inputs.trust_store.is_trusted(root, files)
    if files and not is_trusted:
        names = ", ".join(str(path.relative_to(root)) for path in files)
        raise ToolError(
            f"{names} is not trusted, so no container is started, and no command runs. Start ouro"
            " again and trust it, or use --no-sandbox."
        )
    return read_devcontainer(root)


def build_workspace(basis: SessionBasis, cwd: Path, confinement: Confinement) -> Workspace:
    """Build the workspace of an agent that works in `cwd`, with the folders of memory guarded.

    A sandbox that the user has disabled counts as confining: the user wants commands to run without
    one. But only a sandbox that is on hides files from commands.
    """
    stores = [scope.store for scope in basis.opened_scopes]
    # A shared memory is in the user's own repository, which has its history: no state folder.
    guarded = [
        GuardedMemory(store.folder, None if store.is_shared else store.repository.state_dir)
        for store in stores
    ]
    workspace = Workspace(
        root=cwd,
        extra=(*basis.options.add_dirs, basis.memory.outputs),
        memory=guarded,
        confines=confinement.is_on_or_disabled,
        hides=lambda: confinement.is_on,
        in_container=confinement.in_container,
        confines_allowed=basis.settings.sandbox.confine_allowed,
    )
    for folder in (expand_home(name) for name in basis.settings.sandbox.writable):
        if folder.is_dir():  # the sandbox cannot open one that is not there
            workspace.open_for_commands(folder)
    return workspace


def build_file_undo(basis: SessionBasis, permissions: Permissions) -> FileUndo | None:
    """Build the undo of files; None if checkpoints are off, or the session is not saved."""
    settings, memory = basis.settings.checkpoints, basis.memory
    if not settings.enabled or basis.options.ephemeral:
        return None
    checkpoints = LateCheckpoints(
        root=basis.cwd,
        base=get_checkpoints_dir(),
        session=memory.session_id,
        max_file_bytes=settings.max_file_mb * 1_000_000,
    )
    return FileUndo(
        late_checkpoints=checkpoints,
        memory=memory,
        tasks=basis.tasks,
        keep_days=settings.keep_days,
        max_bytes=settings.max_mb * 1_000_000,
        resolve=permissions.workspace.resolve,
    )


def build_files_seen(shared: AgentServices, workspace: Workspace) -> FilesSeen:
    """Build the record of the files that an agent has read, which guards what it changes."""
    basis = shared.basis
    return FilesSeen(
        workspace=workspace,
        finds_secret=basis.mask.kind_in_memory,
        recording=shared.session_memory.recording,
        editor=basis.options.editor.buffers,
        checks=shared.extensions.of_session.language_servers,
    )


def build_search(shared: AgentServices) -> SearchMemory | None:
    """Build the search of the tool `memory_search`; None if memory is off."""
    lookup, basis = shared.session_memory.lookup, shared.basis
    return long_term.make_search(lookup, basis.opened_scopes, basis.root) if lookup else None


def web_tools(basis: SessionBasis, models: ModelSource, problems: list[str]) -> Sequence[AnyTool]:
    """The tool `web_search`, as a list of one; empty if no backend is set, or if it cannot be used. In the
    latter case a line is added to `problems`.
    """
    settings = basis.settings.web
    if not settings.search and not any(map(os.environ.get, SEARCH_VARIABLES)):
        return ()
    # Imported late: most sessions have no backend.
    from ouro.tools.web_search import choose_search

    try:
        if settings.search in ("model", "ddgs"):
            return [_search_without_key(basis, models, settings.search)]
        tool = choose_search(settings.search, settings.search_url, os.environ)
    except ConfigError as error:
        problems.append(error.message)
        return ()
    return [tool] if tool else ()


def _search_without_key(basis: SessionBasis, models: ModelSource, name: str) -> AnyTool:
    """The web search that needs no key of its own: by DuckDuckGo if `name` is `ddgs`, otherwise by the
    provider of the model.
    """
    from ouro.llm import make_provider_search
    from ouro.tools.ddgs_search import DdgsSearch
    from ouro.tools.model_search import ModelSearch

    def find() -> ProviderSearch:
        model = models.main
        return make_provider_search(model, *basis.inputs.catalog.route(model.spec.name))

    def note_cost(model: str, usage: Usage | None) -> None:
        basis.memory.note_cost("search", model, usage)

    return DdgsSearch() if name == "ddgs" else ModelSearch(find, note_cost)


def require_free_names(tools: Sequence[AnyTool], taken: Collection[str]) -> None:
    """Raises UsageError if a tool of the program has the name of another tool."""
    seen: set[str] = set(taken)
    for tool in tools:
        if tool.name in seen:
            raise UsageError(
                f"There are two tools with the name `{tool.name}`.", "Give yours another name."
            )
        seen.add(tool.name)


def build_shell(
    basis: SessionBasis,
    cwd: Path,
    jobs: ShellJobs,
    confinement: Confinement,
    terminals: Terminals | None = None,
) -> Shell:
    """Build the tool `shell`.

    Args:
        terminals: the terminals of an editor, if commands run in them.
    """
    environment = child_environment(os.environ, secrets=basis.inputs.catalog.key_values())
    seconds = basis.settings.shell.timeout_seconds
    return Shell(
        root=cwd,
        jobs=jobs,
        environment=environment,
        confinement=confinement,
        timeout_seconds=seconds,
        terminals=terminals,
    )
