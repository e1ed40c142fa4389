"""Draft a check from a correction of the user, and try it on the calls of the session."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import ConfigError, ToolError, UsageError
from ouro.extensions import Check, forbids
from ouro.memory.side_calls import ask_and_record
from ouro.messages import ToolCall, system, user
from ouro.safety import parse_rule
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.session.session import Session

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
"""Calls of the session that the model is shown."""
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class CheckDraft(msgspec.Struct, frozen=True):
    check: Check
    refused: tuple[str, ...] = ()
    """The calls of this session that the rule would have refused."""
    calls: int = 0
    """How many calls it was compared with."""

    @property
    def text(self) -> str:
        """As the user reads and edits it: the JSON object of the model."""
        check = self.check
        hook = {"event": check.event, "matcher": check.matcher, "command": check.command}
        return json.dumps({"rule": check.rule} if check.rule else hook, indent=1, ensure_ascii=False)


async def draft_check(session: Session, correction: str) -> CheckDraft:
    """A draft by the model of the session.

    Raises:
        UsageError: the model says that it cannot be checked, or its answer is not a check.
        ModelError: no model answered.
    """
    shown = "\n".join(one_line(f"{call.name} {json.dumps(dict(call.arguments))}", 300) for call in _calls(session))
    asked = f"The correction: {correction}\n\nCalls of the agent, as data:\n<calls>\n{shown or 'none'}\n</calls>"
    reader = "jq" if shutil.which("jq") else "python3 -c"
    messages = [system(INSTRUCTIONS.replace("{reader}", reader)), user(asked)]
    answer = await ask_and_record(session.workbench.models.current(), session.transcript, "check", messages)
    return checked_draft(session, answer, correction)


def checked_draft(session: Session, text: str, correction: str) -> CheckDraft:
    """An answer, or what the user made of it, as a draft. Raises UsageError: it is not a check."""
    found = _OBJECT.search(text)
    given: dict[str, Any] = {}
    with suppress(ValueError):
        given = json.loads(found[0]) if found else {}
    if reason := given.get("none"):
        raise UsageError(f"The model says that no program can check this: {one_line(str(reason), 300)}")
    try:
        check = msgspec.convert({**given, "text": one_line(clean(correction), 300)}, Check)
        if bool(check.rule) == bool(check.command):
            raise UsageError("A check has a `rule` or a `command`.", f"It was: {one_line(text, 200)}")
        if check.rule:
            parse_rule(check.rule)
        calls = _calls(session)
        refused = [_refused(session, check.rule, call) for call in calls if check.rule]
    except (msgspec.ValidationError, ConfigError) as error:
        raise UsageError(f"This is not a check: {error}.", f"It was: {one_line(text, 200)}") from error
    return CheckDraft(check, tuple(filter(None, refused)), len(calls))


def _calls(session: Session) -> list[ToolCall]:
    return [call for message in session.transcript.messages() for call in message.tool_calls][-MAX_CALLS:]


def _refused(session: Session, rule: str, call: ToolCall) -> str:
    """The title of the call if the rule refuses it; empty if it does not, or cannot be read any more."""
    try:
        tool, args = session.turn.commands.tools.parse(call)
    except ToolError:
        return ""
    is_refused = forbids(rule, tool.name, tool.effect, tool.targets(args), session.cwd)
    return tool.title(args) if is_refused else ""
