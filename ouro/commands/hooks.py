"""Hooks: list them with their last runs, try one, and make a check of a correction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import CodeSpan, Quote, Title, View, ViewItem, line, table
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.extensions import EVENTS, Check, Hook, HookRun, names_elsewhere, tool_data
from ouro.memory import long_term
from ouro.session import CheckDraft, checked_draft, draft_check
from ouro.utils.text import cut, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.session import Session

NONE = "No hooks. Write them into config.yaml: docs/hooks.md has recipes."
SHOWN_RUNS = 20
_SAMPLES: dict[str, dict[str, Any]] = {
    "session-start": {"source": "startup"},
    "user-prompt": {"prompt": "Does the hook work?"},
    "before-compaction": {"trigger": "manual"},
    "turn-end": {"stop_hook_active": False},
    "subagent-end": {"stop_hook_active": False, "agent": "explore-1"},
    "session-end": {"reason": "exit"},
    "notification": {"message": "ouro waits for your answer", "kind": "permission"},
}


async def hooks(context: ActionContext) -> Answer:
    async with context.open_session() as session:
        known, runs = session.turn.hooks.hooks.hooks, tuple(session.turn.hooks.hooks.runs)
        checks = {check.number: check for check in await asyncio.to_thread(checks_of, session)}
    counts = {hook: [run for run in runs if run.hook == hook] for hook in known}
    own = {hook: checks.get(hook.check.number) if hook.check else None for hook in known}
    view: list[ViewItem] = table([_row(hook, counts[hook], own[hook]) for hook in known]) or [line(NONE)]
    if runs:
        view += [Title("Last runs"), *table(map(_run_row, runs[-SHOWN_RUNS:]))]
    data = [
        {
            "event": hook.event,
            "matcher": hook.matcher,
            "command": hook.command,
            "url": hook.url,
            "timeout_seconds": hook.seconds,
            "file": hook.place,
            "runs": len(counts[hook]),
            "refused": sum(run.outcome.verdict == "deny" for run in counts[hook]),
            "check": own[hook],
        }
        for hook in known
    ]
    return Answer(data, view)


async def test(context: ActionContext, event: str, tool: str, input_json: str) -> Answer:
    if event not in EVENTS:
        raise UsageError(f"`{event}` is not an event. There are: {', '.join(EVENTS)}.")
    try:
        given = json.loads(input_json or "{}")
    except ValueError as error:
        raise UsageError(f"--input is not JSON: {error}.") from error
    if not isinstance(given, dict):
        raise UsageError("--input is not a JSON object.")
    async with context.open_session() as session:
        runner, names = session.turn.hooks.hooks, (tool, *names_elsewhere(tool))
        data = {"session_id": session.id, "cwd": str(session.cwd), **_SAMPLES.get(event, {}), **given}
        if event in ("before-tool", "after-tool"):
            known = session.turn.commands.tools.tools.get(tool)
            target = next((str(given[key]) for key in ("file_path", "path", "command", "url") if given.get(key)), "")
            data = {"session_id": session.id, "cwd": str(session.cwd)}
            effect = known.effect if known else "none"
            data |= tool_data(tool, effect, given, (target,) if target else (), session.cwd)
            data |= {"tool_response": {"text": "", "failed": False}} if event == "after-tool" else {}
        before = len(runner.runs)
        outcome = await runner.run(event, data, names if "tool" in event else ())
        runs = tuple(runner.runs)[before:]
    if not runs:
        return Answer([], [line(f"No hook runs at {event}{f' of {tool}' if 'tool' in event else ''}.")], 1)
    view: list[ViewItem] = [item for run in runs for item in _described(run)]
    view.append(line(f"Together: {outcome.verdict or 'nothing decided'}. {outcome.reason}".strip()))
    return Answer([_data(run) for run in runs], view, int(any(run.failure for run in runs)))


async def check(context: SessionContext, text: Sequence[str]) -> None:
    session, said = context.session, " ".join(text)
    hooks = session.turn.hooks.hooks
    verb, _, number = said.partition(" ")
    if verb == "remove" and number.isdecimal():
        await asyncio.to_thread(hooks.change_checks, methodcaller("remove", int(number)))
        context.say(f"Check {number} was removed.")
        return
    if said == "remove":
        raise UsageError("Usage: /check remove N. /hooks lists the checks.")
    if verb.startswith("mem_"):
        said = (await context.memory(lambda memory: long_term.find_entry(memory.editor, said))).text
    context.say("The model writes a draft …")
    draft = await draft_check(session, said)
    choices = [
        Choice("project", "Enforce it in this project"),
        Choice("everywhere", "Enforce it in all projects"),
        Choice("edit", "Edit it first"),
        Choice("drop", "Drop it"),
    ]
    while True:
        context.show(_draft_view(draft))
        chosen = await context.choose("Make this a check?", choices)
        if chosen == "edit":
            draft = checked_draft(session, await context.front_end.edit(draft.text), said)
            continue
        if chosen not in ("project", "everywhere"):
            context.say("The draft was dropped.")
            return
        add = methodcaller("add", draft.check, chosen == "everywhere")
        saved: Check = await asyncio.to_thread(hooks.change_checks, add)
        context.say(f"Check {saved.number} holds from now on. /hooks counts what it refuses; /check remove ends it.")
        return


def _draft_view(draft: CheckDraft) -> View:
    view: list[ViewItem] = [line(f"From: {draft.check.text}"), Quote(draft.text)]
    if draft.refused:
        some = ", ".join(one_line(title, 80) for title in draft.refused[:5])
        view.append(line(f"It would have refused {len(draft.refused)} of the last {draft.calls} calls: {some}"))
    elif draft.check.rule:
        view.append(line(f"It would have refused none of the last {plural(draft.calls, 'call')} of this session."))
    return view


def checks_of(session: Session) -> list[Check]:
    """The corrections that are enforced in the session's project."""
    return session.turn.hooks.hooks.checks.here()


