"""ToolRunner: check, ask for permission and run the tool calls of one answer, side by side."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from ouro.display import Display, Plain, Question
from ouro.errors import OuroError, StoppedByUser, ToolError
from ouro.events import (
    Emit,
    Notice,
    PermissionAsked,
    Permit,
    QuestionAsked,
    Reply,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
    UserAnswer,
)
from ouro.llm import ModelSpec, ToolSpec
from ouro.messages import Message, ToolCall, ToolReply
from ouro.safety import Allow, Ask, Decision, Deny, Effect, Limits, Permissions
from ouro.tools.tool import AnyTool, HookOutcome, ToolContext, ToolResult, parse_arguments
from ouro.utils.lenient_json import MAX_DEPTH
from ouro.utils.log import log
from ouro.utils.text import readable_bytes

MAX_SIDE_BY_SIDE = 8
_CHANGING_EFFECTS = (Effect.WRITE, Effect.RUN, Effect.MCP, Effect.TOOL)
INTERRUPTED = "Interrupted by the user before it finished."
_MAX_INTERRUPTED = 8_000
"""The number of characters that are kept from the end of an interrupted call's output."""
REFUSED = "The user refused. Ask what they prefer, or continue without it."
"""The result, for the model, of a call that the user has refused."""
STOPPED = "The user refused, and stopped the turn. Wait for what they say."
"""The same if the user has stopped the turn with it."""
SAY_INSTEAD = "Refused. Say what to do instead."
"""What the user reads at the end of a turn that they have stopped by refusing a call."""
REFUSED_SUMMARY = "refused"
"""The summary of a call that the user, a rule or a hook has refused."""

AskUser = Callable[[PermissionAsked | QuestionAsked, Emit], Awaitable[UserAnswer]]
"""Emits a question, and returns the user's answer; emits then that the question is closed."""


class RefusedError(ToolError):
    """The user, a rule or the mode refused the call."""


class StopError(RefusedError):
    """The user refused the call, and the turn with it."""


class ToolHooks(Protocol):
    """Runs the hooks of users before and after a tool call."""

    async def before(
        self, call: ToolCall, effect: Effect, targets: Sequence[str]
    ) -> HookOutcome: ...

    async def after(
        self, call: ToolCall, effect: Effect, targets: Sequence[str], result: ToolResult
    ) -> str:
        """Return the text to add to the result of a call, for the model; empty if there is none."""
        ...


class JudgedCall(msgspec.Struct, frozen=True):
    """A call that would be asked about, as its judge sees it."""

    tool: str
    arguments: Mapping[str, Any]
    title: str
    reason: str
    """Why ouro would ask."""


class JudgeVerdict(msgspec.Struct, frozen=True):
    """The verdict of a model about a call: it runs, or the user is asked."""

    allows: bool
    reason: str


class PermissionJudge(Protocol):
    """Lets a model decide about calls that the user would be asked about."""

    async def judge(self, call: JudgedCall) -> JudgeVerdict | None:
        """The verdict of a model. None if the judge is off, or the user has revoked its verdict
        about the same call: then the user is asked. After a failure the verdict is that the user
        is asked.
        """
        ...


class Permitted(msgspec.Struct, frozen=True):
    """A call may run: what a command may change, and what the user or the judge has added."""

    limits: Limits
    comment: str = ""
    """The comment of the user."""
    judged: str = ""
    """The reason of the judge, if it has allowed the call."""


class HookedCall(NamedTuple):
    """A call after its hooks, which may have changed it."""

    call: ToolCall
    args: Any
    outcome: HookOutcome
    notes: tuple[str, ...] = ()
    """What the model must know about the change."""


