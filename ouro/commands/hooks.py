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
from ouro.extensions import EVENTS, Check, HookRun, forbids, names_elsewhere, tool_data
from ouro.memory import long_term
from ouro.memory.side_calls import ask_and_record
from ouro.messages import ToolCall, system, user
from ouro.safety import parse_rule
from ouro.utils.decoding import from_plain
from ouro.utils.text import clean, cut, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.session import Session

NONE = "No hooks. Write them into config.yaml: `ouro help hooks` has recipes."
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
    async with context.open_session() as session:
        known, runs = session.turn.hooks.hooks.hooks, tuple(session.turn.hooks.hooks.runs)
        checks = {check.number: check for check in await asyncio.to_thread(checks_of, session)}
    rows, data = [], []
    for hook in known:
        own = checks.get(hook.check.number) if hook.check else None
        results = [run.outcome.verdict for run in runs if run.hook == hook]
        refused = results.count("deny")
        used = _describe_use(own, len(results), refused)
        limits = ", ".join(filter(None, (hook.matcher, str(hook.traits))))
        what = f"{hook.event} ({limits})" if limits else hook.event
        rows.append((what, CodeSpan(hook.label), hook.place, used))
        data.append(
            {
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
                "runs": len(results),
                "refused": refused,
                "check": own,
            }
        )
    view: View = table(rows) or [line(NONE)]
    if runs:
        view += [Title("Last runs"), *table(map(_run_row, runs[-SHOWN_RUNS:]))]
    return Answer(data, view)


def _describe_use(check: Check | None, runs: int, refused: int) -> str:
    if check:
        return f"refused {plural(check.fired, 'time')} since {check.added_at[:10]}"
    if refused:
        return f"ran {plural(runs, 'time')}, refused {refused}"
    return f"ran {plural(runs, 'time')}" if runs else ""


def _parse_input(text: str) -> dict[str, Any]:
    """The object of `--input`. Raises UsageError if it is not one."""
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"--input is not JSON: {error}.") from error
    if not isinstance(given, dict):
        raise UsageError("--input is not a JSON object.")
    return given


async def test(context: ActionContext, event: str, tool: str, input_json: str) -> Answer:
    if event not in EVENTS:
        raise UsageError(f"`{event}` is not an event. There are: {', '.join(EVENTS)}.")
    given = _parse_input(input_json)
    is_of_tool = "tool" in event
    async with context.open_session() as session:
        runner, names = session.turn.hooks.hooks, (tool, *names_elsewhere(tool))
        data: dict[str, Any] = {"session_id": session.id, "cwd": str(session.cwd)}
        if event in ("before-tool", "after-tool"):
            known = session.turn.commands.tools.tools.get(tool)
            effect = known.effect if known else "none"
            data |= tool_data(tool, effect, given, _target_of(given), session.cwd)
            if event == "after-tool":
                data["tool_response"] = {"text": "", "failed": False}
        else:
            data |= {**_SAMPLES.get(event, {}), **given}
        before = len(runner.runs)
        outcome = await runner.run(event, data, names if is_of_tool else ())
        runs = tuple(runner.runs)[before:]
    if not runs:
        which = f" of {tool}" if is_of_tool else ""
        return Answer([], [line(f"No hook runs at {event}{which}.")], 1)
    view: View = [*chain.from_iterable(map(_run_details, runs))]
    view.append(line(f"Together: {outcome.verdict or 'nothing decided'}. {outcome.reason}".strip()))
    return Answer([_run_data(run) for run in runs], view, int(any(run.failure for run in runs)))


def _target_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """What a call is about; empty if its input does not say."""
    for key in ("file_path", "path", "command", "url"):
        if given.get(key):
            return (str(given[key]),)
    return ()


async def check(context: SessionContext, correction: str) -> None:
    session, hooks = context.session, context.session.turn.hooks.hooks
    verb, _, number = correction.partition(" ")
    if verb == "remove" and number.isdecimal():
        await asyncio.to_thread(hooks.change_checks, methodcaller("remove", int(number)))
        context.say(f"Check {number} was removed.")
        return
    if correction == "remove":
        raise UsageError("Usage: /check remove N. /hooks lists the checks.")
    if verb.startswith("mem_"):
        correction = (
            await context.memory(lambda memory: long_term.find_entry(memory.editor, correction))
        ).text
    context.say("The model writes a draft …")
    calls = (
        one_line(f"{call.name} {json.dumps(dict(call.arguments))}", 300)
        for call in _last_calls(session)
    )
    shown = "\n".join(calls) or "none"
    asked = (
        f"The correction: {correction}\n\nCalls of the agent, as data:\n<calls>\n{shown}\n</calls>"
    )
    reader = "jq" if shutil.which("jq") else "python3 -c"
    messages = [system(INSTRUCTIONS.replace("{reader}", reader)), user(asked)]
    answer = await ask_and_record(
        session.model_source.current(), session.transcript, "check", messages
    )
    draft = _text_of(_parse_check(answer, correction))
    draft, chosen = await review_draft(
        context.front_end,
        "Make this a check?",
        [
            Choice("project", "Enforce it in this project"),
            Choice("everywhere", "Enforce it in all projects"),
        ],
        draft,
        lambda text: as_markdown(_draft_view(session, _parse_check(text, correction))),
    )
    if not chosen:
        context.say("The draft was discarded.")
        return
    add = methodcaller("add", _parse_check(draft, correction), chosen == "everywhere")
    saved: Check = await asyncio.to_thread(hooks.change_checks, add)
    context.say(
        f"Check {saved.number} holds from now on. /hooks counts what it refuses; /check remove"
        " ends it."
    )


