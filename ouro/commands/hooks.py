"""Hooks: list them with their last runs, and try one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer
from ouro.commands.checks import checks_of
from ouro.commands.render import CodeSpan, Quote, Title, View, line, table
from ouro.errors import UsageError
from ouro.events import Level
from ouro.extensions import (
    EVENTS,
    Check,
    Hook,
    HookRun,
    names_elsewhere,
    response_data,
    tool_data,
)
from ouro.utils.text import cut, one_line, plural

NO_HOOKS = "No hooks. Write them into config.yaml: `ouro help hooks` has recipes."
MAX_SHOWN_RUNS = 20
_SAMPLE_DATA: dict[str, dict[str, Any]] = {
    "session-start": {"source": "startup"},
    "user-prompt": {"prompt": "Does the hook work?"},
    "before-compaction": {"trigger": "manual"},
    "turn-end": {"stop_hook_active": False},
    "subagent-end": {"stop_hook_active": False, "agent": "explore-1"},
    "session-end": {"reason": "exit"},
    "notification": {"message": "ouro waits for your answer", "kind": "permission"},
}
"""What `hooks test` sends to the hooks of an event that has no tool."""


async def hooks(context: ActionContext) -> Answer:
    """List the hooks with how often each ran and refused, and the last runs. For a check it shows how
    often it refused in all sessions, for another hook in this session.
    """
    async with context.open_session() as session:
        runner = session.extensions.hooks
        session_hooks, runs = runner.hooks, tuple(runner.runs)
        checks = {check.number: check for check in await asyncio.to_thread(checks_of, session)}
    rows, data = [], []
    for hook in session_hooks:
        check = checks.get(hook.check.number) if hook.check else None
        verdicts = [run.outcome.verdict for run in runs if run.hook == hook]
        refused = verdicts.count("deny")
        use = _describe_use(check, len(verdicts), refused)
        limits = ", ".join(filter(None, (hook.matcher, str(hook.traits))))
        event = f"{hook.event} ({limits})" if limits else hook.event
        rows.append((event, CodeSpan(hook.label), hook.place, use))
        counts = {"runs": len(verdicts), "refused": refused, "check": check}
        data.append({**_hook_data(hook), **counts})
    view: View = table(rows) or [line(NO_HOOKS)]
    if runs:
        view += [Title("Last runs"), *table(map(_run_row, runs[-MAX_SHOWN_RUNS:]))]
    return Answer(data, view)


def _hook_data(hook: Hook) -> dict[str, Any]:
    """A hook as `--json` prints it."""
    return {
        "event": hook.event,
        "matcher": hook.matcher,
        "command": hook.command,
        "url": hook.url,
        "prompt": hook.traits.prompt,
        "if": hook.traits.condition,
        "async": hook.traits.in_background,
        "once": hook.traits.is_once,
        "timeout_seconds": hook.seconds,
        "file": hook.place,
    }


def _describe_use(check: Check | None, runs: int, refused: int) -> str:
    """How often a check refused since it was added; for a hook that is no check (None), how often it
    ran and refused in this session. Empty if it never ran.
    """
    if check:
        return f"refused {plural(check.fired, 'time')} since {check.added_at[:10]}"
    if refused:
        return f"ran {plural(runs, 'time')}, refused {refused}"
    return f"ran {plural(runs, 'time')}" if runs else ""


def _parse_input(text: str) -> dict[str, Any]:
    """The arguments in `--input`, none if it is empty. Raises UsageError if it is not a JSON object."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"--input is not JSON: {error}.") from error
    if not isinstance(arguments, dict):
        raise UsageError("--input is not a JSON object.")
    return arguments


async def test(context: ActionContext, event: str, tool: str, input_json: str) -> Answer:
    """Run the hooks of an event with sample data, and show what each did. The exit code is 1 if one
    failed, or none runs.

    Args:
        tool: the tool of the call, at an event of tools.
        input_json: the arguments of this call; at another event, data that replace the samples.
    """
    if event not in EVENTS:
        raise UsageError(f"`{event}` is not an event. There are: {', '.join(EVENTS)}.")
    arguments = _parse_input(input_json)
    is_tool_event = event in ("before-tool", "after-tool")
    # Matchers may also use the name that the tool has in other programs.
    names = (tool, *names_elsewhere(tool)) if is_tool_event else ()
    async with context.open_session() as session:
        runner = session.extensions.hooks

        # Make the sample data.
        data: dict[str, Any] = {"session_id": session.id, "cwd": str(session.cwd)}
        if is_tool_event:
            known_tool = session.turn.commands.tools.tools.get(tool)
            effect = known_tool.effect if known_tool else "none"
            data |= tool_data(
                tool, effect, arguments, targets=_targets_of(arguments), cwd=session.cwd
            )
            if event == "after-tool":
                data["tool_response"] = response_data("", failed=False, call_data=data)
        else:
            data |= {**_SAMPLE_DATA.get(event, {}), **arguments}

        # Run the hooks.
        earlier_runs = len(runner.runs)  # opening the session may have run hooks, too
        outcome = await runner.run(event, data, names)
        runs = tuple(runner.runs)[earlier_runs:]
    if not runs:
        tool_note = f" of {tool}" if is_tool_event else ""
        return Answer(value=[], view=[line(f"No hook runs at {event}{tool_note}.")], exit_code=1)
    view: View = [*chain.from_iterable(map(_run_details, runs))]
    view.append(line(f"Together: {outcome.verdict or 'nothing decided'}. {outcome.reason}".strip()))
    return Answer([_run_data(run) for run in runs], view, int(any(run.failure for run in runs)))


def _targets_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The path, command or address that a call has as an argument; empty if it has none."""
    for key in ("file_path", "path", "command", "url"):
        if arguments.get(key):
            return (str(arguments[key]),)
    return ()


def _run_row(run: HookRun) -> tuple[str, ...]:
    """The table row of a run: time, event, hook, duration, and why it failed, what it decided with the
    reason, or `done`.
    """
    clock_time = datetime.fromtimestamp(run.at).astimezone().strftime("%H:%M:%S")
    decision = ": ".join(filter(None, (run.outcome.verdict, one_line(run.outcome.reason))))
    result = run.failure or decision or "done"
    return clock_time, run.hook.event, CodeSpan(run.hook.label), f"{run.seconds:.2f} s", result


def _run_details(run: HookRun) -> View:
    """A view of a run of a hook with its output, for `hooks test`."""
    code = run.answer.exit_code
    code_note = "no exit code" if code is None else f"exit code {code}"
    facts = f"{run.hook.place}, {run.seconds:.2f} s, {code_note}"
    view: View = [line(CodeSpan(run.hook.label), f" ({facts})")]
    view += [Quote(cut(text, 4_000)) for text in (run.answer.out, run.answer.error) if text]
    level: Level = "warning" if run.failure else "info"
    if run.failure:
        view.append(line(run.failure, level=level))
    elif run.outcome.verdict:
        view.append(line(f"It says {run.outcome.verdict}: {run.outcome.reason}", level=level))
    if run.outcome.context:
        view.append(line(f"It adds: {run.outcome.context}", level=level))
    return view


def _run_data(run: HookRun) -> dict[str, Any]:
    """A run of a hook as `--json` prints it."""
    return {
        "command": run.hook.command or run.hook.url or run.hook.traits.prompt,
        "file": run.hook.place,
        "seconds": run.seconds,
        **asdict(run.answer),
        "decision": run.outcome.verdict,
        "reason": run.outcome.reason,
        "context": run.outcome.context,
        "failure": run.failure,
    }
