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

from ouro.errors import ConfigError, OuroError
from ouro.extensions.correction_checks import Check, Checks
from ouro.extensions.hook_files import (
    DEFAULT_SECONDS,
    EVENT_NAMES,
    TOOL_EVENTS,
    Hook,
    is_loopback,
    is_rule,
)
from ouro.extensions.tool_names import own_rule
from ouro.safety import Deny, Effect, Permissions, Workspace, parse_rule
from ouro.settings import HookEvent
from ouro.tools.tool import HookOutcome, Verdict
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dump_json
from ouro.utils.log import log
from ouro.utils.text import cut, one_line

if TYPE_CHECKING:
    from ouro.extensions.hook_process import HookAnswer
    from ouro.extensions.prompt_hook import AskHookModel, RunHookAgent

T = TypeVar("T")
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
"""Maximum runs that are kept for `/hooks`."""
_is_checked_now: ContextVar[bool] = ContextVar("is_checked_now", default=False)
"""Whether the subagent of a hook works in this task. Its tool calls do not start the subagent of a
hook again.
"""
_MAX_JSON_OBJECTS = 1_000
"""Maximum objects that are looked for in one output."""
_ANSWER_START = late_pattern(r"\{\s*[\"']?(?:" + "|".join(sorted(_ANSWER_KEYS)) + r")\b")
"""Matches the start of an answer that is not valid JSON, such as `{'decision': …`."""
_DECISION_TEXT = late_pattern(r"(?im)decision\W*[:=].*|(?:^|permission)\W*(?:deny|block)\b.*")
"""Matches text outside of JSON that names a decision: `decision: block`, `permission: deny`."""
_BY_STRICTNESS: tuple[Verdict, ...] = ("", "allow", "ask", "deny")
"""The verdicts; the last one is the strictest."""
_VERDICTS: Mapping[str, Verdict] = {
    "approve": "allow",
    "block": "deny",
    "allow": "allow",
    "ask": "ask",
    "deny": "deny",
}
"""A word in an answer, also an older one of Claude Code -> the verdict."""


class HookServices(msgspec.Struct, frozen=True):
    """The parts of a session that hooks need."""

    ask: AskHookModel | None = None
    """Asks a model, for hooks with a prompt."""
    start: Callable[[Coroutine[Any, Any, None]], None] | None = None
    """Starts a hook in the background; the session ends it."""


class HookRun(msgspec.Struct, frozen=True):
    """One run of a hook, for `/hooks`."""

    hook: Hook
    at: float
    """When it began, in seconds since 1970."""
    seconds: float
    """How long it took."""
    answer: HookAnswer
    outcome: HookOutcome
    failure: str
    """Why its answer does not count; empty if it counts."""


def _hook_of_check(check: Check) -> Hook:
    """The hook that enforces a check. It never permits anything."""
    return Hook(
        event=check.event,
        command=check.command,
        url="",
        matcher=check.matcher,
        seconds=DEFAULT_SECONDS,
        place=f"check {check.number}: {check.text}",
        is_project=True,  # so that it permits nothing
        check=check,
    )


def forbids(rule: str, tool: str, effect: str, targets: Sequence[str], cwd: Path) -> bool:
    """Whether a `deny` rule refuses a call. Raises ConfigError if the rule cannot be read."""
    permissions = Permissions(Workspace(cwd), "auto", deny=[rule])
    return isinstance(permissions.decide(tool, Effect(effect), targets), Deny)


def covers(condition: str, call: Mapping[str, Any], cwd: Path) -> bool:
    """Whether the condition of a hook, which is a permission rule, is about a tool call. If that is
    not known, it counts as true, because a guard should run too often rather than never.

    Args:
        call: the fields of the call, as `tool_data` returns them.
    """
    if not is_rule(condition):
        return True
    rule, tool, targets = own_rule(condition), call["tool"], call["targets"]
    if forbids(rule, tool, call["effect"], targets, cwd):
        return True
    is_about_tool = parse_rule(rule).covers(tool, Effect(call["effect"]))
    is_command = call["effect"] == Effect.RUN
    # What an opaque line runs is not known, so the rule may be about it.
    return is_about_tool and is_command and any(map(_is_opaque, targets))


