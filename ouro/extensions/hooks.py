"""Hooks: what runs at events of a session. They decide, add context or change the input of a tool."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ouro.errors import ConfigError
from ouro.extensions.checks import Check, Checks
from ouro.extensions.hook_files import (
    DEFAULT_SECONDS,
    EVENT_NAMES,
    OF_TOOLS,
    Hook,
    is_loopback,
    is_rule,
)
from ouro.extensions.tool_names import names_elsewhere, own_rule
from ouro.safety import Deny, Effect, Permissions, Workspace, parse_rule
from ouro.settings import HookEvent
from ouro.tools.tool import HookOutcome, Verdict
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionaries, dump_json
from ouro.utils.log import log
from ouro.utils.text import cut, one_line

if TYPE_CHECKING:
    from ouro.extensions.hook_process import HookAnswer
    from ouro.extensions.prompt_hook import AskHookModel, RunHookAgent

T = TypeVar("T")
_EDIT_FIELDS = {"old_string": "old_text", "new_string": "new_text"}
"""The texts of an edit, by their names in Claude Code."""
_ONE_EDIT = (*_EDIT_FIELDS, "replace_all")
BLOCKS = 2
"""The exit code that blocks. Any other code except 0 is a failure."""
_ANSWER_KEYS = {
    "context",
    "continue",
    "decision",
    "hookSpecificOutput",
    "input",
    "reason",
    "stopReason",
    "suppressOutput",
    "systemMessage",
}
"""The keys of an answer; an object without any of them, such as a line of a log, is none."""
MAX_TEXT = 20_000
"""Maximum characters of a hook's output that are sent to the model."""
MAX_RUNS = 200
_is_checked_now: ContextVar[bool] = ContextVar("is_checked_now", default=False)
"""Inside, the subagent of a hook works: it does not cause a hook of its own kind."""
_MAX_OBJECTS = 1_000
"""Maximum objects that are looked for in one output."""
_BEGINS_ANSWER = late_pattern(r"\{\s*[\"']?(?:" + "|".join(sorted(_ANSWER_KEYS)) + r")\b")
_NAMES_DECISION = late_pattern(r"(?im)decision\W*[:=].*|(?:^|permission)\W*(?:deny|block)\b.*")
_STRENGTH: tuple[Verdict, ...] = ("", "allow", "ask", "deny")
_VERDICTS: Mapping[str, Verdict] = {
    "approve": "allow",
    "block": "deny",
    "allow": "allow",
    "ask": "ask",
    "deny": "deny",
}


class HookServices(msgspec.Struct, frozen=True):
    """What hooks need of a session."""

    ask: AskHookModel | None = None
    """Asks a model, for hooks with a prompt."""
    start: Callable[[Coroutine[Any, Any, None]], None] | None = None
    """Starts a hook in the background; the session ends it."""


class HookRun(msgspec.Struct, frozen=True):
    """One run of a hook, for `/hooks`."""

    hook: Hook
    at: float
    """Seconds since 1970."""
    seconds: float
    answer: HookAnswer
    outcome: HookOutcome
    failure: str
    """Why its answer does not count; empty if it counts."""


def _enforce(check: Check) -> Hook:
    """The hook that enforces a check. It never permits anything."""
    place = f"check {check.number}: {check.text}"
    return Hook(
        check.event,
        check.command,
        "",
        check.matcher,
        DEFAULT_SECONDS,
        place,
        is_project=True,
        check=check,
    )


def forbids(rule: str, tool: str, effect: str, targets: Sequence[str], cwd: Path) -> bool:
    """Whether a permission rule would refuse a call. Raises ConfigError if the rule cannot be read."""
    judge = Permissions(Workspace(cwd), "auto", deny=[rule])
    return isinstance(judge.decide(tool, Effect(effect), targets), Deny)


def covers(condition: str, given: Mapping[str, Any], cwd: Path) -> bool:
    """Whether a rule is about a tool call. If that is not known, it is: a guard runs too often
    rather than never.
    """
    if not is_rule(condition):
        return True
    rule, tool, targets = own_rule(condition), given["tool"], given["targets"]
    if forbids(rule, tool, given["effect"], targets, cwd):
        return True
    is_about = parse_rule(rule).covers(tool, Effect(given["effect"]))
    return is_about and given["effect"] == Effect.RUN and any(map(_is_opaque, targets))


