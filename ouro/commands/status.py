"""/status and /feedback: what this session and this installation are."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from ouro import __version__
from ouro.commands.action import Answer
from ouro.commands.render import Markdown, code, escape, facts
from ouro.utils.ouro_paths import get_home, get_log_path
from ouro.utils.text import code_block

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext


async def status(context: SessionContext) -> Answer:
    """Show the session, its folder, model, mode and context."""
    session, session_status = context.session, context.session.status()
    percent = round(100 * session_status.context / max(1, session_status.window))
    table_text = facts(
        ("Session", f"{code(session.id)} {escape(session.title)}".rstrip()),
        ("Folder", code(str(session.cwd))),
        ("Branch", code(session_status.branch) if session_status.branch else ""),
        ("Model", code(session_status.model)),
        ("Thinking", session_status.effort),
        ("Mode", session_status.mode),
        ("Sandbox", session_status.sandbox),
        (
            "Context",
            f"{session_status.context:,} of {session_status.window:,} tokens ({percent} %)",
        ),
        ("Last recall", session.session_memory.last_recalled),
        ("ouro", f"{__version__}, files in {code(str(get_home()))}"),
    )
    return Answer(session_status, [Markdown(table_text)])


async def feedback(context: SessionContext) -> Answer:
    """Show what a bug report needs. Nothing is sent."""
    fact_lines = (
        (
            f"ouro {__version__}, Python {platform.python_version()}, {platform.system()}"
            f" {platform.release()}"
        ),
        f"terminal {os.environ.get('TERM_PROGRAM') or os.environ.get('TERM', 'unknown')}",
        f"model {context.session.status().model}",
    )
    text = (
        "ouro sends nothing automatically. A report helps most with what you did, what you"
        " expected, what came, these lines, and the end of"
        f" {code(str(get_log_path()))}:\n\n{code_block(chr(10).join(fact_lines))}"
    )
    return Answer(fact_lines, [Markdown(text)])
