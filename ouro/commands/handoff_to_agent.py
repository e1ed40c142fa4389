"""`/handoff`: another agent continues the session; the receipt says what it gets."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import CodeSpan, CommandText, View, line
from ouro.utils.files import write_document
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import byte_size, plural

if TYPE_CHECKING:
    from ouro.commands.export.agent_formats import Agent, AgentSession
    from ouro.commands.slash import SessionContext
    from ouro.memory.backend import WholeSession

_PROGRAMS = {"claude": "Claude Code", "codex": "Codex"}
_NOT_HANDED_OVER = "Not handed over: memory, permissions, running jobs, and the files of `/undo`."


async def handoff(context: SessionContext, agent: Agent) -> Answer:
    """Write a copy of the session for the other agent. Returns a receipt: what the agent gets, what it
    does not get, and the command with which to continue.
    """
    session = context.session
    whole = await session.memory.whole()
    copy = await asyncio.to_thread(_write, whole, agent)
    message_count = len([message for message in session.memory.messages() if message.parts])
    size = byte_size(sum(len(text.encode()) for text in copy.lines))
    name = _PROGRAMS[agent]
    view: View = [
        line(
            f"{name} has {plural(message_count, 'message')} of this session ({size}):"
            f" {tilde(copy.path)}"
        ),
        line("Continue there, in the same folder: ", CodeSpan(copy.command)),
        line(
            _NOT_HANDED_OVER,
            " Its core as instructions: ",
            CommandText(f"memory export --to {agent}"),
        ),
        *_running_hint(context),
    ]
    if shutil.which(agent) is None:
        view.append(line(f"`{agent}` is not installed here.", level="warning"))
    receipt = {
        "agent": agent,
        "file": str(copy.path),
        "messages": message_count,
        "command": copy.command,
    }
    return Answer(receipt, view)


def _write(whole: WholeSession, agent: Agent) -> AgentSession:
    """Write a copy of the session where the other agent looks for its sessions; returns it. If this
    state of the session was handed over before, the file stays as it is. Blocks.
    """
    # Imported late: only this command needs them.
    from ouro.commands.export.agent_formats import session_for_agent
    from ouro.importers.importer import ImportLedger

    copy = session_for_agent(whole, agent)
    if copy.path.exists():
        return copy  # this state was handed over before; the other agent may use the file
    copy.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_document(copy.path, copy.lines, force=False)
    # `ouro sessions import` skips the copy as long as the other agent adds no messages to it.
    ledger = ImportLedger()
    ledger.record_import(copy.path.absolute(), whole.header.id)
    ledger.save()
    return copy


def _running_hint(context: SessionContext) -> View:
    """A warning if background jobs are running, which stay with this session; empty without any."""
    running = [task for task in context.session.background.list() if task.is_running]
    if not running:
        return []
    what = plural(len(running), "background job")
    return [line(f"{what} of this session: /tasks shows them.", level="warning")]
