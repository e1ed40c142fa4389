"""`ouro agents`: list, answer and stop the sessions that run in the background."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import Answer, confirm
from ouro.commands.render import CommandText, View, line, table
from ouro.frontends.background.background_sessions import (
    AgentRow,
    answer_agent,
    find_agents,
    stop_agent,
)
from ouro.frontends.background.session_rows import row_cells
from ouro.session.background_record import find_record

if TYPE_CHECKING:
    from ouro.commands.action import ActionContext
    from ouro.commands.shell_context import ShellContext


def show_agents(context: ShellContext) -> int:
    """Print the list of sessions, or show it on a terminal until the user leaves; returns the exit
    code.
    """
    from ouro.frontends.tui.first_frame import can_draw

    if not context.as_json and sys.stdin.isatty() and can_draw():
        return _run_list()
    context.print_answer(asyncio.run(_agents_answer()))
    return 0


def _run_list() -> int:
    """Show the list until the user leaves it; returns the exit code. If the user opens a session,
    another ouro runs in the foreground until it ends, and then the list is shown again.
    """
    from ouro.frontends.tui.agents_app import AgentsApp
    from ouro.frontends.tui.screen_settings import screen_settings_in

    screen_settings = screen_settings_in(Path.cwd())
    marked_id = ""
    while True:
        row = AgentsApp(screen_settings, marked_id).run()
        if row is None:
            return 0
        marked_id = row.record.id
        arguments = ["--resume", marked_id] if row.state == "ended" else ["attach", marked_id]
        folder = Path(row.record.cwd)
        subprocess.call(
            [sys.executable, "-P", "-m", "ouro", *arguments],
            cwd=folder if folder.is_dir() else None,
        )


async def list_agents(_context: ActionContext) -> Answer:
    return await _agents_answer()


async def _agents_answer() -> Answer:
    """The rows of all background sessions, as JSON and as a table."""
    rows = await find_agents()
    return Answer([row.to_json() for row in rows], _view(rows))


def _view(rows: list[AgentRow]) -> View:
    """The sessions as a table. If a question is open, the command that answers the first one is
    below it.
    """
    if not rows:
        return [line('No session runs in the background. Start one: `ouro --bg "task"`')]
    view = table([row_cells(row) for row in rows])
    waiting = next((row for row in rows if row.question is not None), None)
    if waiting is None:
        return view
    hint = line("Answer: ", CommandText(f"agents answer {waiting.record.short_id} y"))
    return [*view, hint]


async def answer_question(_context: ShellContext, session: str, choice: str) -> Answer:
    """Answer the oldest question of a session; returns the question and the answer. `choice`: the text
    of the answer, such as `y`.
    """
    row, answer_text = await answer_agent(session, choice)
    question = row.live.question_line if row.live else ""
    text = f"{row.record.short_id}: {question} → {answer_text or 'no answer'}"
    return Answer({"id": row.id, "question": question, "answer": answer_text}, [line(text)])


async def stop_session(context: ShellContext, session: str, *, yes: bool) -> Answer | None:
    """End a session after the user has confirmed it. None if the user does not confirm it. Nothing
    is asked with `yes`, nor if no user can be asked. A session that has ended already is removed
    from the list of sessions.
    """
    record = await asyncio.to_thread(find_record, session)
    if context.can_ask and not await confirm(
        context, f"End {record.short_id} {record.title}?", "End it", assume_yes=yes
    ):
        return None
    record, was_running = await stop_agent(record.id)
    outcome = "has ended" if was_running else "had ended: it leaves the list"
    text = f"{record.short_id} {outcome}. Resume it with `ouro --resume {record.short_id}`."
    return Answer({"id": record.id, "stopped": was_running}, [line(text)])
