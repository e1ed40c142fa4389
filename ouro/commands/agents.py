"""Subagents: the kinds of them, those of a session, and what one did."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from ouro.commands.front_end import FrontEnd
from ouro.commands.render import code, escape, facts
from ouro.memory.backend import MessageRecord, WholeSession
from ouro.messages import ToolCall, ToolReply
from ouro.utils.runtime import tilde
from ouro.utils.text import clean, one_line, plural


async def agents(front_end: FrontEnd, argument: str) -> None:
    subagents = front_end.session.workbench.subagents
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
    for info in await subagents.saved():
        name, _, task = info.title.partition(": ")
        cost = "" if info.cost is None else f", ${info.cost:.4f}"
        own.append((name, f"{escape(task)} — {plural(info.messages, 'message')}{cost}"))
    shown = f"\n\n**Subagents of this session**\n\n{facts(*own)}\n\n{code('/agents ID')} shows one." if own else ""
    front_end.show(f"**Kinds of subagents**\n\n{facts(*kinds)}{shown}")


def _transcript(whole: WholeSession) -> Iterator[str]:
    messages = [record.message for record in whole.records() if isinstance(record, MessageRecord)]
    replies = {reply.call_id: reply for message in messages for reply in message.parts_of(ToolReply)}
    for message in messages:
        if message.role != "tool" and (text := clean(message.text).strip()):
            yield f"**Task**: {escape(text)}" if message.role == "user" else escape(text)
        if message.tool_calls:
            yield "\n".join(_call_line(call, replies.get(call.id)) for call in message.tool_calls)


def _call_line(call: ToolCall, reply: ToolReply | None) -> str:
    about = next((str(value) for value in call.arguments.values() if isinstance(value, str)), "")
    summary = reply.display.summary if reply and reply.display else ""
    sign = "✗" if reply is None or reply.failed else "✓"
    return f"- {sign} {code(one_line(f'{call.name} {about}', 100))} {escape(one_line(summary, 80))}".rstrip()