def _is_opaque(text: str) -> bool:
    from ouro.safety import parse_line  # few hooks have a condition

    line = parse_line(text)
    return bool(line.opaque or line.hidden)


class Hooks:
    """Runs the hooks of one session, and records each run.

    Args:
        checks: the user's checks; they hold in addition to `hooks`, and their refusals are counted.
        confine: returns the command that runs a project's command in the sandbox.
        services: of a session; without them no model answers, and nothing is in the background.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        checks: Checks,
        cwd: Path,
        environment: Mapping[str, str],
        on_failure: Callable[[str], None] = lambda _text: None,
        confine: Callable[[Sequence[str]], Sequence[str]] = tuple,
        services: HookServices | None = None,
    ) -> None:
        self.hooks = tuple(hooks)
        self.checks = checks
        self.runs: deque[HookRun] = deque(maxlen=MAX_RUNS)
        self._cwd = cwd
        self._environment = environment
        self._on_failure = on_failure
        self._confine = confine
        self._services = services or HookServices()
        self._failed: set[tuple[Hook, str]] = set()
        self.run_agent: RunHookAgent | None = None
        """Set when the session has subagents: they are made with these hooks."""
        self._began: set[Hook] = set()
        """The hooks with `once` that have run."""
        self._late: list[HookOutcome] = []
        """What hooks in the background have said."""

    def change_checks(self, change: Callable[[Checks], T]) -> T:
        """Change the checks, then enforce the saved ones. Blocks. Raises ConfigError, and as
        `change` does.
        """
        changed = change(self.checks)
        self.hooks = (
            *(hook for hook in self.hooks if not hook.check),
            *map(_enforce, self.checks.here()),
        )
        return changed

    def add(self, hooks: Sequence[Hook]) -> None:
        self.hooks = tuple(dict.fromkeys((*self.hooks, *hooks)))

    @contextmanager
    def run_also(self, hooks: Sequence[Hook]) -> Iterator[None]:
        """Inside this context these hooks run too."""
        new = [hook for hook in hooks if hook not in self.hooks]
        self.add(new)
        try:
            yield
        finally:
            self.hooks = tuple(hook for hook in self.hooks if hook not in new)

    def has(self, event: HookEvent) -> bool:
        return any(hook.event == event for hook in self.hooks)

    async def run(
        self,
        event: HookEvent,
        data: Mapping[str, Any],
        names: Sequence[str] = (),
        most: float | None = None,
    ) -> HookOutcome:
        """Run the hooks of an event in parallel, each once.

        Args:
            data: the JSON that they receive, in addition to the name of the event.
            names: the texts for matchers: the names of a tool, else a word such as `resume`.
            most: a limit in seconds for all of them, if it is shorter than their own.
        """
        agent = str(data.get("agent", ""))
        wanted = dict.fromkeys(
            hook for hook in self.hooks if hook.event == event and hook.matches(names, agent)
        )
        given = {**data, "hook_event_name": EVENT_NAMES[event], "event": event}
        runs = [hook for hook in wanted if await self._is_due(hook, given)]
        waits = [hook for hook in runs if not self._begins_later(hook, given)]
        if not waits:
            return HookOutcome()
        return merge_outcomes(
            await asyncio.gather(*(self._run_one(hook, given, most) for hook in waits))
        )

    def take_late(self) -> HookOutcome:
        """What hooks in the background have said since the last time: context and messages."""
        late, self._late = self._late, []
        return merge_outcomes([HookOutcome(), *late])

    async def _is_due(self, hook: Hook, given: Mapping[str, Any]) -> bool:
        """Whether a hook runs for an event that its matcher fits."""
        if hook in self._began or (hook.traits.checker and _is_checked_now.get()):
            return False
        if hook.traits.condition and hook.event not in OF_TOOLS:
            return False
        if hook.traits.condition:
            is_about = await asyncio.to_thread(covers, hook.traits.condition, given, self._cwd)
            if not is_about:
                return False
        if hook.traits.is_once:
            self._began.add(hook)
        return True

    def _begins_later(self, hook: Hook, given: Mapping[str, Any]) -> bool:
        """Start a hook in the background, if it is one; at the end of a session nothing is."""
        start = self._services.start
        if not hook.traits.in_background or start is None or hook.event == "session-end":
            return False

        async def run() -> None:
            outcome = await self._run_one(hook, given, None)
            self._late.append(HookOutcome(context=outcome.context, message=outcome.message))

        start(run())
        return True

    async def _run_one(
        self, hook: Hook, given: Mapping[str, Any], most: float | None
    ) -> HookOutcome:
        """Run one hook, record the run, and report its failure the first time; `most` limits its
        seconds.
        """
        at, began = time.time(), time.monotonic()
        answer = await self._answer(hook, given, min(hook.seconds, most or hook.seconds))
        outcome, failure = read_answer(hook, answer)
        took = time.monotonic() - began
        if hook.check and outcome.verdict == "deny":
            await asyncio.to_thread(self._count, hook.check.number)
        elif hook.check and hook.check.rule and not failure:
            return outcome  # a rule is compared with every call
        self.runs.append(HookRun(hook, at, took, answer, outcome, failure))
        log.info(
            "hook %s %r: %s in %.2f s",
            hook.event,
            hook.label,
            failure or outcome.verdict or "done",
            took,
        )
        # Only once for each failure, because it may fail at every call.
        if failure and (hook, failure) not in self._failed:
            self._failed.add((hook, failure))
            self._on_failure(
                f"The hook `{hook.label}` ({hook.event}, {hook.place}) failed: {failure}"
            )
        return outcome

    def _count(self, number: int) -> None:
        try:
            self.checks.count(number)
        except (ConfigError, OSError) as error:
            log.warning("check %s: its count is not saved: %s", number, error)

    async def _answer(self, hook: Hook, given: Mapping[str, Any], seconds: float) -> HookAnswer:
        """What the hook answers: a rule, a command, a subagent, a model or a server."""
        # Few sessions have a hook.
        from ouro.extensions.hook_process import HookAnswer, post, run_command

        if hook.check and hook.check.rule:
            return _answer_by_rule(hook.check, given, self._cwd)
        data = dump_json(given, is_ascii=True, default=str).encode()
        if hook.command:
            argv: Sequence[str] = ("bash", "-c", hook.command)
            if hook.is_project and not hook.check:
                argv = await asyncio.to_thread(self._confine, argv)
            environment = {**self._environment, "CLAUDE_PLUGIN_ROOT": hook.plugin}
            return await run_command(argv, data, self._cwd, environment, seconds)
        if hook.traits.checker:
            return await self._check_by_agent(hook, data, seconds)
        if hook.traits.prompt:
            from ouro.extensions.prompt_hook import ask_prompt  # few hooks ask a model

            return await ask_prompt(
                self._services.ask, hook.traits.prompt, hook.traits.model, data, seconds
            )
        if is_loopback(hook.url):
            return await post(hook.url, data, seconds)
        return HookAnswer(None, "", "its address is not on this machine")

    async def _check_by_agent(self, hook: Hook, data: bytes, seconds: float) -> HookAnswer:
        """Ask a subagent. Its own tool calls run no hook with a subagent again."""
        from ouro.extensions.prompt_hook import ask_agent  # few hooks have an agent

        token = _is_checked_now.set(True)
        try:
            traits = hook.traits
            return await ask_agent(self.run_agent, traits.checker, traits.prompt, data, seconds)
        finally:
            _is_checked_now.reset(token)


def merge_outcomes(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """Merge outcomes: the strictest verdict with its reasons, all contexts, the last change of the
    input.
    """
    found: list[Verdict] = [outcome.verdict for outcome in outcomes]
    verdict = max(found, key=_STRENGTH.index)
    reasons = [outcome.reason for outcome in outcomes if outcome.verdict == verdict]
    changed: dict[str, Any] | None = None
    for outcome in outcomes:
        if outcome.input is not None:
            changed = {**(changed or {}), **outcome.input}
    return HookOutcome(
        verdict,
        "\n".join(dict.fromkeys(filter(None, reasons))),
        changed,
        "\n\n".join(filter(None, (outcome.context for outcome in outcomes))),
        "\n".join(filter(None, (outcome.message for outcome in outcomes))),
    )


def read_answer(hook: Hook, answer: HookAnswer) -> tuple[HookOutcome, str]:
    """The outcome of a hook, and why its answer does not count; empty if it does.

    The failure of a guard refuses the call.
    """
    if answer.exit_code == BLOCKS:
        reason = cut(answer.error or answer.out or "It gave no reason.", MAX_TEXT)
        return HookOutcome("deny", reason), ""
    if answer.exit_code != 0:
        return _failed_outcome(hook, _describe_end(answer))
    answers, garbled = _find_answers(answer.out)
    try:
        outcomes = [_parse_outcome(hook, found) for found in answers]
    except (ValueError, TypeError, AttributeError) as error:
        return _failed_outcome(hook, _not_understood(str(error), answer.out))
    if garbled:
        return _failed_outcome(hook, _not_understood("no JSON object", garbled))
    if outcomes:
        return merge_outcomes(outcomes), ""
    # Plain text is context for the same events as in Claude Code.
    adds = hook.event in ("session-start", "user-prompt", "before-compaction")
    return HookOutcome(context=cut(answer.out, MAX_TEXT) if adds else ""), ""


def _answer_by_rule(check: Check, given: Mapping[str, Any], cwd: Path) -> HookAnswer:
    """What a check with a rule answers to a call: it blocks what the rule forbids."""
    from ouro.extensions.hook_process import HookAnswer  # few sessions have a hook

    try:
        is_refused = forbids(check.rule, given["tool"], given["effect"], given["targets"], cwd)
    except ConfigError as error:
        return HookAnswer(None, "", error.message)
    if not is_refused:
        return HookAnswer(0, "", "")
    reason = f"The user has corrected this before: {check.text} (Do not retry it in another form.)"
    return HookAnswer(BLOCKS, "", reason)


def _failed_outcome(hook: Hook, failure: str) -> tuple[HookOutcome, str]:
    """What a hook that failed decides: a guard refuses the call, others do nothing."""
    if not hook.is_guard:
        return HookOutcome(), failure
    reason = (
        f"The hook `{hook.label}` ({hook.place}) did not answer: {failure}. A call that it did not"
        " check is refused; with `on_failure: permit` at the hook it would run."
    )
    return HookOutcome("deny", reason), failure


def _describe_end(answer: HookAnswer) -> str:
    what = "no answer" if answer.exit_code is None else f"exit code {answer.exit_code}"
    return f"{what}: {one_line(answer.error or answer.out, 300)}".rstrip(": ")


def _not_understood(error: str, out: str) -> str:
    return f"its output is not JSON that ouro understands ({error}): {one_line(out, 120)}"


def _find_answers(out: str) -> tuple[list[dict[str, Any]], str]:
    """The answers in an output; and the first text of it that reads as one but is none, such as an
    answer that is cut, or in the notation of another language. Banners and logs are passed over.
    """
    answers: list[dict[str, Any]] = []
    rest, at = "", 0
    for start, end, found in _find_objects(out):
        if found is None and (start == 0 or _BEGINS_ANSWER.match(out, start)):
            return answers, out[start:]
        if found and not _ANSWER_KEYS.isdisjoint(found):
            answers.append(found)
            rest += out[at:start]
            at = end
    garbled = _NAMES_DECISION.search(rest + out[at:])
    return answers, garbled.group() if garbled else ""


def _find_objects(out: str) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Each outer object of JSON, with its start and end; None for a brace that begins none."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(_MAX_OBJECTS):
        start = out.find("{", at)
        if start < 0:
            return
        try:
            found, at = decoder.raw_decode(out, start)
        except (ValueError, RecursionError):
            found, at = None, start + 1
        yield start, at, found


def _parse_outcome(hook: Hook, said: Mapping[str, Any]) -> HookOutcome:
    """What the JSON answer of a hook decides. Raises TypeError if it changes the input to something
    else than an object.
    """
    own: Mapping[str, Any] = said.get("hookSpecificOutput") or {}
    verdict, why = _verdict_of(hook, own, said)
    if verdict == "allow" and hook.is_project:
        verdict = ""  # a project permits nothing (R2)
    changed = own.get("updatedInput") or said.get("input")
    if changed is not None and not isinstance(changed, dict):
        raise TypeError("the changed input is not an object")
    reason = cut(str(why), MAX_TEXT) or ("It gave no reason." if verdict == "deny" else "")
    context = cut(str(own.get("additionalContext") or said.get("context") or ""), MAX_TEXT)
    notice = cut(str(said.get("systemMessage") or ""), 2_000)
    return HookOutcome(verdict, reason, changed, context, notice)


def _verdict_of(
    hook: Hook, own: Mapping[str, Any], said: Mapping[str, Any]
) -> tuple[Verdict, object]:
    """What a hook decides, and why."""
    word = str(own.get("permissionDecision") or said.get("decision") or "")
    if word and word not in _VERDICTS:
        raise ValueError(f"`{word}` is not a decision")
    reason = own.get("permissionDecisionReason") or said.get("reason") or ""
    if said.get("continue") is not False:
        return _VERDICTS.get(word, ""), reason
    # At the end of a turn a refusal makes the agent continue.
    ends_turn = hook.event in ("turn-end", "subagent-end")
    return "" if ends_turn else "deny", said.get("stopReason") or reason


def tool_data(
    tool: str, effect: str, arguments: Mapping[str, Any], targets: Sequence[str], cwd: Path
) -> dict[str, Any]:
    """The fields about a tool call: tool and arguments with the names of Claude Code and with
    ouro's own.
    """
    names = {"tool_name": names_elsewhere(tool)[0], "tool": tool, "effect": str(effect)}
    theirs = _claude_arguments(tool, arguments, targets, cwd)
    return {**names, "tool_input": theirs, "targets": list(targets)}


def _claude_arguments(
    tool: str, arguments: Mapping[str, Any], targets: Sequence[str], cwd: Path
) -> dict[str, Any]:
    """The arguments with the fields of Claude Code; the texts of several edits are joined."""
    theirs: dict[str, Any] = {}
    if targets and tool in ("read", "write", "edit", "notebook_edit", "apply_patch"):
        theirs["file_path"] = str(cwd / Path(targets[0]).expanduser())
    edits = dictionaries(arguments.get("edits"))
    if tool == "apply_patch":
        theirs |= _patch_fields(str(arguments.get("input", "")).splitlines())
    elif tool == "notebook_edit":
        theirs |= _notebook_fields(theirs, edits)
    elif edits:
        for name, own in _EDIT_FIELDS.items():
            theirs[name] = "\n".join(str(edit.get(own, "")) for edit in edits)
        theirs["replace_all"] = any(edit.get("replace_all") for edit in edits)
    return {**theirs, **arguments}


def _patch_fields(lines: Sequence[str]) -> dict[str, str]:
    """The removed and the added lines of a patch, as Claude Code's Edit has them."""
    removed = [line[1:] for line in lines if line.startswith("-")]
    added = [line[1:] for line in lines if line.startswith("+")]
    return {"old_string": "\n".join(removed), "new_string": "\n".join(added)}


