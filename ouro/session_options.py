"""What a session is built from: the options of the command line or a program, with the settings of
the folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import NoModelError
from ouro.llm import Catalog, Model, Role
from ouro.memory.backend import MemoryStore, SessionInfo
from ouro.memory.manager import MemoryManager
from ouro.safety import TrustStore
from ouro.session import OpenRequest
from ouro.session.session_tasks import SessionTasks
from ouro.settings import McpServerSettings, Settings
from ouro.settings_sources import SettingsByPlace, explain_settings
from ouro.tools.files_seen import EditorBuffers
from ouro.tools.tool import AnyTool
from ouro.utils.path_text import path_text, text_path

if TYPE_CHECKING:
    from ouro.tools.shell_process import Terminals


class Options(msgspec.Struct, frozen=True):
    """What the command line or a program sets for every session that it opens."""

    cwd: Path
    settings: Mapping[str, Any] = {}
    """By dotted name (None: not set); they override all other places."""
    add_dirs: tuple[Path, ...] = ()
    ephemeral: bool = False
    interactive: bool = False
    """Whether a user is there: titles and notes are made in the background, if the settings allow
    it.
    """
    trust: bool = False
    memory: bool = True
    """Whether long-term memory is read and written, if the settings allow it."""
    ready_model: Model | None = None
    """A model to use instead of those of the catalog: the recorded one of `ouro demo`."""
    tools: tuple[AnyTool, ...] = ()
    """Further tools, of the program that opens the sessions."""
    editor: EditorBuffers | None = None
    """The unsaved files of an editor."""
    terminals: Terminals | None = None
    """The terminals of an editor, for the commands of the agent."""
    mcp_servers: Mapping[str, McpServerSettings] = {}
    """MCP servers from an editor, by name; servers in the settings win."""


class SessionInputs(msgspec.Struct):
    """The inputs from which a session is built, after ouro knows whether the folder is trusted."""

    options: Options
    places: SettingsByPlace
    settings: Settings
    trust: TrustStore
    trusted: bool
    catalog: Catalog
    roles: Mapping[Role, str]
    """The full names of the models for background work."""
    notices: list[str] = msgspec.field(default_factory=list)

    def model_name(self, used_before: str = "") -> str:
        """The model that the command line, the resumed session or the settings name, in this order."""
        options, catalog = self.options, self.catalog
        if options.ready_model:
            return options.ready_model.spec.name
        if used_before and not options.settings.get("model"):
            if not (reason := catalog.unusable(used_before)):
                return used_before
            self.notices.append(
                f"{used_before}, which this session used, cannot be used now: {reason}."
            )
        try:
            return catalog.resolve(self.settings.model or catalog.default())
        except NoModelError as error:
            source = explain_settings(self.places)["model"].source
            if source in ("default", "flag"):
                raise
            raise NoModelError(
                f"{error.message} The setting `model` is from {source}.", error.hint
            ) from error


async def open_transcript(
    store: MemoryStore,
    inputs: SessionInputs,
    request: OpenRequest,
    resumed: SessionInfo | None,
    commits: Mapping[str, str],
    tasks: SessionTasks,
) -> MemoryManager:
    """The transcript of a new session, or of the `resumed` one."""
    project = path_text(inputs.options.cwd)
    if resumed is None:
        model, new_id = inputs.model_name(), request.new_id
        return MemoryManager.start(
            store,
            project=project,
            model=model,
            commits=commits,
            on_notice=tasks.warn,
            session_id=new_id,
        )
    if request.read_only:
        inputs.notices.append("Opened read-only: new messages are not saved.")
    if resumed.project != project and not text_path(resumed.project).is_dir():
        hint = "" if request.fork else " --fork would make a copy that belongs to this folder."
        notice = (
            f"{resumed.project}, the folder of this session, does not exist: it continues in"
            f" {project}.{hint}"
        )
        inputs.notices.append(notice)
    return await MemoryManager.resume(
        store,
        resumed.id,
        project=project,
        read_only=request.read_only,
        fork=request.fork,
        on_notice=tasks.warn,
        keeps_memory=request.part == "then",
    )
