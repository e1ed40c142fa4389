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
from ouro.extensions import MODES, Hooks, kind_of, names_elsewhere
from ouro.memory.backend import CompactionTrigger
from ouro.memory.manager import MemoryManager
from ouro.messages import ToolCall
from ouro.safety import Effect, Permissions
from ouro.session.session_tasks import SessionTasks
from ouro.settings import HookEvent
from ouro.tools.tool import HookOutcome, ToolResult

MAX_END = 10.0
"""Seconds for all hooks at the end of a session."""
_NOTIFICATION_TYPES = {"permission": "permission_prompt", "question": "elicitation_dialog"}
"""Claude Code's names of these notifications."""


class SessionHooks(msgspec.Struct, eq=False):
    """Runs hooks at the events of one session, which is new or was resumed."""

    runner: Hooks
    memory: MemoryManager
    cwd: Path
    permissions: Permissions
    tasks: SessionTasks
    is_resumed: bool
    is_started: bool = False
    _unsent_texts: list[str] = msgspec.field(default_factory=list)
    """What hooks that run once have added: it is sent with the next message that is not refused."""

    async def before_turn(self, prompt: str) -> str:
        """Run the hooks before a turn; returns the text that they add to this message, empty if there
        is none. Before the first turn the hooks of the start of a session run, too: `take_unsent`
        returns what these add. Raises PromptRefused if a hook denies the message.
        """
        background_outcome = self.runner.collect_background_outcome()
        if background_outcome.message:
            self.tasks.emit(Notice(background_outcome.message))
        self._unsent_texts.append(background_outcome.context)
        if not self.is_started:
            self.is_started = True
            source = "resume" if self.is_resumed else "startup"
            start_outcome = await self.run("session-start", {"source": source}, (source,))
            self._unsent_texts.append(start_outcome.context)
        outcome = await self.run("user-prompt", {"prompt": prompt})
        if outcome.verdict == "deny":
            raise PromptRefused(outcome.reason)
        return _text_for_model([outcome.context])

    def take_unsent(self) -> str:
        """Take what the start of the session and hooks in the background have added and the model has
        not got, as a text for it; empty if there is nothing. Call it when a message is sent.
        """
        texts, self._unsent_texts = self._unsent_texts, []
        return _text_for_model(texts)

    async def find_reason_to_continue(self, is_continued: bool, agent: str = "") -> str:
        """Run the hooks of the end of a turn; returns why the agent must continue, empty if it may
        stop.

        Args:
            is_continued: whether a hook has made it continue before, which the hooks learn, so that
                they can let it stop.
            agent: the id of the subagent that would stop; empty for the agent itself.
        """
        event: HookEvent = "subagent-end" if agent else "turn-end"
        data = {"stop_hook_active": is_continued, **_agent_data(agent)}
        outcome = await self.run(event, data, (kind_of(agent),) if agent else ())
        return outcome.reason if outcome.verdict == "deny" else ""

    async def before_compaction(self, trigger: CompactionTrigger) -> str:
        """Run the hooks before a compaction; returns their text about what the summary must keep,
        empty if there is none.
        """
        word = "manual" if trigger == "manual" else "auto"
        return (await self.run("before-compaction", {"trigger": word}, (word,))).context

    def run_after_compaction(self) -> None:
        """Start the hooks after a compaction, without waiting for them."""
        self._start_in_background("after-compaction", data={})

    async def close(self) -> None:
        """Run the hooks of the end of a session, unless it had no turn."""
        if self.is_started:
            await self.run("session-end", {"reason": "exit"}, max_seconds=MAX_END)

    def with_notifications(self, ask_user: AskUser) -> AskUser:
        """Returns a function that asks the user like `ask_user`, and before each question starts
        the hooks of notifications.
        """

        async def ask(question: PermissionAsked | QuestionAsked, emit: Emit) -> UserAnswer:
            """Start the notification hooks, and ask the user."""
            if isinstance(question, PermissionAsked):
                kind, subject = "permission", question.title
            else:
                kind, subject = "question", question.question.text
            kind_of_claude_code = _NOTIFICATION_TYPES[kind]
            data = {
                "message": f"ouro waits for your answer: {subject}",
                "kind": kind,
                "notification_type": kind_of_claude_code,
            }
            self._start_in_background("notification", data, (kind, kind_of_claude_code))
            return await ask_user(question, emit)

        return ask

    async def run(
        self,
        event: HookEvent,
        data: Mapping[str, Any],
        names: Sequence[str] = (),
        max_seconds: float | None = None,
    ) -> HookOutcome:
        """Run the hooks of an event, and show their message to the user. Returns what they decided,
        which is an empty outcome if the event has no hooks.

        Args:
            data: the fields of this event; those of the session are added.
            names: what the matcher of a hook is compared with, such as the names of the tool.
            max_seconds: a limit for each of them, if it is shorter than its own.
        """
        if not self.runner.has(event):
            return HookOutcome()
        session_data = {
            "session_id": self.memory.session_id,
            "transcript_path": str(self.memory.outputs.parent / "session.yaml"),
            "cwd": str(self.cwd),
            "permission_mode": MODES[self.permissions.mode],
        }
        outcome = await self.runner.run(event, {**session_data, **data}, names, max_seconds)
        if outcome.message:
            self.tasks.emit(Notice(outcome.message))
        return outcome

    def _start_in_background(
        self, event: HookEvent, data: Mapping[str, Any], names: Sequence[str] = ()
    ) -> None:
        """Start the hooks of an event without waiting for them."""

        async def run_hooks() -> None:
            await self.run(event, data, names)

        if self.runner.has(event):
            self.tasks.start("hooks", run_hooks())


