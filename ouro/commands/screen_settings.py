"""/theme and /vim: the colours of the screen, and the keys of its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext


async def theme(context: SessionContext, name: str) -> None:
    await context.front_end.use_theme(name)


async def vim(context: SessionContext) -> None:
    """Change between the keys of Vim and of Emacs in the prompt, and show which they are now."""
    editing = context.front_end.toggle_vim()
    context.front_end.say(
        f"The prompt has the keys of {editing.capitalize()}. `tui.editing: {editing}` in the"
        " settings keeps that."
    )
