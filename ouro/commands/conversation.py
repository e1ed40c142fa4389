"""Commands on the session: new, resume, rename, copy, export, todos, tasks, exit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ouro.commands.front_end import FrontEnd
from ouro.commands.render import code, escape, facts, todo_list
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Replied
from ouro.session import OpenRequest
from ouro.utils.text import clean, one_line, plural


async def clear(front_end: FrontEnd, _argument: str) -> None:
    before = front_end.session.id
    await front_end.open(OpenRequest())
    front_end.say(f"A new session. The one before: /resume {before}")


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


async def exit_(front_end: FrontEnd, _argument: str) -> None:
    running = [job for job in front_end.session.jobs() if job.running]
    if running:
        commands = ", ".join(one_line(job.command)[:40] for job in running[:3])
        choices = [Choice("leave", "end them and leave"), Choice("stay", "stay")]
        title = f"{plural(len(running), 'background job')} still {'runs' if len(running) == 1 else 'run'}: {commands}"
        if await front_end.choose(title, choices) != "leave":
            return
    front_end.leave()


async def copy(front_end: FrontEnd, _argument: str) -> None:
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


async def todos(front_end: FrontEnd, _argument: str) -> None:
    plan = front_end.session.todos
    front_end.show(todo_list(plan) if plan else "There is no plan at the moment.")


async def tasks(front_end: FrontEnd, argument: str) -> None:
    session = front_end.session
    action, _, task = argument.partition(" ")
    if action == "kill" and (task := task.strip()):
        is_job = any(job.id == task for job in session.jobs())
        await (session.kill_job(task) if is_job else session.workbench.subagents.kill(task))
        front_end.say(f"Ended {task}.")
        return
    if argument:
        raise UsageError("/tasks lists them; /tasks kill ID ends one.")
    rows = []
    for agent in session.workbench.subagents.started():
        activity = f": {agent.activity}" if agent.activity else ""
        words = f"{escape(agent.task)} — {agent.state}{escape(activity)} ({agent.figures})"
        rows.append((agent.id, words))
    for info in session.jobs():
        state = "runs" if info.running else f"ended, exit code {info.exit_code}"
        rows.append((info.id, f"{code(info.command)} — {state}"))
    front_end.show(facts(*rows) or "No background jobs and no subagents.")