def _notebook_fields(
    theirs: Mapping[str, Any], edits: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of Claude Code's NotebookEdit; the sources of several edits are joined."""
    path = theirs.get("file_path", "")
    sources = [str(edit["source"]) for edit in edits if edit.get("source") is not None]
    first = edits[0] if edits else {}
    return {
        "notebook_path": path,
        "new_source": "\n".join(sources),
        "edit_mode": first.get("mode", "replace"),
    }


def own_arguments(
    tool: str,
    arguments: Mapping[str, Any],
    changed: Mapping[str, Any],
    targets: Sequence[str],
    cwd: Path,
) -> dict[str, Any]:
    """The arguments of a call with the changes of a hook, which uses the names of the tool or of
    Claude Code.
    """
    given = _claude_arguments(tool, arguments, targets, cwd)
    new = {key: value for key, value in changed.items() if key not in given or value != given[key]}
    if "path" in arguments and "file_path" in new:
        new["path"] = new.pop("file_path")
    if tool == "edit" and not new.keys().isdisjoint(_ONE_EDIT):
        # The joined texts of several edits are not in the file, so such an edit would fail.
        edit = {key: new.pop(key, given.get(key)) for key in _ONE_EDIT}
        new["edits"] = [{_EDIT_FIELDS.get(key, key): value for key, value in edit.items()}]
    return {**arguments, **new}
