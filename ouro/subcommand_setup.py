"""What `ouro WORD` gets of the current folder: its settings, and a session that is not saved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.commands.current_folder import FolderSettings, warn
from ouro.errors import NoModelError
from ouro.events import Notice
from ouro.llm import ModelSpec, ScriptedModel
from ouro.safety import TrustStore, acting_files
from ouro.settings_sources import load_settings, project_servers
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import get_trust_path

if TYPE_CHECKING:
    from ouro.session import Session


def folder_settings(folder: Path | None = None) -> FolderSettings:
    """The settings of a folder (by default of the current one). The files of the project are only
    read if it is trusted. Raises ConfigError.
    """
    root, is_trusted, _notices = trust_of(folder or Path.cwd())
    settings = load_settings(root if is_trusted else None)
    return FolderSettings(
        root, is_trusted, settings, project_servers=project_servers(root) if is_trusted else {}
    )


@asynccontextmanager
async def unsaved_session() -> AsyncIterator[Session]:
    """Open a session without messages, for a command that needs one, and yield it. It is not saved, but
    its costs count. Without a usable model it opens too, and each request fails.
    """
    from ouro.assemble import open_session
    from ouro.session import OpenRequest
    from ouro.session_options import Options

    options = Options(Path.cwd().resolve())
    try:
        session = await open_session(options, OpenRequest())
    except NoModelError as error:
        failing_model = ScriptedModel(repeat(error), spec=ModelSpec("none"))
        session = await open_session(replace(options, ready_model=failing_model), OpenRequest())

    async def show_notices() -> None:
        """Pass the notices of the session to `warn`, until it is closed."""
        async for event in session.events():
            if isinstance(event, Notice):
                warn(event.text)

    reading = asyncio.create_task(show_notices())
    try:
        yield session
    finally:
        await session.close()
        await reading


def trust_of(folder: Path) -> tuple[Path, bool, list[str]]:
    """Three things about the repository of a folder: its root; whether it is trusted, as one without
    files that ouro would obey always is; and a list with the problem of the trust file, empty if it
    has none.
    """
    root = find_root(folder)
    files = acting_files(root, folder)
    store = TrustStore(get_trust_path())
    is_trusted = not files or store.is_trusted(root, files)
    problems = [store.notice] if store.notice else []
    return root, is_trusted, problems