def _row(hook: Hook, runs: list[HookRun], check: Check | None) -> tuple[str, ...]:
    what = f"{hook.event}{f' ({hook.matcher})' if hook.matcher else ''}"
    refused = sum(run.outcome.verdict == "deny" for run in runs)
    used = f"ran {plural(len(runs), 'time')}{f', refused {refused}' if refused else ''}" if runs else ""
    if check:
        used = f"refused {plural(check.fired, 'time')} since {check.added_at[:10]}"
    return what, CodeSpan(hook.label), hook.place, used


def _run_row(run: HookRun) -> tuple[str, ...]:
    at = datetime.fromtimestamp(run.at).astimezone().strftime("%H:%M:%S")
    said = run.failure or ": ".join(filter(None, (run.outcome.verdict, one_line(run.outcome.reason)))) or "done"
    return at, run.hook.event, CodeSpan(run.hook.label), f"{run.seconds:.2f} s", said


def _described(run: HookRun) -> View:
    code = run.answer.exit_code
    head = f"{run.hook.place}, {run.seconds:.2f} s, {'no exit code' if code is None else f'exit code {code}'}"
    texts = [text for text in (run.answer.out, run.answer.error) if text]
    said = run.failure or (f"It says {run.outcome.verdict}: {run.outcome.reason}" if run.outcome.verdict else "")
    adds = f"It adds: {run.outcome.context}" if run.outcome.context else ""
    lines = [line(text, level="warning" if run.failure else "info") for text in (said, adds) if text]
    return [line(CodeSpan(run.hook.label), f" ({head})"), *(Quote(cut(text, 4_000)) for text in texts), *lines]


def _data(run: HookRun) -> dict[str, Any]:
    return {
        "command": run.hook.command or run.hook.url,
        "file": run.hook.place,
        "seconds": run.seconds,
        "exit_code": run.answer.exit_code,
        "out": run.answer.out,
        "error": run.answer.error,
        "decision": run.outcome.verdict,
        "reason": run.outcome.reason,
        "context": run.outcome.context,
        "failure": run.failure,
    }
