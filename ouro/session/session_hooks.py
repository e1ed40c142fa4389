"""SessionHooks: runs the hooks of the user and the project at the events of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ouro.agent.tool_runner import AskUser
from ouro.errors import PromptRefused
from ouro.events import Emit, Notice, PermissionAsked, QuestionAsked, UserAnswer
from ouro.extensions import MODES, Hooks, kind_of, names_elsewhere, own_arguments, tool_data
from ouro.memory.backend import CompactionTrigger
from ouro.memory.manager import MemoryManager
from ouro.messages import ToolCall
from ouro.safety import Effect, Permissions
from ouro.session.session_tasks import SessionTasks
from ouro.settings import HookEvent
from ouro.tools.tool import HookOutcome, ToolResult
from ouro.utils.text import cut

MAX_RESULT = 30_000
"""Characters of a tool's result that are sent to hooks."""
MAX_END = 10.0
"""Seconds for all hooks at the end of a session."""
_NOTIFICATIONS = {"permission": "permission_prompt", "question": "elicitation_dialog"}


class SessionHooks(msgspec.Struct, eq=False):
    """Runs hooks at the events of one session, which is new or was resumed."""

    hooks: Hooks
    transcript: MemoryManager
    cwd: Path
    permissions: Permissions
    tasks: SessionTasks
    is_resumed: bool
    is_started: bool = False

    async def before_turn(self, prompt: str) -> str:
        """Text that hooks add to the user's message; with the first message also start hooks.
        Raises PromptRefused.
        """
        late = self.hooks.collect_background_outcome()
        if late.message:
            self.tasks.emit(Notice(late.message))
        texts = [late.context]
        if not self.is_started:
            self.is_started = True
            source = "resume" if self.is_resumed else "startup"
            started = await self.run("session-start", {"source": source}, (source,))
            texts.append(started.context)
        outcome = await self.run("user-prompt", {"prompt": prompt})
        if outcome.verdict == "deny":
            raise PromptRefused(outcome.reason)
        texts.append(outcome.context)
        return "\n\n".join(f"<hook>\n{text}\n</hook>" for text in texts if text)

    async def find_reason_to_continue(self, is_continued: bool, agent: str = "") -> str:
        """Why the agent, or the subagent with that id, must continue; empty if it may stop.

        `is_continued`: a hook has made it continue before.
        """
        event: HookEvent = "subagent-end" if agent else "turn-end"
        data = {"stop_hook_active": is_continued, **_agent_data(agent)}
        outcome = await self.run(event, data, (kind_of(agent),) if agent else ())
        return outcome.reason if outcome.verdict == "deny" else ""

    async def before_compaction(self, trigger: CompactionTrigger) -> str:
        """Text from hooks about what the summary must keep."""
        word = "manual" if trigger == "manual" else "auto"
        return (await self.run("before-compaction", {"trigger": word}, (word,))).context

    def run_after_compaction(self) -> None:
        """Start the hooks after a compaction, without waiting for them."""
        self._start_in_background("after-compaction", {})

    async def close(self) -> None:
        """Run the hooks of the end of a session; for a session without messages none run."""
        if self.is_started:
            await self.run("session-end", {"reason": "exit"}, most=MAX_END)

    def with_notifications(self, ask_user: AskUser) -> AskUser:
        """`ask_user` that also starts the hooks of notifications before each question."""

        async def ask(question: PermissionAsked | QuestionAsked, emit: Emit) -> UserAnswer:
            if isinstance(question, PermissionAsked):
                kind, about = "permission", question.title
            else:
                kind, about = "question", question.question.text
            theirs = _NOTIFICATIONS[kind]
            data = {
                "message": f"ouro waits for your answer: {about}",
                "kind": kind,
                "notification_type": theirs,
            }
            self._start_in_background("notification", data, (kind, theirs))
            return await ask_user(question, emit)

        return ask

    async def run(
        self,
        event: HookEvent,
        data: Mapping[str, Any],
        names: Sequence[str] = (),
        most: float | None = None,
    ) -> HookOutcome:
        """Run the hooks of an event, and show their message to the user."""
        if not self.hooks.has(event):
            return HookOutcome()
        known = {
            "session_id": self.transcript.session_id,
            "transcript_path": str(self.transcript.outputs.parent / "session.yaml"),
            "cwd": str(self.cwd),
            "permission_mode": MODES[self.permissions.mode],
        }
        outcome = await self.hooks.run(event, {**known, **data}, names, most)
        if outcome.message:
            self.tasks.emit(Notice(outcome.message))
        return outcome

    def _start_in_background(
        self, event: HookEvent, data: Mapping[str, Any], names: Sequence[str] = ()
    ) -> None:
        """Start the hooks of an event without waiting for them."""

        async def in_background() -> None:
            await self.run(event, data, names)

        if self.hooks.has(event):
            self.tasks.start("hooks", in_background())


def _agent_data(agent: str) -> dict[str, str]:
    """The data about a subagent; for the agent itself an empty name."""
    return {"agent": agent, **({"agent_id": agent, "agent_type": kind_of(agent)} if agent else {})}


class ToolEvents(msgspec.Struct, frozen=True):
    """The hooks before and after the tools of one agent (`ToolHooks`); `agent`: the name of a
    subagent.
    """

    session_hooks: SessionHooks
    cwd: Path
    agent: str = ""

    async def before(self, call: ToolCall, effect: Effect, targets: Sequence[str]) -> HookOutcome:
        outcome = await self._run_tool_hooks("before-tool", call, effect, targets)
        if outcome.input is None:
            return outcome
        return replace(
            outcome,
            input=own_arguments(call.name, call.arguments, outcome.input, targets, self.cwd),
        )

    async def after(
        self, call: ToolCall, effect: Effect, targets: Sequence[str], result: ToolResult
    ) -> str:
        answer = {"text": cut(result.text, MAX_RESULT), "failed": result.failed}
        outcome = await self._run_tool_hooks(
            "after-tool", call, effect, targets, tool_response=answer
        )
        return "\n\n".join(
            filter(None, (outcome.reason if outcome.verdict == "deny" else "", outcome.context))
        )

    async def _run_tool_hooks(
        self, event: HookEvent, call: ToolCall, effect: Effect, targets: Sequence[str], **more: Any
    ) -> HookOutcome:
        """Run the hooks of an event of a tool, with the call in ouro's and in Claude Code's names."""
        if not self.session_hooks.hooks.has(event):
            return HookOutcome()
        data = tool_data(call.name, effect, call.arguments, targets, self.cwd)
        names = (call.name, *names_elsewhere(call.name))
        about = {**data, "tool_use_id": call.id, **more, **_agent_data(self.agent)}
        return await self.session_hooks.run(event, about, names)
