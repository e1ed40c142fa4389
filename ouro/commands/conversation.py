"""Commands on the session: clear, resume, rename, copy, export, todos, tasks, subagents,
detach, exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

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
from ouro.utils.ouro_paths import expand_home, tilde
from ouro.utils.text import clean, dollars, one_line, plural


async def clear(context: SessionContext) -> None:
    """Open a new session with the mode and model of this one. If this one has a plan that is not done,
    offer to carry it out in the new session.
    """
    front_end, previous = context.front_end, context.session
    old_status = previous.status()
    await front_end.open(OpenRequest())
    session = front_end.session
    if session is previous:  # the front end has shown the reason
        return
    front_end.say(f"A new session. The one before: /resume {previous.id[:8]}")
    new_status = session.status()
    if old_status.mode != new_status.mode:
        session.set_mode(old_status.mode)
    if (old_status.model, old_status.effort) != (new_status.model, new_status.effort):
        # A model that does not think has no effort that could be set.
        effort = old_status.effort if old_status.can_think else None
        await session.set_model(old_status.model, effort)
    front_end.redraw()
    if previous.plan.file is not None and previous.plan.file.state != "done":
        from ouro.commands.plans import offer_plan

        await offer_plan(front_end, previous.plan.file)


async def resume(context: SessionContext, session: str) -> None:
    """Open the named session; without a name, the one that the user picks."""
    request = (
        OpenRequest(session) if session else await context.front_end.pick_session(context.catalog)
    )
    if request is not None:
        await context.front_end.open(request)


async def rename(context: SessionContext, title: str) -> Answer:
    """Set the title of the session; without one, a model finds it."""
    title = " ".join(clean(title).split())
    if title:
        context.session.rename(title)
    else:
        title = await context.session.turn.titles.find()
    context.front_end.redraw()
    return Answer(title, [line(f"This session is now called “{title}”.")])


async def tag(context: SessionContext, words: str) -> Answer:
    """Add tags to the session, and remove those written as `-x`; `pin` puts it first in lists, and
    `unpin` ends that.
    """
    from ouro.session.session_labels import read_tags

    labels = context.session.labels
    if words in ("pin", "unpin"):
        labels.pin(pinned=words == "pin")
    else:
        labels.tag(*read_tags(words))
    tags = " ".join(f"#{tag}" for tag in labels.tags) or "no tags"
    pinned = ", pinned" if labels.pinned else ""
    return Answer(labels.tags, [line(f"{tags}{pinned}")])


async def transcript(context: SessionContext) -> None:
    context.front_end.read_transcript()


async def find(context: SessionContext, words: str) -> None:
    context.front_end.read_transcript(words)


async def detach(context: SessionContext) -> None:
    """Leave the session to the background: `/bg`."""
    await context.front_end.detach()


async def exit_(context: SessionContext) -> None:
    """Leave ouro. The user is asked first if a task runs that leaving would end."""
    running = [
        task for task in context.session.background.list() if task.is_running and task.outlives_turn
    ]
    if running:
        titles = ", ".join(one_line(task.title)[:40] for task in running[:3])
        is_one = len(running) == 1
        verb, pronoun = ("runs", "it") if is_one else ("run", "them")
        choices = [Choice("leave", f"end {pronoun} and leave"), Choice("stay", "stay")]
        title = f"{plural(len(running), 'background task')} still {verb}: {titles}"
        if await context.choose(title, choices) != "leave":
            return
    context.front_end.leave()


class ExportRequest(msgspec.Struct, frozen=True):
    """What `/export` was asked for."""

    name: str
    """The path or only an ending, as it was typed; empty if there is none."""
    only_last: bool
    force: bool

    @classmethod
    def parse(cls, text: str) -> ExportRequest:
        """Read the words after `/export`. Raises UsageError for an unknown option."""
        words = text.split()
        options = {word for word in words if word.startswith("--")}
        if unknown := options - {"--force", "--last"}:
            # An option that is not known is not taken for a part of the name.
            raise UsageError(
                f"/export has no option {min(unknown)}.", "Usage: /export [last] [file] [--force]"
            )
        names = [word for word in words if word not in options]
        has_word = names[:1] == ["last"]
        if has_word:
            del names[0]
        return cls(" ".join(names), has_word or "--last" in options, "--force" in options)


async def export(context: SessionContext, file: str) -> Answer:
    """Write the session to a file.

    Args:
        file: the path, from the folder of the session; or only an ending, such as `html`, for a
            name with the id of the session; or empty, for such a name in Markdown. The word
            `--force` in it overwrites an existing file; `last` before it (or `--last`) writes only
            the last answer.
    """
    from ouro.commands.export import answer_document, document, format_of
    from ouro.utils.files import write_document

    session, request = context.session, ExportRequest.parse(file)
    name = request.name
    suffix = name.removeprefix(".")
    if suffix in ("", "md", "markdown", "html", "json"):
        subject = "answer-" if request.only_last else ""
        name = f"ouro-{subject}{session.id[:8]}.{suffix or 'md'}"
    path = session.cwd / expand_home(name)

    whole = await session.memory.whole()
    make_document = answer_document if request.only_last else document
    await asyncio.to_thread(
        lambda: write_document(path, make_document(whole, format_of(path)), force=request.force)
    )
    return Answer(str(path), [line(f"Written to {path}.")])


async def todos(context: SessionContext) -> Answer:
    plan = context.session.todos
    return Answer(plan, [Markdown(todo_list(plan) if plan else "There is no plan at the moment.")])


async def tasks(context: SessionContext, what: str) -> Answer:
    """List the background tasks, end one, or move the running command to them.

    Args:
        what: empty for the list, `kill ID`, or `background`.
    """
    session = context.session
    action, _, rest = what.partition(" ")
    task_id = rest.strip()
    if action == "kill" and task_id:
        await session.background.kill(task_id)
        context.front_end.redraw()
        return Answer(task_id, [line(f"Ended {task_id}.")])
    if what == "background":
        moved_count = session.background.move_running()
        if not moved_count:
            raise UsageError("No command is running that can be moved.")
        moved = plural(moved_count, "command")
        return Answer(moved_count, [line(f"{moved} moved to the background.")])
    if what:
        raise UsageError(
            "/tasks lists them; /tasks kill ID ends one; /tasks background moves the running"
            " command there."
        )
    listed = session.background.list()
    if listed and await context.front_end.browse("tasks"):  # the front end has shown the list
        return Answer(listed, view=[])
    rows = [(task.id, escape_sentence(f"{task.title} — {task.state}")) for task in listed]
    if not rows:
        return Answer(listed, [Markdown("No background jobs and no subagents.")])
    return Answer(listed, [Markdown(f"{facts(*rows)}\n\n{code('/tasks kill ID')} ends one.")])


async def agents(context: SessionContext, name: str) -> Answer:
    """List the kinds of subagents and the subagents of this session. With the name of a subagent, show
    its transcript instead.
    """
    subagents = context.session.background.subagents
    if name:
        info = await subagents.transcript_of(name)
        whole = await subagents.store.read_whole(info.id)
        text = await asyncio.to_thread(lambda: "\n\n".join(_transcript_blocks(whole)))
        context.show([Markdown(text)])
        return Answer(info, [line(f"{info.title}. The agent can ask it more: tell it what.")])
    kinds = []
    for spec in subagents.specs.values():
        file_note = f", {code(tilde(Path(spec.path)))}" if spec.path else ""
        kinds.append((spec.name, f"{escape(spec.description)} — {spec.source}{file_note}"))
    subagent_rows = []
    for info in (await subagents.list_transcripts()).values():
        subagent_name, _, task = info.title.partition(": ")
        cost = "" if info.cost is None else f", {dollars(info.cost)}"
        subagent_rows.append(
            (subagent_name, f"{escape(task)} — {plural(info.messages, 'message')}{cost}")
        )
    text = f"**Kinds of subagents**\n\n{facts(*kinds)}"
    if subagent_rows:
        text += f"\n\n**Subagents of this session**\n\n{facts(*subagent_rows)}"
        text += f"\n\n{code('/agents ID')} shows one."
    return Answer({"kinds": kinds, "subagents": subagent_rows}, [Markdown(text)])


def _transcript_blocks(whole: WholeSession) -> Iterator[str]:
    """Yields the messages of a session as blocks of Markdown, oldest first: the text of a message, if
    it has one, then its tool calls, a line each. Results are read first, as they come later than
    their calls.
    """
    messages = [record.message for record in whole.records() if isinstance(record, MessageRecord)]
    replies: dict[str, ToolReply] = {}
    for message in messages:
        replies |= {reply.call_id: reply for reply in message.parts_of(ToolReply)}
    for message in messages:
        text = clean(message.text).strip()
        if text and message.role == "user":
            yield f"**Task**: {escape(text)}"
        elif text and message.role != "tool":
            yield escape(text)
        lines = [_call_line(call, replies.get(call.id)) for call in message.tool_calls]
        if lines:
            yield "\n".join(lines)


def _call_line(call: ToolCall, reply: ToolReply | None) -> str:
    """A line about a tool call: whether it succeeded, its first text argument, and the summary of its
    result. A call without a result counts as failed.
    """
    subject = next((value for value in call.arguments.values() if isinstance(value, str)), "")
    summary = reply.display.summary if reply and reply.display else ""
    sign = "✗" if reply is None or reply.failed else "✓"
    title = code(one_line(f"{call.name} {subject}", 100))
    return f"- {sign} {title} {escape(one_line(summary, 80))}".rstrip()
