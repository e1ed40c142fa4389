"""/add-dir: further folders of the workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.commands.action import Answer
from ouro.commands.render import line
from ouro.commands.slash import SessionContext
from ouro.errors import UsageError
from ouro.utils.ouro_paths import expand_home, tilde


async def add_dir(context: SessionContext, folder: str) -> Answer:
    """Add a folder to the workspace of this session: tools may read and write it, and commands may
    write there in the sandbox. If the name is empty, list the added folders.
    """
    session = context.session
    added_folders = session.permissions.workspace.added
    if not folder:
        names = ", ".join(map(tilde, added_folders)) or "none"
        paths = list(map(str, added_folders))
        return Answer(paths, [line(f"Further folders of the workspace: {names}.")])
    path = Path(session.cwd, expand_home(folder))
    if not path.is_dir():
        raise UsageError(f"{folder} is not a folder.")
    real = await asyncio.to_thread(path.resolve)
    session.permissions.workspace.add(real)
    session.background.shell.confinement.add_writable(real)
    return Answer(str(real), [line(f"{tilde(real)} is part of the workspace of this session.")])
