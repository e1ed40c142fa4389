"""Hooks: list them with their last runs, and try one. Checks: corrections of the user that a
program enforces.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer
from ouro.commands.front_end import review_draft
from ouro.commands.render import CodeSpan, Quote, Title, View, as_markdown, line, table
from ouro.display import Choice
from ouro.errors import ConfigError, ToolError, UsageError
from ouro.events import Level
from ouro.extensions import (
    EVENTS,
    Check,
    Hook,
    HookRun,
    forbids,
    names_elsewhere,
    response_data,
    tool_data,
)
from ouro.memory import long_term
from ouro.memory.side_calls import ask_and_record
from ouro.messages import ToolCall, system, user
from ouro.safety import parse_rule
from ouro.utils.decoding import from_plain
from ouro.utils.text import clean, cut, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.session import Session

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


INSTRUCTIONS = """\
The user of a coding agent has corrected it, more than once. Turn the correction into a check that a program enforces.
Answer with one JSON object and nothing else, one of:

{"rule": "RULE"}
  Refuses calls of the agent's tools. `shell(npm *)`: lines of bash, by each command in them; `*` is anything.
  `write(generated/**)`: changes of files. `read(.env)`, `web_fetch(example.com)`, `mcp(server.tool)`.
{"event": "after-tool", "matcher": "edit|write|apply_patch", "command": "BASH"}
  Runs a line of bash after (or "before-tool": before) each call of a tool whose name the regular expression fits, or
  with "event": "turn-end" when the agent has answered. JSON is on its standard input: `.targets` is a list of the
  paths or the command, `.tool_input` has the arguments. Exit code 2 refuses, or says that the work is not done; what
  it prints on standard error goes to the agent. Read the JSON with {reader}.
{"none": "REASON"}
  No program can check it.

Prefer a rule. Make it as narrow as the correction: what the user did not forbid must go through."""
MAX_CALLS = 60
"""The number of the session's calls that are sent to the model."""


async def hooks(context: ActionContext) -> Answer:
    """List the hooks with how often each ran and refused, and the last runs. For a check it shows how
    often it refused in all sessions, for another hook in this session.
    """
    async with context.open_session() as session:
        runner = session.turn.hooks.runner
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
    is_tool_event = "tool" in event
    # Matchers may also use the name that the tool has in other programs.
    names = (tool, *names_elsewhere(tool)) if is_tool_event else ()
    async with context.open_session() as session:
        runner = session.turn.hooks.runner

        # Make the sample data.
        data: dict[str, Any] = {"session_id": session.id, "cwd": str(session.cwd)}
        if event in ("before-tool", "after-tool"):
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


async def check(context: SessionContext, correction: str) -> None:
    """Let a model draft a check of a correction, let the user review it, and save it.

    Args:
        correction: what the user wants to be enforced; or the id of a note that says it
            (`mem_…`); or `remove N`, which removes the check of that number.
    """
    session, runner = context.session, context.session.turn.hooks.runner
    first_word, _, rest = correction.partition(" ")

    # Remove a check.
    if first_word == "remove" and rest.isdecimal():
        # `change_checks` calls this method of the checks.
        await asyncio.to_thread(runner.change_checks, methodcaller("remove", int(rest)))
        context.say(f"Check {rest} was removed.")
        return
    if correction == "remove":
        raise UsageError("Usage: /check remove N. /hooks lists the checks.")

    # Let a model draft one, and the user review the draft.
    text = correction
    if first_word.startswith("mem_"):
        entry = await context.memory(lambda memory: long_term.find_entry(memory.editor, correction))
        text = entry.text
    context.say("The model writes a draft …")
    drafted = _parse_check(await _ask_for_check(session, text), text)
    choices = [
        Choice("project", "Enforce it in this project"),
        Choice("everywhere", "Enforce it in all projects"),
    ]
    reviewed, place = await review_draft(
        context.front_end,
        question="Make this a check?",
        choices=choices,
        draft=_check_json(drafted),
        as_markdown=lambda draft: as_markdown(_draft_view(session, _parse_check(draft, text))),
    )
    if not place:
        context.say("The draft was discarded.")
        return

    # Save it.
    add = methodcaller("add", _parse_check(reviewed, text), place == "everywhere")
    saved: Check = await asyncio.to_thread(runner.change_checks, add)
    context.say(
        f"Check {saved.number} holds from now on. /hooks counts what it refuses; /check remove"
        " ends it."
    )


