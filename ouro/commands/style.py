"""/style and /add-dir: how the agent answers, and where it works."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.commands.action import Answer
from ouro.commands.render import line
from ouro.commands.slash import SessionContext
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.extensions import NO_STYLE
from ouro.utils.runtime import tilde

_SAVE = "--save"


async def style(context: SessionContext, name: str) -> Answer | None:
    """Use an output style from the next message on; with `--save` also in new sessions."""
    styles = context.session.extensions.styles
    words = name.split()
    is_saved = _SAVE in words
    wanted = " ".join(word for word in words if word != _SAVE)
    if not wanted and not is_saved:
        choices = [
            Choice(NO_STYLE, NO_STYLE, "as the model answers by itself"),
            *(Choice(found.name, found.name, found.description) for found in styles.all.values()),
        ]
        wanted = await context.choose("How should the agent answer?", choices, styles.name) or ""
        if not wanted:
            return None
    if wanted:
        styles.use(wanted)
    used = styles.name
    if is_saved:
        await asyncio.to_thread(styles.save)
    when = "in this session and in new ones" if is_saved else "from your next message on"
    return Answer({"style": used}, [line(f"Output style: {used}, {when}.")])


async def add_dir(context: SessionContext, folder: str) -> Answer:
    """Add a folder to the workspace of this session."""
    session = context.session
    added = session.permissions.workspace.added
    if not folder:
        named = ", ".join(map(tilde, added)) or "none"
        return Answer(list(map(str, added)), [line(f"Further folders of the workspace: {named}.")])
    path = Path(session.cwd, Path(folder).expanduser())
    if not path.is_dir():
        raise UsageError(f"{folder} is not a folder.")
    real = await asyncio.to_thread(path.resolve)
    session.permissions.workspace.add(real)
    session.background.shell.confinement.add_writable(real)
    return Answer(str(real), [line(f"{tilde(real)} is part of the workspace of this session.")])
