"""Commands on the session: clear, resume, rename, copy, export, todos, tasks, subagents, exit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from ouro.commands.front_end import FrontEnd
from ouro.commands.render import code, escape, facts, todo_list
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Replied
from ouro.memory.backend import MessageRecord, WholeSession
from ouro.messages import ToolReply
from ouro.session import OpenRequest
from ouro.utils.runtime import tilde
from ouro.utils.text import clean, dollars, one_line, plural


async def clear(front_end: FrontEnd) -> None:
    before = front_end.session
    was = before.status()
    await front_end.open(OpenRequest())
    session = front_end.session
    if session is before:  # the front end has shown the reason
        return
    front_end.say(f"A new session. The one before: /resume {before.id[:8]}")
    now = session.status()
    if was.mode != now.mode:
        session.set_mode(was.mode)
    if (was.model, was.effort) != (now.model, now.effort):
        await session.set_model(was.model, was.effort if was.can_think else None)
    front_end.redraw()


async def resume(front_end: FrontEnd, argument: str) -> None:
    request = OpenRequest(argument) if argument else await front_end.pick_session(front_end.session.session_catalog)
    if request is not None:
        await front_end.open(request)


async def rename(front_end: FrontEnd, argument: str) -> None:
    title = " ".join(clean(argument).split())
    if title:
        front_end.session.rename(title)
    else:
        title = await front_end.session.titles.find()
    front_end.say(f"This session is now called “{title}”.")
    front_end.redraw()


async def exit_(front_end: FrontEnd) -> None:
    running = [task for task in front_end.session.tasks() if task.is_running and task.outlives_turn]
    if running:
        titles = ", ".join(one_line(task.title)[:40] for task in running[:3])
        choices = [Choice("leave", "end them and leave"), Choice("stay", "stay")]
        title = f"{plural(len(running), 'background task')} still {'runs' if len(running) == 1 else 'run'}: {titles}"
        if await front_end.choose(title, choices) != "leave":
            return
    front_end.leave()


async def copy(front_end: FrontEnd) -> None:
    answers = [event.message.text for event in front_end.session.scrollback.shown() if isinstance(event, Replied)]
    last = next((text for text in reversed(answers) if text.strip()), "")
    if not last:
        raise UsageError("There is no answer to copy yet.")
    how = front_end.copy(last)
    front_end.say(f"The last answer ({len(last):,} characters): {'copied ' if how.startswith('with') else ''}{how}.")


async def export(front_end: FrontEnd, argument: str) -> None:
    from ouro.commands.export import document, format_of
    from ouro.utils.files import write_document

    session = front_end.session
    words = argument.split()
    force = "--force" in words
    named = " ".join(word for word in words if word != "--force")
    if (ending := named.removeprefix(".")) in ("", "md", "markdown", "html", "json"):
        named = f"ouro-{session.id[:8]}.{ending or 'md'}"
    path = session.cwd / Path(named).expanduser()

    whole = await session.transcript.whole()
    await asyncio.to_thread(lambda: write_document(path, document(whole, format_of(path)), force=force))
    front_end.say(f"Written to {path}.")


async def todos(front_end: FrontEnd) -> None:
    plan = front_end.session.todos
    front_end.show(todo_list(plan) if plan else "There is no plan at the moment.")


async def tasks(front_end: FrontEnd, argument: str) -> None:
    session = front_end.session
    action, _, task = argument.partition(" ")
    if action == "kill" and (task := task.strip()):
        await session.kill_task(task)
        front_end.say(f"Ended {task}.")
        return
    if argument:
        raise UsageError("/tasks lists them; /tasks kill ID ends one.")
    rows = [(task.id, f"{escape(task.title)} — {escape(task.state)}") for task in session.tasks()]
    front_end.show(facts(*rows) or "No background jobs and no subagents.")


async def agents(front_end: FrontEnd, argument: str) -> None:
    subagents = front_end.session.subagents
    if argument:
        info = await subagents.transcript_of(argument)
        whole = await subagents.store.read_whole(info.id)
        front_end.show(await asyncio.to_thread(lambda: "\n\n".join(_transcript(whole))))
        front_end.say(f"{info.title}. The agent can ask it more: tell it what.")
        return
    kinds = []
    for spec in subagents.specs.values():
        place = f", {code(tilde(Path(spec.path)))}" if spec.path else ""
        kinds.append((spec.name, f"{escape(spec.description)} — {spec.source}{place}"))
    own = []
    for info in (await subagents.saved()).values():
        name, _, task = info.title.partition(": ")
        cost = "" if info.cost is None else f", {dollars(info.cost)}"
        own.append((name, f"{escape(task)} — {plural(info.messages, 'message')}{cost}"))
    shown = f"\n\n**Subagents of this session**\n\n{facts(*own)}\n\n{code('/agents ID')} shows one." if own else ""
    front_end.show(f"**Kinds of subagents**\n\n{facts(*kinds)}{shown}")


def _transcript(whole: WholeSession) -> Iterator[str]:
    messages = [record.message for record in whole.records() if isinstance(record, MessageRecord)]
    replies = {reply.call_id: reply for message in messages for reply in message.parts_of(ToolReply)}
    for message in messages:
        if message.role != "tool" and (text := clean(message.text).strip()):
            yield f"**Task**: {escape(text)}" if message.role == "user" else escape(text)
        lines = []
        for call in message.tool_calls:
            reply = replies.get(call.id)
            about = next((str(value) for value in call.arguments.values() if isinstance(value, str)), "")
            summary = reply.display.summary if reply and reply.display else ""
            sign = "✗" if reply is None or reply.failed else "✓"
            shown = code(one_line(f"{call.name} {about}", 100))
            lines.append(f"- {sign} {shown} {escape(one_line(summary, 80))}".rstrip())
        if lines:
            yield "\n".join(lines)
