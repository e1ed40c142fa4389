"""Commands on extension files: instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import CodeSpan, Title, line, table
from ouro.utils.runtime import tilde
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext


async def instructions(context: SessionContext) -> Answer:
    """The files of instructions of the session, why each is read, whether it was sent, and its size."""
    found = context.session.workbench.extensions.instructions
    files = found.report()
    if not files:
        return Answer([], [line("No instructions are loaded. /init writes an AGENTS.md.")])
    rows = [(CodeSpan(tilde(item.path)), item.reason, item.state, plural(item.tokens, "token")) for item in files]
    sent = sum(item.tokens for item in files if item.state == "sent")
    problems = [line(problem, level="warning") for problem in found.problems]
    return Answer(files, [Title(f"Instructions: about {plural(sent, 'token')} sent"), *table(rows), *problems])
