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
from ouro.utils.ouro_paths import tilde

_SAVE_FLAG = "--save"


async def style(context: SessionContext, name: str) -> Answer | None:
    """Use an output style from the next message on; with `--save` also in new sessions."""
    styles = context.session.extensions.styles
    words = name.split()
    is_saved = _SAVE_FLAG in words
    style_name = " ".join(word for word in words if word != _SAVE_FLAG)
    if not style_name and not is_saved:
        choices = [
            Choice(NO_STYLE, NO_STYLE, "as the model answers by itself"),
            *(
                Choice(output_style.name, output_style.name, output_style.description)
                for output_style in styles.all.values()
            ),
        ]
        style_name = (
            await context.choose("How should the agent answer?", choices, styles.name) or ""
        )
        if not style_name:
            return None
    if style_name:
        styles.use(style_name)
    used = styles.name
    if is_saved:
        await asyncio.to_thread(styles.save)
    when = "in this session and in new ones" if is_saved else "from your next message on"
    return Answer({"style": used}, [line(f"Output style: {used}, {when}.")])


async def add_dir(context: SessionContext, folder: str) -> Answer:
    """Add a folder to the workspace of this session; without one, list the added folders."""
    session = context.session
    added_folders = session.permissions.workspace.added
    if not folder:
        names = ", ".join(map(tilde, added_folders)) or "none"
        return Answer(
            list(map(str, added_folders)), [line(f"Further folders of the workspace: {names}.")]
        )
    path = Path(session.cwd, Path(folder).expanduser())
    if not path.is_dir():
        raise UsageError(f"{folder} is not a folder.")
    real = await asyncio.to_thread(path.resolve)
    session.permissions.workspace.add(real)
    session.background.shell.confinement.add_writable(real)
    return Answer(str(real), [line(f"{tilde(real)} is part of the workspace of this session.")])