class ToolRunner(msgspec.Struct, frozen=True):
    """Runs tool calls. Only here a tool's failure is converted to a result for the model."""

    tools: Mapping[str, AnyTool]
    permissions: Permissions
    ask_user: AskUser
    changing: Callable[[Effect, Sequence[str]], AbstractAsyncContextManager[None]]
    """Returns a context in which a tool that may change files runs; takes its effect and targets."""
    after_tool: Callable[[str], Awaitable[None]] | None
    """Awaited with the name of a tool that has run, before its result is shown. It is called for one
    tool at a time. None: nothing is called.
    """
    hooks: ToolHooks | None = None
    """None: no hooks run."""
    judge: PermissionJudge | None = None
    """None: the user answers all questions."""

    def specs(self, model: ModelSpec) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them, in a fixed order. Of the two tools that edit files, it
        sees the one that it was trained on.
        """
        left_out = "edit" if model.patches else "apply_patch"
        return tuple(tool.spec() for name, tool in self.tools.items() if name != left_out)

    def title(self, call: ToolCall) -> str:
        """The title of a call for the user; the name of the tool if the arguments are wrong."""
        try:
            tool, args = self.parse(call)
        except ToolError:
            return call.name
        return tool.title(args)

    def correct_calls(self, answer: Message) -> Message:
        """The answer of a model, with its calls in the form that the tools require. A call that can
        be understood in several ways stays as it is.
        """
        if not answer.tool_calls:
            return answer
        from ouro.tools.odd_calls import read_calls  # imported late: few answers need it

        return read_calls(answer, self.tools)

    def parse(self, call: ToolCall) -> tuple[AnyTool, Any]:
        """The tool that does the work of a call, and its arguments. That is the called tool, or the
        one to which it forwards the call. Raises ToolError if there is no such tool, or the
        arguments are wrong.
        """
        from ouro.tools.odd_calls import example_call  # imported late: few answers need it

        tool = self.tools.get(call.name)
        if tool is None:
            raise ToolError(f"There is no tool `{call.name}`. There are: {', '.join(self.tools)}.")
        if call.malformed:
            problem = _describe_malformed(call.malformed)
            raise ToolError(
                f"{problem}, so nothing was run: {call.malformed[:200]!r}."
                f" A right call: {example_call(tool)}"
            )
        try:
            args = parse_arguments(tool, call.arguments)
        except ToolError as error:
            raise ToolError(f"{error} A right call: {example_call(tool)}") from error
        return tool.resolve(args)

    def files_in(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yields a line for each file that a successful call in `messages` changed or read, in the
        order of the calls, as an item of a Markdown list. A file may come several times.
        """
        calls: list[ToolCall] = []
        results: dict[str, ToolReply] = {}
        for message in messages:
            calls += message.tool_calls
            results |= {result.call_id: result for result in message.parts_of(ToolReply)}
        for call in calls:
            result = results.get(call.id)
            if result is not None and not result.failed:
                yield from self._list_files(call)

    def _list_files(self, call: ToolCall) -> Iterator[str]:
        """Yields a line for each file of a call: `- changed` or `- read`, and its path. Nothing for
        a call that neither reads nor changes files.
        """
        try:
            tool, args = self.parse(call)
        except ToolError:
            return  # a tool that no longer exists
        if tool.effect is Effect.WRITE:
            verb = "changed"
        elif tool.name == "read":
            verb = "read"
        else:
            return
        for path in tool.targets(args):
            yield f"- {verb} `{path}`"