def _text_for_model(texts: Sequence[str]) -> str:
    """What hooks have added, each text in a tag; empty texts are left out."""
    return "\n\n".join(f"<hook>\n{text}\n</hook>" for text in texts if text)


def _agent_data(agent: str) -> dict[str, str]:
    """The fields of an event that name the subagent with this id. The agent itself has an empty id,
    and only the field `agent`: the other two are those of Claude Code.
    """
    if not agent:
        return {"agent": ""}
    return {"agent": agent, "agent_id": agent, "agent_type": kind_of(agent)}


class ToolEvents(msgspec.Struct, frozen=True):
    """Runs the hooks before and after the tools of one agent (`ToolHooks`)."""

    session_hooks: SessionHooks
    cwd: Path
    agent: str = ""
    """The id of the subagent; empty for the agent itself."""

    async def before(self, call: ToolCall, effect: Effect, targets: Sequence[str]) -> HookOutcome:
        """Run the hooks before a tool call; returns what they decided. If a hook has changed the
        arguments of the call, they are translated from Claude Code's names to ouro's.
        """
        outcome = await self._run_tool_hooks("before-tool", call, effect, targets)
        if outcome.input is None:
            return outcome
        from ouro.extensions import own_arguments  # imported late: few hooks change a call

        return replace(
            outcome,
            input=own_arguments(call.name, call.arguments, outcome.input, targets, self.cwd),
        )

    async def after(
        self, call: ToolCall, effect: Effect, targets: Sequence[str], result: ToolResult
    ) -> str:
        """Run the hooks after a tool call. Returns the text that they add to its result: the reason of
        a hook that denies the result, then the context that the hooks give. Empty without both.
        """
        outcome = await self._run_tool_hooks("after-tool", call, effect, targets, result)
        denial = outcome.reason if outcome.verdict == "deny" else ""
        return "\n\n".join(filter(None, (denial, outcome.context)))

    async def _run_tool_hooks(
        self,
        event: HookEvent,
        call: ToolCall,
        effect: Effect,
        targets: Sequence[str],
        result: ToolResult | None = None,
    ) -> HookOutcome:
        """Run the hooks of an event of a tool call; returns what they decided. They get the call, and
        its result if there is one, in ouro's and in Claude Code's names.
        """
        if not self.session_hooks.runner.has(event):
            return HookOutcome()
        # Imported late: most sessions have no hooks of tools.
        from ouro.extensions import response_data, tool_data

        data = tool_data(call.name, effect, call.arguments, targets, self.cwd)
        names = (call.name, *names_elsewhere(call.name))
        if result is not None:
            data["tool_response"] = response_data(result.text, failed=result.failed, call_data=data)
        event_data = {**data, "tool_use_id": call.id, **_agent_data(self.agent)}
        return await self.session_hooks.run(event, event_data, names)
