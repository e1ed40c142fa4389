"""What the tools of one agent work with: a workspace, its sandbox, its files and a shell.

The agent of a session and its subagents are built from the same functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.agent.tool_runner import PermissionJudge, without_checkpoint
from ouro.assemble_extensions import FoundExtensions
from ouro.errors import ToolError
from ouro.llm import ModelSource
from ouro.memory import long_term
from ouro.safety import (
    Confinement,
    Effect,
    GuardedMemory,
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
from ouro.utils.git import find_root
from ouro.utils.runtime import get_home

if TYPE_CHECKING:
    from ouro.safety import DevContainer
    from ouro.tools.memory_search import SearchMemory


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
    """None: no checkpoints are taken."""
    memory: long_term.SessionMemory

    @property
    def changing(self) -> Callable[[Effect, Sequence[str]], AbstractAsyncContextManager[None]]:
        """A tool that may change files runs inside of it (`ToolRunner.changing`)."""
        return self.files.changing if self.files else without_checkpoint


def build_confinement(
    basis: SessionBasis, cwd: Path, unreadable: Callable[[], Sequence[Path]]
) -> Confinement:
    """What confines commands that run in `cwd`: the sandbox of this machine, or a container;
    `unreadable` returns what rules deny to read.
    """
    settings = basis.settings.sandbox
    make: Callable[..., Confinement] = Confinement
    if settings.in_container:
        from ouro.safety import ContainerConfinement  # late: few sessions use containers

        read = partial(_trusted_devcontainer, basis.inputs)
        make = partial(ContainerConfinement, devcontainer=read)
    return make(
        cwd,
        get_home() / "sandbox",
        settings,
        also_writable=basis.options.add_dirs,
        memory=[scope.store.folder for scope in basis.opened_scopes],
        visible=[basis.transcript.outputs],
        unreadable=unreadable,
    )


def container_files(root: Path, options: Options) -> tuple[Path, ...]:
    """The files of a project that say in which container commands run, if the user wants that: only
    then they must be trusted. Blocks.
    """
    users = build_settings(explain_settings(settings_by_place(None, options.settings))).sandbox
    if not (users.in_container and users.devcontainer):
        return ()
    from ouro.safety import devcontainer_files

    return devcontainer_files(root)


def _trusted_devcontainer(inputs: SessionInputs) -> DevContainer:
    """The devcontainer of the project.

    Raises:
        ToolError: its files are not trusted as they are now, or it cannot be used.
    """
    from ouro.safety import devcontainer_files, read_devcontainer

    root = find_root(inputs.options.cwd)
    files = devcontainer_files(root)
    if files and not (inputs.trusted and inputs.trust.is_trusted(root, files)):
        names = ", ".join(str(path.relative_to(root)) for path in files)
        raise ToolError(
            f"{names} is not trusted, so no container is started, and no command runs. Start ouro"
            " again and trust it, or use --no-sandbox."
        )
    return read_devcontainer(root)


def build_workspace(basis: SessionBasis, cwd: Path, confinement: Confinement) -> Workspace:
    stores = [scope.store for scope in basis.opened_scopes]
    guarded = [
        GuardedMemory(store.folder, None if store.is_shared else store.repository.state_dir)
        for store in stores
    ]
    return Workspace(
        cwd,
        (*basis.options.add_dirs, basis.transcript.outputs),
        guarded,
        confines=confinement.is_on_or_disabled,
        hides=lambda: confinement.is_on,
        in_container=confinement.in_container,
    )


def build_files_seen(shared: AgentServices, workspace: Workspace) -> FilesSeen:
    """The files that an agent has read, which guards its changes."""
    basis = shared.basis
    return FilesSeen(
        workspace,
        basis.mask.kind_in_memory,
        shared.memory.recording,
        basis.options.editor.buffers,
        checks=shared.extensions.of_session.language_servers,
    )


def build_search(shared: AgentServices) -> SearchMemory | None:
    """The search of the tool `memory_search`; None if memory is off."""
    lookup, basis = shared.memory.lookup, shared.basis
    return long_term.search_for(lookup, basis.opened_scopes, basis.root) if lookup else None


def build_shell(
    basis: SessionBasis,
    cwd: Path,
    jobs: ShellJobs,
    confinement: Confinement,
    terminals: Terminals | None = None,
) -> Shell:
    """The tool `shell`; `terminals`: those of an editor, in which its commands run."""
    environment = child_environment(os.environ, secrets=basis.inputs.catalog.key_values())
    seconds = basis.settings.shell.timeout_seconds
    return Shell(cwd, jobs, environment, confinement, seconds, terminals)
