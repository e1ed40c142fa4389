"""Commands on the session: clear, resume, rename, copy, export, todos, tasks, subagents,
detach, exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from ouro.commands.action import Answer
from ouro.commands.render import (
    Markdown,
    code,
    escape,
    escape_sentence,
    facts,
    line,
    todo_list,
)
from ouro.commands.slash import SessionContext
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.memory.backend import MessageRecord, WholeSession
from ouro.messages import ToolCall, ToolReply
from ouro.session import OpenRequest
from ouro.utils.runtime import tilde
from ouro.utils.text import clean, dollars, one_line, plural


async def clear(context: SessionContext) -> None:
    front_end, before = context.front_end, context.session
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
    if before.plan.file is not None and before.plan.file.state != "done":
        from ouro.commands.plans import offer_plan

        await offer_plan(front_end, before.plan.file)


async def resume(context: SessionContext, session: str) -> None:
    request = (
        OpenRequest(session) if session else await context.front_end.pick_session(context.catalog)
    )
    if request is not None:
        await context.front_end.open(request)


async def rename(context: SessionContext, title: str) -> Answer:
    title = " ".join(clean(title).split())
    if title:
        context.session.rename(title)
    else:
        title = await context.session.turn.titles.find()
    context.front_end.redraw()
    return Answer(title, [line(f"This session is now called “{title}”.")])


async def tag(context: SessionContext, words: str) -> Answer:
    """Tag the session, with `-x` no longer; `pin` and `unpin` put it first in lists."""
    from ouro.session.session_labels import read_tags

    labels = context.session.labels
    if words in ("pin", "unpin"):
        labels.pin(pinned=words == "pin")
    else:
        labels.tag(*read_tags(words))
    tags = " ".join(f"#{tag}" for tag in labels.tags) or "no tags"
    return Answer(labels.tags, [line(f"{tags}{', pinned' if labels.pinned else ''}")])


async def transcript(context: SessionContext) -> None:
    context.front_end.read_transcript()


async def find(context: SessionContext, words: str) -> None:
    context.front_end.read_transcript(words)


async def detach(context: SessionContext) -> None:
    """Leave the session to the background: `/bg`."""
    await context.front_end.detach()


async def exit_(context: SessionContext) -> None:
    running = [
        task for task in context.session.background.list() if task.is_running and task.outlives_turn
    ]
    if running:
        titles = ", ".join(one_line(task.title)[:40] for task in running[:3])
        choices = [Choice("leave", "end them and leave"), Choice("stay", "stay")]
        title = (
            f"{plural(len(running), 'background task')} still"
            f" {'runs' if len(running) == 1 else 'run'}: {titles}"
        )
        if await context.choose(title, choices) != "leave":
            return
    context.front_end.leave()


async def export(context: SessionContext, file: str) -> Answer:
    from ouro.commands.export import document, format_of
    from ouro.utils.files import write_document

    session, words = context.session, file.split()
    force = "--force" in words
    named = " ".join(word for word in words if word != "--force")
    if (ending := named.removeprefix(".")) in ("", "md", "markdown", "html", "json"):
        named = f"ouro-{session.id[:8]}.{ending or 'md'}"
    path = session.cwd / Path(named).expanduser()

    whole = await session.transcript.whole()
    await asyncio.to_thread(
        lambda: write_document(path, document(whole, format_of(path)), force=force)
    )
    return Answer(str(path), [line(f"Written to {path}.")])


async def todos(context: SessionContext) -> Answer:
    plan = context.session.todos
    return Answer(plan, [Markdown(todo_list(plan) if plan else "There is no plan at the moment.")])


async def tasks(context: SessionContext, what: str) -> Answer:
    session = context.session
    action, _, task = what.partition(" ")
    if action == "kill" and (task := task.strip()):
        await session.background.kill(task)
        context.front_end.redraw()
        return Answer(task, [line(f"Ended {task}.")])
    if what == "background":
        if not (moved := session.background.move_running()):
            raise UsageError("No command is running that can be moved.")
        return Answer(moved, [line(f"{plural(moved, 'command')} moved to the background.")])
    if what:
        raise UsageError(
            "/tasks lists them; /tasks kill ID ends one; /tasks background moves the running"
            " command there."
        )
    running = session.background.list()
    if running and await context.front_end.browse("tasks"):
        return Answer(running, [])
    rows = [(task.id, escape_sentence(f"{task.title} — {task.state}")) for task in running]
    return Answer(running, [Markdown(facts(*rows) or "No background jobs and no subagents.")])


async def agents(context: SessionContext, name: str) -> Answer:
    subagents = context.session.background.subagents
    if name:
        info = await subagents.transcript_of(name)
        whole = await subagents.store.read_whole(info.id)
        context.show([Markdown(await asyncio.to_thread(lambda: "\n\n".join(_transcript(whole))))])
        return Answer(info, [line(f"{info.title}. The agent can ask it more: tell it what.")])
    kinds = []
    for spec in subagents.specs.values():
        place = f", {code(tilde(Path(spec.path)))}" if spec.path else ""
        kinds.append((spec.name, f"{escape(spec.description)} — {spec.source}{place}"))
    own = []
    for info in (await subagents.list_transcripts()).values():
        own_name, _, task = info.title.partition(": ")
        cost = "" if info.cost is None else f", {dollars(info.cost)}"
        own.append((own_name, f"{escape(task)} — {plural(info.messages, 'message')}{cost}"))
    shown = (
        f"\n\n**Subagents of this session**\n\n{facts(*own)}\n\n{code('/agents ID')} shows one."
        if own
        else ""
    )
    return Answer(
        {"kinds": kinds, "subagents": own},
        [Markdown(f"**Kinds of subagents**\n\n{facts(*kinds)}{shown}")],
    )


def _transcript(whole: WholeSession) -> Iterator[str]:
    """Each user message and answer as Markdown, with the tool calls of a message as its own block."""
    messages = [record.message for record in whole.records() if isinstance(record, MessageRecord)]
    replies: dict[str, ToolReply] = {}
    for message in messages:
        replies |= {reply.call_id: reply for reply in message.parts_of(ToolReply)}
    for message in messages:
        if message.role != "tool" and (text := clean(message.text).strip()):
            yield f"**Task**: {escape(text)}" if message.role == "user" else escape(text)
        lines = [_call_line(call, replies.get(call.id)) for call in message.tool_calls]
        if lines:
            yield "\n".join(lines)


def _call_line(call: ToolCall, reply: ToolReply | None) -> str:
    """A call with its first text and its result."""
    about = next((value for value in call.arguments.values() if isinstance(value, str)), "")
    summary = reply.display.summary if reply and reply.display else ""
    sign = "✗" if reply is None or reply.failed else "✓"
    shown = code(one_line(f"{call.name} {about}", 100))
    return f"- {sign} {shown} {escape(one_line(summary, 80))}".rstrip()
