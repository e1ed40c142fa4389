"""/style: how the agent answers."""

from __future__ import annotations

import asyncio

from ouro.commands.action import Answer
from ouro.commands.render import line
from ouro.commands.slash import SessionContext
from ouro.display import Choice
from ouro.extensions import NO_STYLE

_SAVE_FLAG = "--save"


async def style(context: SessionContext, name: str) -> Answer | None:
    """Use an output style from the next message on. None if the user cancels.

    Args:
        name: the style; empty: the user picks it. With `--save` in it, also new sessions use it;
            `--save` alone saves the one in use.
    """
    styles = context.session.extensions.styles
    words = name.split()
    is_saved = _SAVE_FLAG in words
    style_name = " ".join(word for word in words if word != _SAVE_FLAG)
    if not style_name and not is_saved:
        choices = [Choice(NO_STYLE, NO_STYLE, "as the model answers by itself")]
        for output_style in styles.all.values():
            choice = Choice(output_style.name, output_style.name, output_style.description)
            choices.append(choice)
        chosen = await context.choose("How should the agent answer?", choices, styles.name)
        if not chosen:
            return None
        style_name = chosen
    if style_name:
        styles.use(style_name)
    if is_saved:
        await asyncio.to_thread(styles.save)
    when = "in this session and in new ones" if is_saved else "from your next message on"
    return Answer({"style": styles.name}, [line(f"Output style: {styles.name}, {when}.")])
