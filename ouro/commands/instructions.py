"""/instructions: the files of instructions that were loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import CodeSpan, Title, line, table
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext


async def instructions(context: SessionContext) -> Answer:
    """List the loaded files of instructions, with the reason, the state and the tokens of each."""
    loaded = context.session.extensions.instructions
    files = loaded.report()
    if not files:
        return Answer(
            value=[], view=[line("No instructions are loaded. /init writes an AGENTS.md.")]
        )
    rows = [
        (CodeSpan(tilde(item.path)), item.reason, item.state, plural(item.tokens, "token"))
        for item in files
    ]
    sent = sum(item.tokens for item in files if item.state == "sent")
    problems = [line(problem, level="warning") for problem in (*loaded.problems, *loaded.unused)]
    return Answer(
        files, [Title(f"Instructions: about {plural(sent, 'token')} sent"), *table(rows), *problems]
    )
