"""What a session is built from: the options of the command line or a program, with the settings of
the folder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.agent.tool_runner import PermissionJudge
from ouro.errors import ConfigError, NoModelError
from ouro.llm import Catalog, Effort, Model, ModelChoice, ModelSource, Role
from ouro.memory.backend import MemoryStore, SessionInfo
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.safety import Permissions, SecretMask, TrustStore, secret_values
from ouro.session import OpenRequest
from ouro.session.session_tasks import SessionTasks
from ouro.settings import McpServerSettings, Settings
from ouro.settings_sources import SettingsByPlace, explain_settings, save_setting
from ouro.tools.files_seen import EditorBuffers
from ouro.tools.tool import AnyTool
from ouro.utils.ouro_paths import get_worktrees_dir
from ouro.utils.path_encoding import path_text, text_path

if TYPE_CHECKING:
    from ouro.llm import FavoriteModels
    from ouro.memory.long_term import MemoryScopes, ScopeMemory
    from ouro.tools.shell_process import Terminals

_COMPILING_RULES = (
    "ouro compiles the rules that find secrets, once on this machine: this takes some seconds."
)


class EditorServices(msgspec.Struct, frozen=True):
    """What an editor offers for the sessions in it."""

    buffers: EditorBuffers | None = None
    """The files with unsaved changes."""
    terminals: Terminals | None = None
    """The terminals in which the commands of the agent run."""
    mcp_servers: Mapping[str, McpServerSettings] = {}
    """The MCP servers by their names; a server of the settings with the same name wins."""


class Options(msgspec.Struct, frozen=True):
    """What the command line or a program sets for every session that it opens."""

    cwd: Path
    settings: Mapping[str, Any] = {}
    """Settings by their dotted names, which override all other places; None if one is not set."""
    add_dirs: tuple[Path, ...] = ()
    """Further folders of the workspace."""
    ephemeral: bool = False
    """Whether sessions are only in memory, and not saved."""
    interactive: bool = False
    """Whether there is a user: then titles and notes are made in the background, if the settings
    allow it.
    """
    trust: bool = False
    """Whether the user trusts the files of the project as they are now."""
    memory: bool = True
    """Whether long-term memory is read and written, if the settings allow it."""
    ready_model: Model | None = None
    """A model to use instead of those of the catalog: the recorded one of `ouro demo`."""
    tools: tuple[AnyTool, ...] = ()
    """The tools of the program that opens the sessions."""
    editor: EditorServices = EditorServices()
    more_instructions: str = ""
    """A text that is appended to the system prompt."""
    safe: bool = False
    """Use no extension, no instructions and settings of the project, and no memory."""

    @property
    def uses_memory(self) -> bool:
        return self.memory and not self.ephemeral and not self.safe


class SessionInputs(msgspec.Struct):
    """The inputs from which a session is built, after ouro knows whether the folder is trusted."""

    options: Options
    settings_by_place: SettingsByPlace
    settings: Settings
    trust_store: TrustStore
    is_trusted: bool
    """Whether the files of the project are obeyed."""
    catalog: Catalog
    roles: Mapping[Role, str]
    """The full names of the models for background work."""
    notices: list[str] = msgspec.field(default_factory=list)

    def model_name(self, used_before: str = "") -> str:
        """The name of the model with which the session begins: that of the command line, of the resumed
        session or of the settings, in this order. If that of the resumed session cannot be used any
        more, a notice is added. Raises NoModelError.

        `used_before`: the model of the resumed session; empty for a new one.
        """
        options, catalog = self.options, self.catalog
        if options.ready_model:
            return options.ready_model.spec.name
        if used_before and not options.settings.get("model"):
            if not (reason := catalog.why_unusable(used_before)):
                return used_before
            self.notices.append(
                f"{used_before}, which this session used, cannot be used now: {reason}."
            )
        try:
            return catalog.resolve(self.settings.model or catalog.default())
        except NoModelError as error:
            source = explain_settings(self.settings_by_place)["model"].source
            if source in ("default", "flag"):
                raise
            raise NoModelError(
                f"{error.message} The setting `model` is from {source}.", error.hint
            ) from error


class SessionBasis(msgspec.Struct, frozen=True, eq=False):
    """What the objects of a session are built from: the inputs, and the opened files."""

    inputs: SessionInputs
    root: Path
    """The repository, or the folder of the session."""
    mask: SecretMask
    tasks: SessionTasks
    session_catalog: SessionCatalog
    memory: MemoryManager
    resumed: SessionInfo | None
    """The state of a session that is resumed."""
    scopes: MemoryScopes | None
    """The long-term memory; None if it is off."""

    @property
    def options(self) -> Options:
        return self.inputs.options

    @property
    def settings(self) -> Settings:
        return self.inputs.settings

    @property
    def cwd(self) -> Path:
        return self.inputs.options.cwd

    @property
    def opened_scopes(self) -> tuple[ScopeMemory, ...]:
        return self.scopes.opened if self.scopes else ()


async def open_transcript(
    store: MemoryStore,
    inputs: SessionInputs,
    request: OpenRequest,
    resumed: SessionInfo | None,
    header_values: Mapping[str, str],
    tasks: SessionTasks,
    *,
    is_private: bool,
) -> MemoryManager:
    """Start the transcript of a new session, or open that of the `resumed` one.

    Args:
        header_values: those of a new session, such as its versions of memory.
        is_private: whether long-term memory is off, so that no memory may be made from it.
    """
    project = path_text(inputs.options.cwd)
    if resumed is None:
        model, new_id = inputs.model_name(), request.new_id
        return MemoryManager.start(
            store,
            project=project,
            model=model,
            commits=header_values,
            on_notice=tasks.warn,
            session_id=new_id,
            is_private=is_private,
        )
    if request.read_only:
        inputs.notices.append("Opened read-only: new messages are not saved.")
    if notice := _folder_notice(resumed, inputs.options.cwd, is_copy=request.fork):
        inputs.notices.append(notice)
    return await MemoryManager.resume(
        store,
        resumed.id,
        project=project,
        read_only=request.read_only,
        fork=request.fork,
        on_notice=tasks.warn,
        keeps_memory=request.part == "then",
        is_private=is_private,
    )


def _folder_notice(resumed: SessionInfo, cwd: Path, *, is_copy: bool) -> str:
    """What the user must know about the folder of a session that continues in `cwd`: it was deleted, or
    the session worked in a worktree and would now change the files of the repository. Else empty.
    """
    project = path_text(cwd)
    folder = text_path(resumed.project)
    if folder == cwd:
        return ""
    name = _worktree_name(folder)
    if name:
        if _worktree_name(cwd) == name:
            return ""
        return (
            f"This session worked in the worktree {name}. It continues in {project}, without what was"
            f" changed there. `ouro --worktree {name} --resume {resumed.id[:8]}` continues in the"
            " worktree."
        )
    if folder.is_dir():
        return ""
    hint = "" if is_copy else " --fork would make a copy that belongs to this folder."
    return (
        f"{resumed.project}, the folder of this session, does not exist: it continues in"
        f" {project}.{hint}"
    )


def _worktree_name(folder: Path) -> str:
    """The name of the worktree of `ouro --worktree` that a folder is in; empty if it is in none. A
    worktree is in the folder `REPOSITORY-DIGEST/NAME` below that of all worktrees.
    """
    worktrees = get_worktrees_dir().resolve()
    if not folder.is_relative_to(worktrees):
        return ""
    parts = folder.relative_to(worktrees).parts
    return parts[1] if len(parts) > 1 else ""


def build_judge(
    inputs: SessionInputs,
    models: ModelSource,
    memory: MemoryManager,
    permissions: Permissions,
    check_budget: Callable[[], None],
) -> PermissionJudge | None:
    """Build the judge: the model that answers permission questions. None if the user has named no
    model, or if it cannot be used, about which a notice is added. The questions are then put to the
    user. Blocks.

    `check_budget`: raises LimitReached if the budget does not allow another call of the judge.
    """
    name = _name_of_judge(inputs, models)
    if not name:
        return None
    from ouro.session.model_judge import Judge  # imported late: it is off by default

    def judge_models() -> Sequence[Model]:
        check_budget()
        return models.models_by_name(name)

    return Judge(name, models=judge_models, memory=memory, permissions=permissions)


def _name_of_judge(inputs: SessionInputs, models: ModelSource) -> str:
    """The name of the model that answers permission questions; empty if the user does.

    Adds a notice if the named model cannot be used.
    """
    name_in_settings, catalog = inputs.settings.permissions.judge, inputs.catalog
    if not name_in_settings:
        return ""
    if inputs.options.ready_model:
        return models.main.spec.name
    try:
        name = catalog.resolve(name_in_settings)
        reason = catalog.why_unusable(name)
    except NoModelError as error:
        name, reason = name_in_settings, error.message.rstrip(".")
    if not reason:
        return name
    notice = f"`permissions.judge` ({name}) cannot be used: {reason}. ouro asks you instead."
    inputs.notices.append(notice)
    return ""


def make_mask(catalog: Catalog, inform: Callable[[str], None]) -> SecretMask:
    """Build the mask of a session, which knows the keys of models and of the environment. It informs
    the user when a text waits for rules that are not compiled yet. Needs a running loop.
    """
    loop = asyncio.get_running_loop()

    def explain_wait() -> None:
        with suppress(RuntimeError):  # the loop has ended, and no user is there
            loop.call_soon_threadsafe(inform, _COMPILING_RULES)

    values = [*catalog.key_values(), *secret_values(os.environ)]
    return SecretMask(values, on_wait=explain_wait)


def build_models(
    inputs: SessionInputs, used_before: str, mask: SecretMask, check_budget: Callable[[], None]
) -> ModelSource:
    """Build the source of models. It begins with the model that the command line, the session or the
    settings name. If the options have a ready model, as those of `ouro demo`, it is the only one.

    Args:
        used_before: the model of a resumed session; empty for a new session.
        mask: learns the keys of models.
        check_budget: raises LimitReached if the budget allows no background call.
    """
    name = inputs.model_name(used_before)
    if ready := inputs.options.ready_model:
        return ModelSource(
            name, effort="off", make=lambda _name, _effort: [ready], choices=_find_no_choices
        )
    catalog, settings = inputs.catalog, inputs.settings
    catalog.on_new_key(mask.learn)

    def make_models(name: str, effort: Effort) -> Sequence[Model]:
        """Make the model of this name, and after it those that are asked when it fails."""
        try:
            catalog.reload()  # the user may have changed the settings since
        except ConfigError as error:
            raise NoModelError(error.message, error.hint) from error
        models = [catalog.make(model, effort) for model in (name, *catalog.fallbacks(name))]
        mask.learn(catalog.key_values())  # a key from a key command is known only now
        return models

    def list_choices() -> tuple[ModelChoice, ...]:
        """The models to choose from. Raises ConfigError, which the picker shows."""
        catalog.reload()
        mask.learn(catalog.key_values())
        return catalog.choices()

    def favorites() -> FavoriteModels:
        from ouro.llm import FavoriteModels  # imported late: few sessions need it

        return FavoriteModels(settings.models.favorites, partial(save_setting, "models.favorites"))

    return ModelSource(
        name,
        settings.effort,
        make=make_models,
        choices=lambda: asyncio.to_thread(list_choices),
        roles=inputs.roles,
        check_budget=check_budget,
        favorites=favorites,
    )


async def _find_no_choices() -> tuple[ModelChoice, ...]:
    """The models to choose from in a session with a ready model."""
    return ()
