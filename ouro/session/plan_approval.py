"""PlanApproval: at the end of plan mode, asks the user about the plan; then ticks off its steps as
the agent works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from ouro.agent.environment import Environment
from ouro.agent.loop import Prompt
from ouro.agent.tool_runner import AskUser
from ouro.display import Question
from ouro.errors import NoModelError, UsageError
from ouro.events import PLAN_QUESTION, Emit, Notice, QuestionAsked, Reply, TurnFinished
from ouro.llm import ModelSource
from ouro.memory.manager import MemoryManager
from ouro.safety import Mode, Permissions
from ouro.session.plan_file import (
    PlanFile,
    PlanFolder,
    add_boxes,
    expand_comments,
    find_plan_text,
    tick_steps,
)
from ouro.tools.todo import TodoPlan
from ouro.utils.log import log
from ouro.utils.text import one_line

CARRY_OUT_ASKING = "Carry it out, asking before each change"
CARRY_OUT_EDITING = "Carry it out; edits need no question"
KEEP_PLANNING = "Keep planning"
_MODE_OF_ANSWER: dict[str, Mode] = {CARRY_OUT_ASKING: "ask", CARRY_OUT_EDITING: "edit"}
CARRY_OUT = "Carry out the plan."
_APPROVED = "The user has approved the plan."
_EDITED = "The user has edited the plan, and has approved it as it is now:"
_TRACK_WITH_TODOS = (
    "If the `todo` tool is there, track the plan with it: one todo for each step, in the same"
    " words."
)
RunPrompt = Callable[[Prompt], Awaitable[TurnFinished]]


class PlanApproval:
    """Asks the user about the plan of a session, and keeps the todos and the file of the plan together.

    Args:
        folder: where plans are saved; None if they are not saved.
        ask_user: asks a question of the turn.
    """

    def __init__(
        self,
        todos: TodoPlan,
        folder: PlanFolder | None,
        environment: Environment,
        permissions: Permissions,
        memory: MemoryManager,
        models: ModelSource,
        ask_user: AskUser,
    ) -> None:
        self.todos = todos
        self.folder = folder
        self.file: PlanFile | None = None
        """The plan that was written last in this session, if it is saved and not done."""
        self._environment = environment
        self._permissions = permissions
        self._memory = memory
        self._models = models
        self._ask_user = ask_user
        self._asked = 0
        """How often the user was asked about a plan: it makes the ids of the questions unique."""
        self._body = ""
        """The plan that is asked about, as the user has changed it on the screen."""

    @property
    def text(self) -> str:
        """The plan that is asked about. It is read from its file, which the user may have edited; a
        plan without a file is as the question shows it. Blocks.
        """
        plan_file = self.folder.read(self.file.path) if self.folder and self.file else None
        return plan_file.body if plan_file else self._body

    def change(self, text: str) -> str:
        """Replace the plan that is asked about by `text`, also in its file. Returns the new plan,
        with a box at each step. Blocks. Raises OSError.
        """
        self._body = add_boxes(text.strip())
        if self.folder is not None and self.file is not None:
            self.folder.write(replace(self.file, body=self._body))
        return self._body

    async def run(self, prompt: Prompt, run: RunPrompt, emit: Emit) -> TurnFinished:
        """Run a prompt, and return how its turn ended. In plan mode the user is asked about the
        plan in the answer; an approval or a comment is the next prompt, and so on until the user
        keeps planning or carries out the plan.
        """
        while True:
            with self._planning_model(emit):
                finished = await run(prompt)
            if finished.outcome != "answered" or self._permissions.mode != "plan":
                return finished
            next_prompt = await self._review(emit)
            if next_prompt is None:
                return finished
            prompt = next_prompt

    async def load(self, emit: Emit) -> None:
        """Load the plan of a resumed session from its file, and show a notice with its progress.
        Without such a plan nothing happens.
        """
        if self.folder is None:
            return
        self.file = await asyncio.to_thread(self.folder.of_session, self._memory.session_id)
        if self.file is not None:
            name = self.folder.relative_name(self.file.path)
            emit(Notice(f"Plan “{self.file.title}”: {self.file.progress} ({name}, /plans)."))

    async def adopt(self, plan: PlanFile, mode: Mode) -> str:
        """Let this session carry out a plan in the permission mode `mode`. The file of the plan is
        then this session's, and approved. Returns the message for the agent that asks for it.

        Raises:
            UsageError: the session saves no plans.
            OSError: the file cannot be written.
        """
        if self.folder is None:
            raise UsageError("An ephemeral session saves no plan.")
        present_plan = await asyncio.to_thread(self.folder.read, plan.path) or plan
        self.file = replace(present_plan, session=self._memory.session_id, state="approved")
        await asyncio.to_thread(self.folder.write, self.file)
        self._change_mode(mode)
        steps = f"\n\n{_TRACK_WITH_TODOS}" if self.file.steps else ""
        name = self.folder.relative_name(plan.path)
        carry_out = CARRY_OUT.removesuffix(".")
        return f"{carry_out} in {name}, from its first open step on:\n\n{present_plan.body}{steps}"

    def tick_todos(self, emit: Emit) -> None:
        """Tick off, in the file of the approved plan, the steps whose todos are done. Blocks."""
        if self.file is None or self.folder is None or self.file.state == "draft":
            return
        present_plan = self.folder.read(self.file.path)
        if present_plan is None:  # the user has deleted it
            self.file = None
            return
        ticked_plan = tick_steps(present_plan, self.todos.items)
        if ticked_plan.body == present_plan.body:
            return
        try:
            self.folder.write(ticked_plan)
        except OSError as error:
            emit(Notice(f"The plan could not be ticked off: {error}.", "warning"))
        self.file = ticked_plan

    async def _review(self, emit: Emit) -> Prompt | None:
        """Ask about the plan in the last answer. Returns the next prompt: if the user approves, to
        carry out the plan; if the user writes something, that. None if the answer has no plan, or
        the user chose to keep planning.
        """
        body = find_plan_text(self._memory.transcript.entries[-1].message.text)
        if not body:
            return None

        # Ask the user.
        self._body = body
        name = await asyncio.to_thread(self._save_draft, body, emit)
        self._asked += 1
        place = f" It is in {name}." if name else ""
        question = Question(f"Carry out this plan?{place}", (*_MODE_OF_ANSWER, KEEP_PLANNING))
        asked_event = QuestionAsked(f"{PLAN_QUESTION}{self._asked}", question)
        reply = await self._ask_user(asked_event, emit)
        answers = reply.answers if isinstance(reply, Reply) else ()

        # Make the next prompt of the answer: none, a comment, or the approval.
        if not answers or answers[0] == KEEP_PLANNING:
            return None
        if answers[0] not in _MODE_OF_ANSWER:  # the user has written a comment
            comment = expand_comments(self.text, "\n".join(answers))
            return Prompt(comment, context=await self._environment.changes())
        self._change_mode(_MODE_OF_ANSWER[answers[0]])
        approval = await asyncio.to_thread(self._approve_plan, body, emit)
        return Prompt(CARRY_OUT, context=f"{await self._environment.changes()}\n\n{approval}")

    def _save_draft(self, body: str, emit: Emit) -> str:
        """Write the plan to a file; the last draft of this session is replaced. Returns the path
        relative to the project, empty if the plan is not saved. An error is shown. Blocks.
        """
        if self.folder is None or not self.folder.keeps_drafts:
            return ""
        try:
            if self.file is not None and self.file.state == "draft":
                self.file = self.folder.revise(self.file, body)
            else:
                self.file = self._add_draft(self.folder, body)
        except OSError as error:
            self.file = None
            emit(Notice(f"The plan could not be saved: {error}.", "warning"))
            return ""
        return self.folder.relative_name(self.file.path)

    def _add_draft(self, folder: PlanFolder, body: str) -> PlanFile:
        """Write the plan as a new draft, and return it. A plan without a title is named by the last
        message of the user. Raises OSError.
        """
        messages = reversed(self._memory.messages())
        prompt = next((message.text for message in messages if message.role == "user"), "")
        return folder.add(self._memory.session_id, body, one_line(prompt))

    def _approve_plan(self, body: str, emit: Emit) -> str:
        """Mark the plan as approved in its file. Returns the text for the model: that the plan is
        approved, how to track it, and the plan itself if it is not `body` any more, because the
        user has edited it. If its file fails, the plan is approved all the same, as the screen
        shows it, and a notice is shown. Blocks.
        """
        # Without a file there are no boxes to tick: the model need not track the plan with todos.
        approval = _APPROVED if self._body == body else f"{_EDITED}\n\n{self._body}"
        if self.folder is None:
            return approval
        try:
            draft = self.file or self._add_draft(self.folder, body)
            present_plan = self.folder.read(draft.path) or draft
            self.file = replace(present_plan, state="approved")
            self.folder.write(self.file)
        except OSError as error:
            self.file = None
            emit(Notice(f"The plan could not be saved: {error}.", "warning"))
            return approval
        steps = "\n".join(f"- {step.text}" for step in self.file.steps)
        track = f"{_TRACK_WITH_TODOS}\n{steps}" if steps else ""
        if present_plan.body == draft.body:
            return f"{_APPROVED} {track}".strip()
        return f"{_EDITED}\n\n{present_plan.body}\n\n{track}".strip()

    def _change_mode(self, mode: Mode) -> None:
        """Change the permission mode, also in the saved session."""
        self._permissions.mode = mode
        self._memory.set_mode(mode)

    @contextmanager
    def _planning_model(self, emit: Emit) -> Iterator[None]:
        """In this context the model of the setting `models.plan` answers, if the mode is `plan` and
        it is set. Afterwards the earlier model is restored, but a model that the user has chosen
        meanwhile stays.
        """
        models = self._models
        plan_model = models.name_of("plan") if self._permissions.mode == "plan" else ""
        old_model = models.main.spec.name
        if plan_model in ("", old_model):
            yield
            return
        try:
            models.change(plan_model, models.effort)
        except NoModelError as error:
            log.warning("models.plan: %s", error)
            emit(Notice(f"This model plans, not `models.plan`: {error.message}", "warning"))
            yield
            return
        try:
            yield
        finally:
            if models.main.spec.name == plan_model:
                models.change(old_model, models.effort)