def _is_opaque(text: str) -> bool:
    """Whether a shell line runs something that cannot be seen in it, such as a variable."""
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
        self._reported: set[tuple[Hook, str]] = set()
        """The failures that the user has seen, by hook."""
        self.run_agent: RunHookAgent | None = None
        """Runs a subagent, for hooks with an agent. Assigned later: subagents are made with these hooks."""
        self._used_hooks: set[Hook] = set()
        """The hooks with `once` that have run: they do not run again."""
        self._background_outcomes: list[HookOutcome] = []
        """The outcomes of hooks in the background that were not taken yet."""

    def change_checks(self, change: Callable[[Checks], T]) -> T:
        """Call `change` with the checks, then enforce them as they are saved. Returns what `change`
        returns. Blocks. Raises ConfigError, and what `change` raises.
        """
        result = change(self.checks)
        self.enforce_checks()
        return result

    def enforce_checks(self) -> None:
        """Enforce the saved checks from now on, and no others. Blocks. Raises ConfigError."""
        other_hooks = (hook for hook in self.hooks if not hook.check)
        self.hooks = (*other_hooks, *map(_hook_of_check, self.checks.list_here()))

    def add(self, hooks: Sequence[Hook]) -> None:
        """Run these hooks, too, from now on."""
        self.hooks = tuple(dict.fromkeys((*self.hooks, *hooks)))

    @contextmanager
    def run_also(self, hooks: Sequence[Hook]) -> Iterator[None]:
        """Run these hooks, too, during the `with` block."""
        new = [hook for hook in hooks if hook not in self.hooks]
        self.add(new)
        try:
            yield
        finally:
            self.hooks = tuple(hook for hook in self.hooks if hook not in new)

    def has(self, event: HookEvent) -> bool:
        """Whether a hook may run at an event."""
        return any(hook.event == event for hook in self.hooks)

    async def run(
        self,
        event: HookEvent,
        data: Mapping[str, Any],
        names: Sequence[str] = (),
        max_seconds: float | None = None,
    ) -> HookOutcome:
        """Run the hooks of an event side by side, each once, and return their merged outcome. Those
        in the background are only started: their outcome comes by `collect_background_outcome`.

        Args:
            data: the JSON that they receive, in addition to the name of the event.
            names: the texts for matchers: the names of a tool, else a word such as `resume`.
            max_seconds: a limit for each of them, if it is shorter than its own.
        """
        agent = str(data.get("agent", ""))  # the id of the subagent; empty for the agent itself
        matching = dict.fromkeys(
            hook for hook in self.hooks if hook.event == event and hook.matches(names, agent)
        )
        event_data = {**data, "hook_event_name": EVENT_NAMES[event], "event": event}
        foreground: list[Hook] = []
        for hook in matching:
            if not await self._begin_use(hook, event_data):
                continue
            if hook.traits.in_background and self._can_start_in_background(event):
                self._start_in_background(hook, event_data)
            else:
                foreground.append(hook)
        if not foreground:
            return HookOutcome()
        runs = (self._run_one(hook, event_data, max_seconds) for hook in foreground)
        return merge_outcomes(await asyncio.gather(*runs))

    def collect_background_outcome(self) -> HookOutcome:
        """Take the context and messages of background hooks that ended since the last call."""
        outcomes, self._background_outcomes = self._background_outcomes, []
        return merge_outcomes([HookOutcome(), *outcomes])

    async def _begin_use(self, hook: Hook, event_data: Mapping[str, Any]) -> bool:
        """Decide whether a hook, whose matcher fits the event, runs now, and return that. It does not
        if its condition does not hold, if it has `once` and ran before, or if it asks an agent and
        such an agent made the call. If it has `once`, it counts as used from now on.
        """
        if hook in self._used_hooks or (hook.traits.checker and _is_checked_now.get()):
            return False
        condition = hook.traits.condition
        if condition and hook.event not in TOOL_EVENTS:
            return False
        if condition:
            is_about = await asyncio.to_thread(covers, condition, event_data, self._cwd)
            if not is_about:
                return False
        if hook.traits.is_once:
            self._used_hooks.add(hook)
        return True

    def _can_start_in_background(self, event: HookEvent) -> bool:
        """Whether hooks of an event can run in the background. At the end of a session they cannot,
        because nobody would end them.
        """
        return self._services.start is not None and event != "session-end"

    def _start_in_background(self, hook: Hook, event_data: Mapping[str, Any]) -> None:
        """Start a hook in the background of the session; its texts wait for
        `collect_background_outcome`.
        """
        assert self._services.start is not None

        async def run() -> None:
            outcome = await self._run_one(hook, event_data, max_seconds=None)
            # It came too late to decide, so only its texts count.
            texts = HookOutcome(context=outcome.context, message=outcome.message)
            self._background_outcomes.append(texts)

        self._services.start(run())

    async def _run_one(
        self, hook: Hook, event_data: Mapping[str, Any], max_seconds: float | None
    ) -> HookOutcome:
        """Run one hook, record the run for `/hooks`, and report its failure the first time."""
        started_at, start = time.time(), time.monotonic()
        seconds = min(hook.seconds, max_seconds or hook.seconds)
        answer = await self._get_answer(hook, event_data, seconds)
        outcome, failure = read_answer(hook, answer)
        took = time.monotonic() - start
        if hook.check and outcome.verdict == "deny":
            await asyncio.to_thread(self._count_refusal, hook.check.number)
        elif hook.check and hook.check.rule and not failure:
            return outcome  # not recorded: a rule is compared with every call
        self.runs.append(HookRun(hook, started_at, took, answer, outcome, failure))
        log.info(
            "hook %s %r: %s in %.2f s",
            hook.event,
            hook.label,
            failure or outcome.verdict or "done",
            took,
        )
        # Only once for each failure, because it may fail at every call.
        if failure and (hook, failure) not in self._reported:
            self._reported.add((hook, failure))
            self._on_failure(
                f"The hook `{hook.label}` ({hook.event}, {hook.place}) failed: {failure}"
            )
        return outcome

    def _count_refusal(self, number: int) -> None:
        """Count a refusal of the check with this number; a failure is only logged. Blocks."""
        try:
            self.checks.count_refusal(number)
        except (ConfigError, OSError) as error:
            log.warning("check %s: its count is not saved: %s", number, error)

    async def _get_answer(
        self, hook: Hook, event_data: Mapping[str, Any], seconds: float
    ) -> HookAnswer:
        """Run what the hook consists of: a rule, a command, a subagent, a model or a server."""
        # Few sessions have a hook.
        from ouro.extensions.hook_process import HookAnswer, post

        if hook.check and hook.check.rule:
            return _answer_by_rule(hook.check, event_data, self._cwd)
        data = dump_json(event_data, is_ascii=True, default=str).encode()
        if hook.command:
            return await self._run_command(hook, data, seconds)
        if hook.traits.checker:
            return await self._check_by_agent(hook, data, seconds)
        if hook.traits.prompt:
            from ouro.extensions.prompt_hook import ask_prompt  # few hooks ask a model

            return await ask_prompt(
                self._services.ask, hook.traits.prompt, hook.traits.model, data, seconds
            )
        if is_loopback(hook.url):
            return await post(hook.url, data, seconds)
        return HookAnswer.failed("its address is not on this machine")

    async def _run_command(self, hook: Hook, data: bytes, seconds: float) -> HookAnswer:
        """Run the command of a hook, in the sandbox if it is a project's. If it cannot be confined,
        the answer is a failed one.
        """
        from ouro.extensions.hook_process import HookAnswer, run_command

        argv: Sequence[str] = ("bash", "-c", hook.command)
        if hook.is_project and not hook.check:  # the user wrote the command of a check
            try:
                argv = await asyncio.to_thread(self._confine, argv)
            except (OSError, OuroError) as error:
                return HookAnswer.failed(f"it cannot be confined: {error}")
        environment = {**self._environment, "CLAUDE_PLUGIN_ROOT": hook.plugin}
        return await run_command(argv, data, self._folder_of(hook), environment, seconds)

    def _folder_of(self, hook: Hook) -> Path:
        """Where the command of a hook runs. A file of a project names its scripts relative to the
        project, also if the session works in a folder of it.
        """
        is_of_project_file = hook.is_project and not hook.plugin and not hook.check
        if not is_of_project_file:
            return self._cwd
        return Path(self._environment.get("OURO_PROJECT_DIR", self._cwd))

    async def _check_by_agent(self, hook: Hook, data: bytes, seconds: float) -> HookAnswer:
        """Let a subagent decide. Its own tool calls do not start the subagent of a hook again."""
        from ouro.extensions.prompt_hook import ask_agent  # few hooks have an agent

        token = _is_checked_now.set(True)
        try:
            traits = hook.traits
            return await ask_agent(self.run_agent, traits.checker, traits.prompt, data, seconds)
        finally:
            _is_checked_now.reset(token)


