"""/btw: a question that is not part of the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import Markdown, escape

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext


async def btw(context: SessionContext, question: str) -> Answer | None:
    """Ask the model a question that is not part of the transcript. A running turn continues meanwhile,
    and the answer is returned. If no turn runs, the question is shown as a turn, and None is
    returned.
    """
    window = context.session.window
    if context.session.running:
        context.say(
            "Asked outside of the conversation. The answer follows, and the turn continues."
        )
        answer = await window.ask_aside(question)
        return Answer(answer, [Markdown(f"**/btw {escape(question)}**\n\n{answer}")])
    await context.front_end.run(window.aside(question, context.front_end.show))
    return None
