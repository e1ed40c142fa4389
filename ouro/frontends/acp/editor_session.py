"""EditorSession: a session in an editor, with its prompts, questions and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from acp import Client
from acp import schema as acp
from acp.helpers import update_available_commands

from ouro import events
from ouro.commands.command_lookup import listed_commands
from ouro.commands.mode import MODES
from ouro.commands.models import EFFORTS
from ouro.commands.slash import dispatch
from ouro.display import Choice, Question
from ouro.errors import NoModelError, UsageError
from ouro.events import Event
from ouro.frontends.acp.command_front_end import EditorFrontEnd
from ouro.frontends.acp.content_blocks import draft_of
from ouro.frontends.acp.updates import EventUpdates, notice, plan_update
from ouro.messages import Usage
from ouro.session import Session, TurnObserver, TurnQueue
from ouro.utils.log import log
from ouro.utils.text import clean

REFUSED = "The editor could not ask the user, so this was refused."
ANSWER_FIELD = "answer"
"""The name of the field of a form."""
CLOSE_TIMEOUT = 10.0
"""Seconds for an interrupted turn to end, before the session is closed."""
HIDDEN_COMMANDS = {"resume", "clear", "fork", "copy", "theme", "exit"}
"""Commands that are not offered, because editors have their own way to do this."""


class _ShownSettings(NamedTuple):
    """The settings of a session that the editor shows."""

    mode: str
    model: str
    effort: str


class EditorSession(TurnObserver):
    """Runs the prompts of a session one after another, and sends its events to the editor.

    Args:
        folder: the folder of the editor; with `--worktree` the session works in another one.
        can_fill_forms: the editor shows forms, so that the user can type any answer to a question.
    """

    def __init__(
        self,
        session: Session,
        client: Client,
        updates: EventUpdates,
        folder: Path,
        *,
        can_fill_forms: bool,
    ) -> None:
        self.session = session
        self.usage = Usage()
        """The usage of the running prompt, or of the last one."""
        self._client = client
        self._updates = updates
        self._folders = (session.cwd, folder)
        """The folder of the session, and the path that the editor named for it."""
        self._can_fill_forms = can_fill_forms
        self._turn_finished = events.TurnFinished("answered")
        """The end of the last turn of the running prompt."""
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        """The updates that are not sent yet."""
        self._send_lock = asyncio.Lock()
        """Held while an update is sent, and while updates must wait."""
        self._sender = asyncio.create_task(self._send_all())
        self._questions: dict[str, asyncio.Task[None]] = {}
        """The tasks that ask the open questions, by the ids of the questions."""
        self._prompt_lock = asyncio.Lock()
        """Held while a prompt runs; the next prompt waits for it."""
        self._is_cancelled = False
        """Whether the prompt was cancelled before its turn has begun."""
        self._sent_settings = self._current_settings()
        self._sent_commands: list[acp.AvailableCommand] = []
        self._queue = TurnQueue(self)
        self.front_end = EditorFrontEnd(self, self._queue)
        self._queue.attach(session)

    async def prompt(self, blocks: Sequence[Any]) -> events.TurnFinished:
        """Run a command, a shell line or a turn. Returns how it ended, after all updates are sent.

        Raises UsageError: a content block is of a kind that ouro cannot use.
        """
        async with self._prompt_lock:
            self._turn_finished = events.TurnFinished("answered")
            self.usage = Usage()
            self._is_cancelled = False
            self._queue.queue(await asyncio.to_thread(draft_of, blocks, self._folders))
            await self._queue.idle()
            self._is_cancelled = False  # a turn that the background begins later is not meant
            await self.send_settings()
            self.send_commands()
            await self.flush()
            return self._turn_finished

    def cancel(self) -> None:
        """Interrupt the prompt. The second time, its child processes are killed. If the turn of the
        prompt has not begun yet, `turn_began` interrupts it.
        """
        was_interrupted = self._queue.interrupt()
        has_prompt = self._prompt_lock.locked()
        self._is_cancelled = has_prompt and not was_interrupted

    async def close(self) -> None:
        """End the running prompt, save the session, and send the remaining updates."""
        await self._queue.close(turn_timeout=CLOSE_TIMEOUT)
        for task in tuple(self._questions.values()):
            task.cancel()
        await self.flush()
        self._sender.cancel()
        await asyncio.gather(self._sender, return_exceptions=True)

    @property
    def is_working(self) -> bool:
        """Whether a prompt, a turn or a background task runs."""
        has_turn = self._prompt_lock.locked() or self._queue.busy
        return has_turn or any(task.is_running for task in self.session.background.list())

    async def replay(self) -> None:
        """Send the whole session, from its first message. In the middle of a turn the part of it
        that is not saved yet follows, and its open questions are asked again: an editor that loads
        a thread again does not show them any more.
        """
        scrollback = self.session.scrollback
        while scrollback.has_more:
            await scrollback.show_more()
        # From here to the last update nothing is awaited: no new event may come in between.
        self._updates.forget_open_calls()
        for event in self._queue.shown_events_so_far():
            self.send(self._updates.replay(event))
        if self.session.todos:
            self.send([plan_update(self.session.todos)])
        for question in self._queue.live.asked.values():
            self._ask(question)
        await self.flush()

    def send(self, updates: Iterable[Any]) -> None:
        """Queue updates; they are sent in this order."""
        for update in updates:
            self._outgoing.put_nowait(update)

    async def flush(self) -> None:
        """Wait until everything is sent, or the client is gone."""
        sent = asyncio.create_task(self._outgoing.join())
        await asyncio.wait([sent, self._sender], return_when=asyncio.FIRST_COMPLETED)
        sent.cancel()

    def show(self, event: Event) -> None:
        """Send the updates of an event. If it is a question, also ask it in the editor. The usage
        and the end of the turn are stored, for the response to the prompt.
        """
        self.send(self._updates.updates_of(event))
        match event:
            case events.PermissionAsked() | events.QuestionAsked():
                self._ask(event)
            case events.QuestionClosed(question_id):
                if task := self._questions.pop(question_id, None):
                    task.cancel()
            case events.Replied(message):
                self.usage += message.usage or Usage()
            case events.TurnFinished():
                self._turn_finished = event
            case _:
                pass

    def turn_began(self) -> None:
        if self._is_cancelled:
            self._queue.interrupt()

    def turn_ended(self, outcome: events.Outcome, seconds: float) -> None:  # noqa: ARG002
        self.send(self._updates.end_open_calls())
        if outcome == "interrupted":  # a turn that was cancelled may have sent no TurnFinished
            self._turn_finished = events.TurnFinished(outcome)

    async def run_command(self, text: str) -> bool:
        return await dispatch(self.front_end, text)

    async def request_choice(
        self, call: acp.ToolCallUpdate, options: Sequence[acp.PermissionOption]
    ) -> str:
        """The id of the option that the user picks; empty if they dismiss the question."""
        await self.flush()
        answer = await self._client.request_permission(self.session.id, call, list(options))
        outcome = answer.outcome
        return outcome.option_id if isinstance(outcome, acp.AllowedOutcome) else ""

    async def opening_fields(self) -> dict[str, Any]:
        """The fields of the response that opens the session: its modes and options."""
        available = [
            acp.SessionMode(id=mode, name=mode.capitalize(), description=what)
            for mode, what in MODES.items()
        ]
        modes = acp.SessionModeState(
            current_mode_id=self.session.status().mode, available_modes=available
        )
        # Updates wait meanwhile: before the response, the editor does not know the session, and
        # drops them.
        async with self._send_lock:
            return {"modes": modes, "config_options": await self.config_options()}

    async def config_options(self) -> list[acp.SessionConfigOptionSelect]:
        """The options with their current values: mode, model and, if the model can think, effort."""
        status = self.session.status()
        usable = [choice.name for choice in await self.session.models() if choice.usable]
        names = usable if status.model in usable else [status.model, *usable]
        options = [
            _select_option("mode", category="mode", current=status.mode, values=MODES),
            _select_option("model", category="model", current=status.model, values=names),
        ]
        if status.can_think:
            options.append(
                _select_option(
                    "effort", category="thought_level", current=status.effort, values=EFFORTS
                )
            )
        return options

    async def set_option(self, name: str, value: str) -> None:
        """Set mode, model or effort. Raises UsageError if there is no such option or value, or if the
        model cannot be used.
        """
        # Any model is allowed here: `set_model` checks its name.
        values_by_name = {"mode": tuple(MODES), "effort": EFFORTS, "model": (value,)}
        values = values_by_name.get(name, ())  # empty: there is no such option
        if value not in values:
            hint = "There are: mode, model, effort."
            if values:
                hint = f"`{name}` is one of {', '.join(values)}."
            raise UsageError(f"`{name}` cannot be set to `{value}`.", hint)
        if name == "mode":
            self.session.set_mode(cast("Any", value))
        elif name == "effort":
            await self.session.set_model(effort=cast("Any", value))
        else:
            try:
                await self.session.set_model(value)
            except NoModelError as error:  # otherwise clients would offer a login
                raise UsageError(error.message) from error

    async def send_settings(self) -> None:
        """Send the mode and the options, if a setting has changed since they were sent."""
        sent, current = self._sent_settings, self._current_settings()
        if sent == current:
            return
        self._sent_settings = current
        if sent.mode != current.mode:
            update = acp.CurrentModeUpdate(
                session_update="current_mode_update", current_mode_id=current.mode
            )
            self.send([update])
        options: list[Any] = list(await self.config_options())
        self.send(
            [acp.ConfigOptionUpdate(session_update="config_option_update", config_options=options)]
        )

    def send_commands(self) -> None:
        """Send the slash commands if they changed: a server started, or a command file was written."""
        commands = available_commands(self.session)
        if commands != self._sent_commands:
            self._sent_commands = commands
            self.send([update_available_commands(commands)])

    def _current_settings(self) -> _ShownSettings:
        status = self.session.status()
        return _ShownSettings(status.mode, status.model, status.effort)

    def _ask(self, question: events.PermissionAsked | events.QuestionAsked) -> None:
        """Ask a question in the editor. If it was asked before, only the answer to this request
        counts.
        """
        if earlier_task := self._questions.get(question.question_id):
            earlier_task.cancel()
        asking: Coroutine[Any, Any, None]
        if isinstance(question, events.PermissionAsked):
            asking = self._ask_permission(question)
        else:
            asking = self._ask_question(question)
        self._questions[question.question_id] = asyncio.create_task(asking)

    async def _ask_permission(self, question: events.PermissionAsked) -> None:
        """Ask for a permission in the editor, and pass the answer to the session. If the user
        chooses nothing, or an error occurs, the call is refused.
        """
        permit = events.Permit("no", REFUSED)
        options = permission_options(question)
        try:
            call = self._updates.permission_call(
                question.call, f"{question.title} ({question.shown_reason})", question.display
            )
            option_id = await self.request_choice(call, options)
            choice_made = next((choice for choice in question.choices if choice == option_id), None)
            permit = events.Permit(choice_made or "no")
        except Exception:  # noqa: BLE001 (the client can raise any error)
            log.exception("the editor could not ask for a permission")
        self.session.answer(question.question_id, permit)

    async def _ask_question(self, event: events.QuestionAsked) -> None:
        """Ask a question in the editor, and pass the answer to the session.

        If the editor has forms, the question is a form. Otherwise its choices are buttons, and a
        question without choices is shown as a text, which asks for an answer in the next message.
        If there is no answer, or an error occurs, the session gets an empty answer.
        """
        answers: Sequence[str] = ()
        try:
            if self._can_fill_forms:
                answers = await self._fill_form(event.question)
            elif event.question.choices:
                choices = [Choice(choice, choice) for choice in event.question.choices]
                choice_made = await self.front_end.choose(_question_text(event.question), choices)
                answers = (choice_made,) if choice_made else ()
            else:
                self.send([notice(f"{event.question.text}\nAnswer with your next message.")])
        except Exception:  # noqa: BLE001 (the client can raise any error)
            log.exception("the editor could not ask a question")
        self.session.answer(event.question_id, events.Reply(tuple(answers)))

    async def _fill_form(self, question: Question) -> Sequence[str]:
        """The answers that the user gives in a form of the editor. There are none if the user
        dismisses it.
        """
        await self.flush()
        field: Any = acp.ElicitationStringPropertySchema(
            type="string", enum=list(question.choices) or None
        )
        if question.several and question.choices:
            items = acp.StringMultiSelectItems(type="string", enum=list(question.choices))
            field = acp.ElicitationMultiSelectPropertySchema(type="array", items=items)
        schema = acp.ElicitationSchema(properties={ANSWER_FIELD: field}, required=[ANSWER_FIELD])
        form = acp.ElicitationFormSessionMode(session_id=self.session.id, requested_schema=schema)
        answer = await self._client.create_elicitation(clean(_question_text(question)), form)
        if not isinstance(answer, acp.AcceptElicitationResponse):
            return ()
        values = (answer.content or {}).get(ANSWER_FIELD, ())
        return (values,) if isinstance(values, str) else [str(item) for item in values]

    async def _send_all(self) -> None:
        """Send the queued updates in their order, until the client is gone. An update that cannot be
        sent is logged and left out.
        """
        while True:
            update = await self._outgoing.get()
            try:
                async with self._send_lock:
                    await self._client.session_update(self.session.id, update)
            except (OSError, RuntimeError) as error:  # RuntimeError: the transport was closed
                log.info("the editor is gone: %s", error)
                return  # the end of its input closes the sessions
            except Exception:  # noqa: BLE001 (one odd update must not end all others)
                log.exception("an update could not be sent to the editor")
            finally:
                self._outgoing.task_done()


def permission_options(question: events.PermissionAsked) -> list[acp.PermissionOption]:
    """The answers that a permission question offers, in the form of the protocol. The id of each
    answer is the choice of ouro.
    """
    options: dict[events.PermitChoice, tuple[str, acp.PermissionOptionKind]] = {
        "yes": ("Allow once", "allow_once"),
        "session": (f"Allow {question.rule} in this session", "allow_always"),
        "edits": ("Allow all edits in this session", "allow_always"),
        "always": (f"Always allow {question.rule}", "allow_always"),
        "stop": ("Reject, and stop", "reject_once"),
        "no": ("Reject, and continue", "reject_once"),
    }
    return [
        acp.PermissionOption(option_id=choice, name=name, kind=kind)
        for choice, (name, kind) in options.items()
        if choice in question.choices
    ]


def available_commands(session: Session) -> list[acp.AvailableCommand]:
    """The slash commands for the editor's completion: first the built-in commands, then the
    commands of files, skills and servers.
    """
    commands = []
    for command in listed_commands(session):
        if command.name in HIDDEN_COMMANDS:
            continue
        argument = None
        if command.argument:
            hint = acp.UnstructuredCommandInput(hint=command.argument)
            argument = acp.AvailableCommandInput(root=hint)
        description = clean(command.help or command.place)
        commands.append(
            acp.AvailableCommand(name=command.name, description=description, input=argument)
        )
    return commands


def _select_option(
    name: str, category: Any, current: str, values: Iterable[str]
) -> acp.SessionConfigOptionSelect:
    """An option of the session in the form of the protocol. The `category`, a word of the protocol,
    lets the editor choose where it shows the option.
    """
    return acp.SessionConfigOptionSelect(
        type="select",
        id=name,
        name=name.capitalize(),
        category=category,
        current_value=current,
        options=[acp.SessionConfigSelectOption(value=value, name=value) for value in values],
    )


def _question_text(question: Question) -> str:
    return "\n\n".join(filter(None, (question.text, question.details)))