async def _ask_for_check(session: Session, correction: str) -> str:
    """The answer of a model that drafts a check: the JSON of INSTRUCTIONS. The model sees the
    correction and the last calls of the session.
    """
    calls = [
        one_line(f"{call.name} {json.dumps(dict(call.arguments))}", 300)
        for call in _last_calls(session)
    ]
    call_lines = "\n".join(calls) or "none"
    request = (
        f"The correction: {correction}\n\nCalls of the agent, as data:\n"
        f"<calls>\n{call_lines}\n</calls>"
    )
    reader = "jq" if shutil.which("jq") else "python3 -c"
    messages = [system(INSTRUCTIONS.replace("{reader}", reader)), user(request)]
    return await ask_and_record(
        session.model_source.current(),
        memory=session.transcript,
        purpose="check",
        messages=messages,
    )


def _parse_check(text: str, correction: str) -> Check:
    """The check in an answer of a model, or in a text that the user edited: the first JSON object, to
    the last brace. Raises UsageError if it is not a check, or the model says that there can be none.

    Args:
        correction: kept as the text of the check.
    """
    fields: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        fields = json.loads(text[text.find("{") : text.rfind("}") + 1])
    reason = fields.get("none")
    if reason:
        raise UsageError(
            f"The model says that no program can check this: {one_line(str(reason), 300)}"
        )
    try:
        check = from_plain({**fields, "text": one_line(clean(correction), 300)}, Check)
        if check.rule:
            parse_rule(check.rule)  # raises ConfigError if it is not a rule
    except (msgspec.ValidationError, ConfigError) as error:
        raise UsageError(
            f"The draft is not a check: {error}.", f"It was: {one_line(text, 200)}"
        ) from error
    if bool(check.rule) == bool(check.command):
        raise UsageError(
            "The draft needs a `rule` or a `command`, not both.", f"It was: {one_line(text, 200)}"
        )
    return check


def _check_json(check: Check) -> str:
    """The check as the user reads and edits it: the JSON object of the model."""
    hook = {"event": check.event, "matcher": check.matcher, "command": check.command}
    return json.dumps({"rule": check.rule} if check.rule else hook, indent=1, ensure_ascii=False)


def _draft_view(session: Session, check: Check) -> View:
    """A view of a drafted check, and of the last calls that it would have refused."""
    view: View = [line(f"From: {check.text}"), Quote(_check_json(check))]
    if not check.rule:  # what a hook would refuse is not known without running it
        return view
    calls = _last_calls(session)
    refused = [title for call in calls if (title := _refused_title(session, check.rule, call))]
    if refused:
        titles = ", ".join(one_line(title, 80) for title in refused[:5])
        effect = f"{len(refused)} of the last {len(calls)} calls: {titles}"
    else:
        effect = f"none of the last {plural(len(calls), 'call')} of this session."
    view.append(line(f"It would have refused {effect}"))
    return view


def _last_calls(session: Session) -> list[ToolCall]:
    """The last MAX_CALLS calls of the session, oldest first."""
    calls = chain.from_iterable(message.tool_calls for message in session.transcript.messages())
    return list(calls)[-MAX_CALLS:]


def _refused_title(session: Session, rule: str, call: ToolCall) -> str:
    """The title of the call if the rule refuses it. It is empty if the rule does not, or if the
    arguments of the call are not valid for its tool any more.
    """
    try:
        tool, args = session.turn.commands.tools.parse(call)
    except ToolError:
        return ""
    is_refused = forbids(
        rule, tool=tool.name, effect=tool.effect, targets=tool.targets(args), cwd=session.cwd
    )
    return tool.title(args) if is_refused else ""


def checks_of(session: Session) -> list[Check]:
    """The corrections that are enforced in the session's project."""
    return session.turn.hooks.runner.checks.list_here()


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