def merge_outcomes(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """Merge one or more outcomes to one: the strictest verdict with the reasons for it, all
    contexts and messages, and the changed input, in which the last change of each key counts.
    """
    verdicts: list[Verdict] = [outcome.verdict for outcome in outcomes]
    strictest = max(verdicts, key=_BY_STRICTNESS.index)
    reasons = [outcome.reason for outcome in outcomes if outcome.verdict == strictest]
    changed_input: dict[str, Any] | None = None
    for outcome in outcomes:
        if outcome.input is not None:
            changed_input = {**(changed_input or {}), **outcome.input}
    return HookOutcome(
        verdict=strictest,
        reason="\n".join(dict.fromkeys(filter(None, reasons))),
        input=changed_input,
        context="\n\n".join(filter(None, (outcome.context for outcome in outcomes))),
        message="\n".join(filter(None, (outcome.message for outcome in outcomes))),
    )


def read_answer(hook: Hook, answer: HookAnswer) -> tuple[HookOutcome, str]:
    """Read the answer of a hook. Returns its outcome, and why the answer does not count (empty if
    it counts). An answer that does not count decides nothing; if the hook is a guard, it refuses.

    The exit code 2 refuses; any other but 0 is a failure. After 0 the JSON objects in the output
    decide. Output without JSON is context for the model at some events, else ignored.
    """
    if answer.is_blocked:
        reason = cut(answer.error or answer.out or "It gave no reason.", MAX_TEXT)
        return HookOutcome("deny", reason), ""
    if answer.exit_code != 0:
        return _failed_outcome(hook, _describe_end(answer))
    answers, garbled = _find_answers(answer.out)
    try:
        outcomes = [_parse_outcome(hook, parsed) for parsed in answers]
    except (ValueError, TypeError, AttributeError) as error:
        return _failed_outcome(hook, _describe_garbled(str(error), answer.out))
    if garbled:
        return _failed_outcome(hook, _describe_garbled("no JSON object", garbled))
    if outcomes:
        return merge_outcomes(outcomes), ""
    # Plain text is context for the same events as in Claude Code.
    is_context = hook.event in ("session-start", "user-prompt", "before-compaction")
    return HookOutcome(context=cut(answer.out, MAX_TEXT) if is_context else ""), ""


def _answer_by_rule(check: Check, call: Mapping[str, Any], cwd: Path) -> HookAnswer:
    """The answer of a check with a rule about a call: blocked if the rule forbids the call."""
    from ouro.extensions.hook_process import HookAnswer  # few sessions have a hook

    try:
        is_refused = forbids(check.rule, call["tool"], call["effect"], call["targets"], cwd)
    except ConfigError as error:
        return HookAnswer.failed(error.message)
    if not is_refused:
        return HookAnswer.allowed()
    reason = f"The user has corrected this before: {check.text} (Do not retry it in another form.)"
    return HookAnswer.blocked(reason)


def _failed_outcome(hook: Hook, failure: str) -> tuple[HookOutcome, str]:
    """The outcome of a hook that failed, and `failure`, as `read_answer` returns them. A guard
    refuses the call; other hooks decide nothing.
    """
    if not hook.is_guard:
        return HookOutcome(), failure
    reason = (
        f"The hook `{hook.label}` ({hook.place}) did not answer: {failure}. A call that it did not"
        " check is refused; with `on_failure: permit` at the hook it would run."
    )
    return HookOutcome("deny", reason), failure


def _describe_end(answer: HookAnswer) -> str:
    """How a hook ended that did not succeed, in words: its exit code, and what it printed."""
    what = "no answer" if answer.exit_code is None else f"exit code {answer.exit_code}"
    return f"{what}: {one_line(answer.error or answer.out, 300)}".rstrip(": ")


def _describe_garbled(error: str, out: str) -> str:
    return f"its output is not JSON that ouro understands ({error}): {one_line(out, 120)}"


def _find_answers(out: str) -> tuple[list[dict[str, Any]], str]:
    """Find the answers in an output, in which a hook may also print banners and logs.

    Returns the JSON objects that are answers, and the first text that looks like an answer but
    cannot be read: one that is cut, or in the notation of another language. The text is empty if
    there is none.
    """
    answers: list[dict[str, Any]] = []
    text_outside, end_of_last = "", 0
    for start, end, parsed in _find_objects(out):
        if parsed is None:
            looks_like_answer = start == 0 or bool(_ANSWER_START.match(out, start))
            if looks_like_answer:
                return answers, out[start:]
        elif not _ANSWER_KEYS.isdisjoint(parsed):
            answers.append(parsed)
            text_outside += out[end_of_last:start]
            end_of_last = end
    garbled = _DECISION_TEXT.search(text_outside + out[end_of_last:])
    return answers, garbled.group() if garbled else ""


def _find_objects(out: str) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Yields each outer JSON object in an output, after the offsets of its start and its end. For a
    brace that begins no object, None stands for it.
    """
    decoder, end = json.JSONDecoder(), 0
    for _ in range(_MAX_JSON_OBJECTS):
        start = out.find("{", end)
        if start < 0:
            return
        try:
            parsed, end = decoder.raw_decode(out, start)
        except (ValueError, RecursionError):
            parsed, end = None, start + 1
        yield start, end, parsed


def _parse_outcome(hook: Hook, answer: Mapping[str, Any]) -> HookOutcome:
    """The outcome that the JSON answer of a hook describes. Raises TypeError if the changed input
    is not an object, ValueError for an unknown decision.
    """
    # Claude Code's newer format has an object for what is about this event.
    specific: Mapping[str, Any] = answer.get("hookSpecificOutput") or {}
    verdict, explanation = _verdict_of(hook, specific, answer)
    if verdict == "allow" and hook.is_project:
        verdict = ""  # a project permits nothing (R2)
    changed_input = specific.get("updatedInput") or answer.get("input")
    if changed_input is not None and not isinstance(changed_input, dict):
        raise TypeError("the changed input is not an object")
    reason = cut(str(explanation), MAX_TEXT)
    if verdict == "deny" and not reason:
        reason = "It gave no reason."
    context = cut(str(specific.get("additionalContext") or answer.get("context") or ""), MAX_TEXT)
    notice = cut(str(answer.get("systemMessage") or ""), 2_000)
    return HookOutcome(verdict, reason, changed_input, context, notice)


def _verdict_of(
    hook: Hook, specific: Mapping[str, Any], answer: Mapping[str, Any]
) -> tuple[Verdict, object]:
    """The verdict in an answer, and its reason. `continue: false` in the answer refuses, too,
    except at the end of a turn. `specific`, the part of the answer for this event, counts before
    the rest. Raises ValueError if the decision is unknown.
    """
    word = str(specific.get("permissionDecision") or answer.get("decision") or "")
    if word and word not in _VERDICTS:
        raise ValueError(f"`{word}` is not a decision")
    reason = specific.get("permissionDecisionReason") or answer.get("reason") or ""
    if answer.get("continue") is not False:
        return _VERDICTS.get(word, ""), reason
    # At the end of a turn a refusal makes the agent continue.
    ends_turn = hook.event in ("turn-end", "subagent-end")
    return "" if ends_turn else "deny", answer.get("stopReason") or reason
