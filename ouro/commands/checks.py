"""Checks: corrections of the user that a program enforces."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.commands.front_end import review_draft
from ouro.commands.render import Quote, View, as_markdown, line
from ouro.display import Choice
from ouro.errors import ConfigError, ToolError, UsageError
from ouro.extensions import Check, forbids
from ouro.memory import long_term
from ouro.memory.side_calls import ask_and_record
from ouro.messages import ToolCall, system, user
from ouro.safety import parse_rule
from ouro.utils.decoding import from_plain
from ouro.utils.text import clean, one_line, plural, whole_number

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.session import Session


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


async def check(context: SessionContext, correction: str) -> None:
    """Let a model draft a check of a correction, let the user review it, and save it.

    Args:
        correction: what the user wants to be enforced; or the id of a note that says it
            (`mem_…`); or `remove N`, which removes the check of that number.
    """
    session, session_hooks = context.session, context.session.extensions.hooks
    first_word, _, rest = correction.partition(" ")

    # Remove a check.
    number = whole_number(rest)
    if first_word == "remove" and number is not None:
        # `change_checks` calls this method of the checks.
        await asyncio.to_thread(session_hooks.change_checks, methodcaller("remove", number))
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
    saved: Check = await asyncio.to_thread(session_hooks.change_checks, add)
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
        memory=session.memory,
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
    titles = [_refused_title(session, check.rule, call) for call in calls]
    refused_titles = list(filter(None, titles))
    if refused_titles:
        shown_titles = ", ".join(one_line(title, 80) for title in refused_titles[:5])
        effect = f"{len(refused_titles)} of the last {len(calls)} calls: {shown_titles}"
    else:
        effect = f"none of the last {plural(len(calls), 'call')} of this session."
    view.append(line(f"It would have refused {effect}"))
    return view


def _last_calls(session: Session) -> list[ToolCall]:
    """The last MAX_CALLS calls of the session, oldest first."""
    calls = chain.from_iterable(message.tool_calls for message in session.memory.messages())
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
    return session.extensions.hooks.checks.list_here()