class ToolBatch:
    """Runs the tool calls of one answer side by side, with results in the order of the calls."""

    def __init__(
        self,
        runner: ToolRunner,
        calls: Sequence[ToolCall],
        emit: Emit,
        save: Callable[[ToolReply], Awaitable[None]] | None = None,
    ) -> None:
        """`save` stores each result when its call ends, before it is shown, so that a kill while
        other calls run does not lose it.
        """
        self._runner = runner
        self._calls = calls
        self._emit = emit
        self._save = save
        self._results: dict[str, ToolReply] = {}
        self._printed: dict[str, str] = {}
        """What each running call has printed so far, by its id."""
        self._began: dict[str, float] = {}
        self._stopped: set[str] = set()
        """The calls at which the user stopped the turn."""
        self._question_numbers = itertools.count(1)
        self._slots = asyncio.Semaphore(MAX_SIDE_BY_SIDE)
        self._question_lock = asyncio.Lock()
        """One question at a time: "always" to the first may answer the second."""
        self._after_tool_lock = asyncio.Lock()
        """`after_tool` of the runner is called for one call at a time."""

    def results(self) -> tuple[ToolReply, ...]:
        """One result for each call, in order; for an unfinished call its output so far."""
        return tuple(
            self._results.get(call.id) or self._interrupted_result(call) for call in self._calls
        )

    def touched_paths(self) -> tuple[str, ...]:
        """The paths that the successful calls have read or written, as the calls name them."""
        paths: list[str] = []
        for call in self._calls:
            tool = self._runner.tools.get(call.name)
            result = self._results.get(call.id)
            if tool and result and not result.failed and tool.effect in (Effect.READ, Effect.WRITE):
                try:
                    tool, args = self._runner.parse(call)
                except ToolError:  # its file is gone, and several others look like it
                    continue
                paths.extend(tool.targets(args))
        return tuple(paths)

    def _interrupted_result(self, call: ToolCall) -> ToolReply:
        """The result of a call that has not ended, with the end of what it has printed until now."""
        printed = self._printed.get(call.id, "").strip()
        text = f"{INTERRUPTED} Until then it had printed:\n{printed}" if printed else INTERRUPTED
        display = Display("interrupted", Plain(printed) if printed else None)
        return ToolReply(call.id, call.name, text, failed=True, display=display)

    async def run(self) -> None:
        """Run all calls. When cancelled, end the running calls first.

        Raises StoppedByUser if the user stopped the turn at a question; the other calls were ended.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for call in self._calls:
                    group.create_task(self._run_one(call))
        except* StoppedByUser:
            raise StoppedByUser(SAY_INSTEAD) from None

    async def _run_one(self, call: ToolCall) -> None:
        """Run one call from its start event to its end event, and save its result. At most
        MAX_SIDE_BY_SIDE run at the same time. Raises StoppedByUser if the user stopped the turn at
        its question.
        """
        self._began[call.id] = time.monotonic()
        self._emit(ToolStarted(call, self._runner.title(call)))
        async with self._slots:
            result = await self._run_tool(call)
        self._results[call.id] = ToolReply(
            call.id, call.name, result.text, result.failed, result.images, result.display
        )
        seconds = time.monotonic() - self._began[call.id]
        if self._save:
            await self._save(self._results[call.id])
        if after_tool := self._runner.after_tool:
            async with self._after_tool_lock:
                await after_tool(call.name)
        self._emit(ToolFinished(call.id, call.name, result.display, result.failed, seconds))
        if call.id in self._stopped:
            raise StoppedByUser(SAY_INSTEAD)

    async def _run_tool(self, call: ToolCall) -> ToolResult:
        """Run the hooks before a call, ask for permission, and run it. Returns its result for the
        model. A refusal and every failure are results, too; nothing is raised but a cancel.
        """
        try:
            # What is run: hooks may change the call.
            tool, args = self._runner.parse(call)
            args = await tool.prepare(args)
            if tool.name != call.name:  # hooks and questions are about the tool that mcp_call calls
                call = replace(call, name=tool.name, arguments=tool.plain_arguments(args))
            call, args, hooked, hook_notes = await self._ask_hooks(call, tool, args)
            permitted = await self._permit(call, tool, args, hooked)

            # Run it, within a checkpoint if it may change files. With the limits "read" the sandbox
            # lets a command only read.
            may_change = tool.effect in _CHANGING_EFFECTS and permitted.limits != "read"
            changing = self._runner.changing if may_change else without_checkpoint
            async with changing(tool.effect, tool.targets(args)):
                self._emit(ToolRunning(call.id))
                # The user's time to answer does not count as the tool's time.
                self._began[call.id] = time.monotonic()
                result = await tool.run(args, self._make_context(call, permitted.limits))
            hook_texts = [hooked.context]
            if hooks := self._runner.hooks:
                hook_texts.append(await hooks.after(call, tool.effect, tool.targets(args), result))
        except OuroError as error:
            if isinstance(error, StopError | StoppedByUser):
                self._stopped.add(call.id)
            return _failed_result(str(error), isinstance(error, RefusedError | StoppedByUser))
        except Exception as error:  # noqa: BLE001  # a defect in a tool must not end the session
            log.exception("tool %s failed", call.name)
            return _failed_result(
                f"{call.name} failed inside ouro: {type(error).__name__}: {error}"
            )

        # Tell the model what hooks and the user have added.
        notes = [*hook_notes]
        if permitted.comment:
            notes.append(f"The user adds: {permitted.comment}")
        notes += [f"A hook adds: {text}" for text in hook_texts if text]
        display = _with_verdict(result.display, permitted.judged)
        return replace(result, text=_text_with_notes(result.text, notes), display=display)

    async def _ask_hooks(self, call: ToolCall, tool: AnyTool, args: Any) -> HookedCall:
        """Run the hooks before a call. Returns the call as it is to be run, with the outcome of the
        hooks. If they have changed its arguments, the changed call is shown, and a note for the
        model is returned with it.

        Raises:
            RefusedError: a hook refused the call.
            ToolError: the changed arguments are wrong.
        """
        hooks = self._runner.hooks
        if not hooks:
            return HookedCall(call, args, HookOutcome())
        hooked = await hooks.before(call, tool.effect, tool.targets(args))
        if hooked.verdict == "deny":
            raise RefusedError(f"A hook refused this: {hooked.reason}")
        if hooked.input in (None, call.arguments):
            return HookedCall(call, args, hooked)
        changed_call = replace(call, arguments=hooked.input)
        args = await tool.prepare(parse_arguments(tool, changed_call.arguments))
        title = tool.title(args)
        self._emit(ToolStarted(changed_call, title))
        return HookedCall(
            changed_call, args, outcome=hooked, notes=(f"A hook changed this call to: {title}",)
        )

    async def _permit(
        self, call: ToolCall, tool: AnyTool, args: Any, hooked: HookOutcome
    ) -> Permitted:
        """Returns the permission of a call that may run. The rules decide; if they say to ask, the
        judge decides; if it does not allow the call, the user.

        Raises:
            RefusedError: the call may not run.
            StopError: the user stopped the turn.
        """
        decision = self._decide(tool, args, hooked)
        if not isinstance(decision, Ask):
            return self._admit(tool, args, hooked, decision)
        verdict, allowed = await self._judge(call, tool, args, hooked, ask=decision)
        if verdict is not None and allowed is not None:
            self._runner.permissions.admit(tool.effect, tool.targets(args))
            return Permitted(allowed.limits, judged=verdict.reason)
        # One question at a time: the answer "always" to the first may answer the second.
        async with self._question_lock:
            if self._stopped:
                raise StopError(STOPPED)
            return await self._ask_until_decided(call, tool, args, hooked, verdict)

    async def _ask_until_decided(
        self,
        call: ToolCall,
        tool: AnyTool,
        args: Any,
        hooked: HookOutcome,
        verdict: JudgeVerdict | None,
    ) -> Permitted:
        """Ask the user whether a call may run, and return the permission. Raises RefusedError if
        the user or a rule refuses, StopError if the user stops the turn.

        After each answer the rules are looked at again. If they then ask something else, because a
        path leads to another place by now, the user is asked again.
        """
        decision, comment = self._decide(tool, args, hooked), ""
        answered_question: Decision | None = None
        # The user has said yes to `answered_question`: the same question is not asked again.
        while isinstance(decision, Ask) and decision != answered_question:
            comment = await self._ask_permission(call, tool, args, ask=decision, verdict=verdict)
            answered_question = decision
            decision = self._decide(tool, args, hooked)
        return self._admit(tool, args, hooked, decision, comment)

    def _admit(
        self, tool: AnyTool, args: Any, hooked: HookOutcome, decision: Decision, comment: str = ""
    ) -> Permitted:
        """The permission for a call that is allowed, or whose question the user has answered with
        yes. The call may then open its targets, also outside of the workspace. Raises RefusedError
        if the decision is to deny it.
        """
        if isinstance(decision, Deny):
            raise RefusedError(decision.reason)
        self._runner.permissions.admit(tool.effect, tool.targets(args))
        decision_of_rules: Decision = decision
        if hooked.verdict:  # a hook has decided: the limits of the sandbox are those of the rules
            decision_of_rules = self._decide(tool, args, HookOutcome())
        if isinstance(decision_of_rules, Allow):
            return Permitted(decision_of_rules.limits, comment)
        # A question about it was answered with yes: the sandbox sets no limits.
        return Permitted("off", comment)

    async def _judge(
        self, call: ToolCall, tool: AnyTool, args: Any, hooked: HookOutcome, ask: Ask
    ) -> tuple[JudgeVerdict | None, Allow | None]:
        """Let the judge answer the question `ask` about a call, if it may: not a question of a
        hook.

        Returns:
            Its verdict, None if it was not asked, or the question has changed meanwhile.
            How the call runs, None if it was not allowed: then the user must be asked.
        """
        judge = self._runner.judge
        # Without the hooks there would be no question, or another one.
        is_of_hook = self._decide(tool, args, HookOutcome()) != ask
        if judge is None or is_of_hook or self._allowance_by_judge(tool, args) is None:
            return None, None
        judged_call = JudgedCall(tool.name, call.arguments, tool.title(args), ask.reason)
        verdict = await judge.judge(judged_call)
        if verdict is None or not verdict.allows:
            return verdict, None
        # What the call names may be something else by now: then the user decides.
        allowed = self._allowance_by_judge(tool, args)
        is_unchanged = self._decide(tool, args, hooked) == ask
        return (verdict, allowed) if is_unchanged and allowed is not None else (None, None)

    def _allowance_by_judge(self, tool: AnyTool, args: Any) -> Allow | None:
        """How the call runs if the judge allows it; None if the judge may not decide about it."""
        return self._runner.permissions.find_allowance_by_judge(
            tool.name, tool.effect, tool.targets(args), outside=tool.runs_outside(args)
        )

    def _decide(self, tool: AnyTool, args: Any, hooked: HookOutcome) -> Decision:
        """Decide about a call by the rules and the mode, then by its hooks. A hook can turn a
        permission into a question. It can also answer a question, but only one that the user could
        answer with `always`.
        """
        decision = self._runner.permissions.decide(
            tool.name, tool.effect, tool.targets(args), outside=tool.runs_outside(args)
        )
        if hooked.verdict == "ask" and isinstance(decision, Allow):
            return Ask(f"a hook asks: {hooked.reason}" if hooked.reason else "a hook asks")
        # Without a `rule`, the user could not answer with `always`.
        if hooked.verdict == "allow" and isinstance(decision, Ask) and decision.rule:
            return Allow()
        return decision

    async def _ask_permission(
        self, call: ToolCall, tool: AnyTool, args: Any, ask: Ask, verdict: JudgeVerdict | None
    ) -> str:
        """Ask the user whether a call may run. If the user also allows the same in future, the rule
        is added, for this session or for all. Returns the comment of the user, which may be empty.

        Raises:
            RefusedError: the user refuses the call.
            StopError: the user stops the turn.
        """
        display = await tool.preview(args)
        # Whether the question also offers to change to the mode `edit`. The session changes it.
        edits = tool.effect is Effect.WRITE and self._runner.permissions.edits_by_mode(
            tool.name, tool.targets(args)
        )
        question = PermissionAsked(
            self._question_id(call),
            call,
            tool.title(args),
            display,
            reason=f"{ask.reason}; the judge: {verdict.reason}" if verdict else ask.reason,
            rule=ask.rule,
            edits=edits,
        )
        permit = await self._runner.ask_user(question, self._emit)
        if not isinstance(permit, Permit):
            raise RefusedError(REFUSED)
        if permit.choice == "stop":
            raise StopError(f"{STOPPED} They say: {permit.comment}" if permit.comment else STOPPED)
        # A program may answer with any text.
        if permit.choice not in ("yes", "session", "edits", "always"):
            raise RefusedError(f"Refused: {permit.comment}" if permit.comment else REFUSED)
        if permit.choice in ("session", "always") and ask.rule:
            try:
                self._runner.permissions.remember(ask.rule, save=permit.choice == "always")
            except (OSError, OuroError) as error:
                self._emit(Notice(f"`{ask.rule}` holds for this session only: {error}", "warning"))
        return permit.comment

    def _make_context(self, call: ToolCall, limits: Limits) -> ToolContext:
        """What the tool may use while it runs: it can ask the user and report output."""

        async def ask(question: Question) -> tuple[str, ...]:
            answer = await self._runner.ask_user(
                QuestionAsked(self._question_id(call), question), self._emit
            )
            return answer.answers if isinstance(answer, Reply) else ()

        def report(text: str) -> None:
            self._printed[call.id] = (self._printed.get(call.id, "") + text)[-_MAX_INTERRUPTED:]
            self._emit(ToolProgress(call.id, text))

        return ToolContext(report, ask, limits, call.id, self._emit)

    def _question_id(self, call: ToolCall) -> str:
        """A new id for a question: one call can ask several."""
        return f"{call.id}:{next(self._question_numbers)}"


def _with_verdict(display: Display, judged: str) -> Display:
    """The display of a result, with the reason for which the judge has allowed the call, so that
    the session file has it. Unchanged if the judge was not asked.
    """
    if not judged:
        return display
    return replace(display, summary=f"{display.summary} · judge: {judged}".removeprefix(" · "))


def _text_with_notes(text: str, notes: Sequence[str]) -> str:
    """The text for the model: the result, and below it what the user and hooks add."""
    return readable_bytes("\n\n".join(filter(None, (text, *notes))))


def _describe_malformed(text: str) -> str:
    """Why the text of the arguments of a call is no JSON object."""
    try:
        json.loads(text)
    except ValueError as error:
        return f"The arguments are not JSON ({error})"
    except RecursionError:
        pass
    return f"The arguments were not a JSON object of at most {MAX_DEPTH} levels"


def _failed_result(text: str, refused: bool = False) -> ToolResult:
    """The result of a call that failed. The model gets `text`; the user sees its first line, or
    `refused`, and the whole of it if it says more.
    """
    text = readable_bytes(text)
    summary = REFUSED_SUMMARY if refused else text.partition("\n")[0]
    shown = text.removeprefix(f"{STOPPED} They say: ")
    # REFUSED and STOPPED are for the model: the user has refused, and knows it.
    has_body = shown not in (summary, REFUSED, STOPPED)
    return ToolResult(text, Display(summary, Plain(shown) if has_body else None), failed=True)


def without_checkpoint(
    _effect: Effect, _targets: Sequence[str]
) -> AbstractAsyncContextManager[None]:
    """A context that takes no checkpoint: for calls that change nothing, or without checkpoints."""
    return nullcontext()