def _parse_check(text: str, correction: str) -> Check:
    """The check that a model has drafted, or the user edited. Raises UsageError: it is not a check."""
    given: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        given = json.loads(text[text.find("{") : text.rfind("}") + 1])
    if reason := given.get("none"):
        raise UsageError(
            f"The model says that no program can check this: {one_line(str(reason), 300)}"
        )
    try:
        check = from_plain({**given, "text": one_line(clean(correction), 300)}, Check)
        if check.rule:
            parse_rule(check.rule)
    except (msgspec.ValidationError, ConfigError) as error:
        raise UsageError(
            f"The draft is not a check: {error}.", f"It was: {one_line(text, 200)}"
        ) from error
    if bool(check.rule) == bool(check.command):
        raise UsageError(
            "The draft needs a `rule` or a `command`, not both.", f"It was: {one_line(text, 200)}"
        )
    return check


def _text_of(check: Check) -> str:
    """The check as the user reads and edits it: the JSON object of the model."""
    hook = {"event": check.event, "matcher": check.matcher, "command": check.command}
    return json.dumps({"rule": check.rule} if check.rule else hook, indent=1, ensure_ascii=False)


def _draft_view(session: Session, check: Check) -> View:
    """A drafted check, and which of the last calls it would have refused."""
    view: View = [line(f"From: {check.text}"), Quote(_text_of(check))]
    calls = _last_calls(session)
    refused = (
        [title for call in calls if (title := _refused_title(session, check.rule, call))]
        if check.rule
        else []
    )
    if refused:
        some = ", ".join(one_line(title, 80) for title in refused[:5])
        view.append(
            line(f"It would have refused {len(refused)} of the last {len(calls)} calls: {some}")
        )
    elif check.rule:
        view.append(
            line(
                f"It would have refused none of the last {plural(len(calls), 'call')} of this"
                " session."
            )
        )
    return view


def _last_calls(session: Session) -> list[ToolCall]:
    calls = chain.from_iterable(message.tool_calls for message in session.transcript.messages())
    return list(calls)[-MAX_CALLS:]


def _refused_title(session: Session, rule: str, call: ToolCall) -> str:
    """The title of the call if the rule refuses it; empty if it does not, or cannot be read any
    more.
    """
    try:
        tool, args = session.turn.commands.tools.parse(call)
    except ToolError:
        return ""
    is_refused = forbids(rule, tool.name, tool.effect, tool.targets(args), session.cwd)
    return tool.title(args) if is_refused else ""


def checks_of(session: Session) -> list[Check]:
    """The corrections that are enforced in the session's project."""
    return session.turn.hooks.hooks.checks.here()


def _run_row(run: HookRun) -> tuple[str, ...]:
    """A run of a hook: when, which, how long, and what it decided or why it failed."""
    at = datetime.fromtimestamp(run.at).astimezone().strftime("%H:%M:%S")
    said = (
        run.failure
        or ": ".join(filter(None, (run.outcome.verdict, one_line(run.outcome.reason))))
        or "done"
    )
    return at, run.hook.event, CodeSpan(run.hook.label), f"{run.seconds:.2f} s", said


def _run_details(run: HookRun) -> View:
    """A run of a hook with its output, for `hooks test`."""
    code = run.answer.exit_code
    head = (
        f"{run.hook.place}, {run.seconds:.2f} s,"
        f" {'no exit code' if code is None else f'exit code {code}'}"
    )
    texts = [text for text in (run.answer.out, run.answer.error) if text]
    said = run.failure or (
        f"It says {run.outcome.verdict}: {run.outcome.reason}" if run.outcome.verdict else ""
    )
    adds = f"It adds: {run.outcome.context}" if run.outcome.context else ""
    lines = [
        line(text, level="warning" if run.failure else "info") for text in (said, adds) if text
    ]
    return [
        line(CodeSpan(run.hook.label), f" ({head})"),
        *(Quote(cut(text, 4_000)) for text in texts),
        *lines,
    ]


def _run_data(run: HookRun) -> dict[str, Any]:
    """A run of a hook for `--json`."""
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
