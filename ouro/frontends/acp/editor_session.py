"""EditorSession: a session in an editor, with its prompts, questions and settings; the editor as a
front end.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from acp import Client
from acp import schema as acp
from acp.helpers import update_agent_message_text, update_available_commands

from ouro import events
from ouro.commands.builtin import listed_commands
from ouro.commands.front_end import FrontEnd, choice_line
from ouro.commands.mode import MODES
from ouro.commands.models import EFFORTS
from ouro.commands.slash import dispatch
from ouro.display import Choice, Question
from ouro.errors import NoModelError, UsageError
from ouro.events import Event, Level
from ouro.frontends.acp.updates import EventUpdates, notice, plan_of
from ouro.images import make_image
from ouro.messages import ATTACHED, Image, Usage
from ouro.session import Draft, OpenRequest, Session, SessionCatalog, TurnObserver, TurnQueue
from ouro.utils.log import log
from ouro.utils.text import clean

REFUSED = "The editor could not ask the user, so this was refused."
ANSWER = "answer"
"""The name of the field of a form."""
CLOSE_TIMEOUT = 10.0
MAX_CHOICES = 9
"""Maximum buttons of one question; a longer list is printed, and the user types a choice after the
command.
"""
ELSEWHERE = "Use the editor's own list of threads."
NOT_HERE = {"resume", "clear", "fork", "copy", "theme", "exit"}
"""Commands that are not offered, because editors have their own way to do this."""


class EditorFrontEnd(FrontEnd):
    def __init__(self, editor: EditorSession, turns: TurnQueue) -> None:
        self._editor = editor
        self._turns = turns
        self._numbers = itertools.count(1)

    @property
    def session(self) -> Session:
        return self._editor.session

    def show(self, markdown: str, page: str = "") -> None:  # noqa: ARG002 (for screens)
        self._editor.send([update_agent_message_text(f"{markdown}\n\n")])

    def say(self, text: str, level: Level = "info") -> None:  # noqa: ARG002 (the text says it)
        self._editor.send([notice(text)])

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        if len(choices) > MAX_CHOICES:
            names = "\n".join(f"- `{choice.value}` {choice.detail}".rstrip() for choice in choices)
            self.show(f"{clean(title)} Name one after the command:\n\n{clean(names)}")
            return None
        options = [
            acp.PermissionOption(
                option_id=str(at), name=choice_line(choice, current), kind="allow_once"
            )
            for at, choice in enumerate(choices)
        ]
        options.append(acp.PermissionOption(option_id="cancel", name="Cancel", kind="reject_once"))
        call_id = f"choice_{next(self._numbers)}"
        call = acp.ToolCallUpdate(
            tool_call_id=call_id, title=clean(title), kind="other", status="pending"
        )
        chosen = await self._editor.request_choice(call, options)
        return next((choice.value for at, choice in enumerate(choices) if chosen == str(at)), None)

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:  # noqa: ARG002 (the editor has them)
        self.say(
            "The agent continues from the message that you went back to; later messages in the"
            " editor are gone."
        )
        if draft:
            self.say(f"The message was:\n{draft}")

    async def pick_session(
        self,
        session_catalog: SessionCatalog,  # noqa: ARG002 (as FrontEnd names it)
        only: Collection[str] = (),  # noqa: ARG002
    ) -> OpenRequest | None:
        raise UsageError(ELSEWHERE)

    async def open(self, request: OpenRequest) -> None:
        raise UsageError(ELSEWHERE, f"The session is {request.resume}." if request.resume else "")

    async def go_to(self, message: int) -> None:
        raise UsageError(
            f"Message {message} cannot be shown in an editor.", "Use `ouro --resume` in a terminal."
        )

    async def send(self, text: str) -> None:
        self._turns.queue(Draft(text))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        await self._turns.run(events)

    @property
    def queue(self) -> TurnQueue:
        return self._turns

    def copy(self, text: str) -> str:  # noqa: ARG002 (as FrontEnd names it)
        raise UsageError("Copy it in the editor.")

    def redraw(self) -> None:
        """Does nothing: EditorSession sends changed settings after each command."""

    def leave(self) -> None:
        raise UsageError("Close the thread in the editor.")


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
        self._can_fill_forms = can_fill_forms
        self._finished = events.TurnFinished("answered")
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._sending = asyncio.Lock()
        self._sender = asyncio.create_task(self._send_all())
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._one_prompt = asyncio.Lock()
        self._is_cancelled = False
        self._sent = self._settings()
        self._sent_commands: list[acp.AvailableCommand] = []
        self._queue = TurnQueue(self)
        self.front_end = EditorFrontEnd(self, self._queue)
        self._queue.attach(session)

    async def prompt(self, blocks: Sequence[Any]) -> events.TurnFinished:
        """Run a command, a shell line or a turn. Returns how it ended, after all updates are sent.

        Raises UsageError: a content block is of a kind that ouro cannot use.
        """
        async with self._one_prompt:
            self._finished, self.usage, self._is_cancelled = (
                events.TurnFinished("answered"),
                Usage(),
                False,
            )
            self._queue.queue(await asyncio.to_thread(draft_of, blocks, self._folders))
            await self._queue.idle()
            await self.send_settings()
            self.send_commands()
            await self.flush()
            return self._finished

    def cancel(self) -> None:
        """Interrupt the prompt; the second time kill its child processes."""
        # A cancel may arrive before the turn has begun.
        self._is_cancelled = not self._queue.interrupt() and self._one_prompt.locked()

    async def close(self) -> None:
        """End the running prompt, save the session, and send the remaining updates."""
        await self._queue.close(turn_timeout=CLOSE_TIMEOUT)
        for task in tuple(self._questions.values()):
            task.cancel()
        await self.flush()
        self._sender.cancel()
        await asyncio.gather(self._sender, return_exceptions=True)

    async def replay(self) -> None:
        """Send the whole session, from its first message."""
        scrollback = self.session.scrollback
        shown = list(scrollback.shown())
        while scrollback.has_more:
            shown = [*await scrollback.more(), *shown]
        for event in shown:
            self.send(self._updates.replay(event))
        if self.session.todos:
            self.send([plan_of(self.session.todos)])
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
        self.send(self._updates.of(event))
        match event:
            case events.PermissionAsked():
                self._ask(event.question_id, self._ask_permission(event))
            case events.QuestionAsked():
                self._ask(event.question_id, self._ask_question(event))
            case events.QuestionClosed(question_id):
                if task := self._questions.pop(question_id, None):
                    task.cancel()
            case events.Replied(message):
                self.usage += message.usage or Usage()
            case events.TurnFinished():
                self._finished = event
            case _:
                pass

    def turn_began(self) -> None:
        if self._is_cancelled:
            self._queue.interrupt()

    def turn_ended(self, outcome: events.Outcome, seconds: float) -> None:  # noqa: ARG002
        if outcome == "interrupted":
            self._finished = events.TurnFinished(outcome)

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

    async def settings(self) -> dict[str, Any]:
        """Modes and options, for the response that opens the session."""
        available = [
            acp.SessionMode(id=mode, name=mode.capitalize(), description=what)
            for mode, what in MODES.items()
        ]
        modes = acp.SessionModeState(
            current_mode_id=self.session.status().mode, available_modes=available
        )
        # Before the response, the editor does not know the session, and drops its updates.
        async with self._sending:
            return {"modes": modes, "config_options": await self.options()}

    async def options(self) -> list[acp.SessionConfigOptionSelect]:
        """Mode, model and, if the model can think, effort, with their current values."""
        status = self.session.status()
        usable = [choice.name for choice in await self.session.models() if choice.usable]
        names = usable if status.model in usable else [status.model, *usable]
        rows: tuple[tuple[str, Any, str, Iterable[str]], ...] = (
            ("mode", "mode", status.mode, MODES),
            ("model", "model", status.model, names),
            *([("effort", "thought_level", status.effort, EFFORTS)] if status.can_think else []),
        )
        return [
            acp.SessionConfigOptionSelect(
                type="select",
                id=name,
                name=name.capitalize(),
                category=category,
                current_value=chosen,
                options=[
                    acp.SessionConfigSelectOption(value=value, name=value) for value in values
                ],
            )
            for name, category, chosen, values in rows
        ]

    async def set_option(self, name: str, value: str) -> None:
        """Set mode, model or effort. Raises UsageError."""
        allowed = {"mode": tuple(MODES), "effort": EFFORTS}.get(
            name, (value,) if name == "model" else ()
        )
        if value not in allowed:
            known = (
                f"`{name}` is one of {', '.join(allowed)}."
                if allowed
                else "There are: mode, model, effort."
            )
            raise UsageError(f"`{name}` cannot be set to `{value}`.", known)
        if name == "mode":
            self.session.set_mode(cast("Any", value))
        elif name == "model":
            try:
                await self.session.set_model(value)
            except NoModelError as error:  # otherwise clients would offer a login
                raise UsageError(error.message) from error
        else:
            await self.session.set_model(effort=cast("Any", value))

    async def send_settings(self) -> None:
        """Send mode and options if they changed since they were last sent."""
        before, self._sent = self._sent, self._settings()
        if before[0] != self._sent[0]:
            self.send(
                [
                    acp.CurrentModeUpdate(
                        session_update="current_mode_update", current_mode_id=self._sent[0]
                    )
                ]
            )
        if before != self._sent:
            options: list[Any] = list(await self.options())
            self.send(
                [
                    acp.ConfigOptionUpdate(
                        session_update="config_option_update", config_options=options
                    )
                ]
            )

    def send_commands(self) -> None:
        """Send the slash commands if they changed: a server started, or a command file was written."""
        commands = available_commands(self.session)
        if commands != self._sent_commands:
            self._sent_commands = commands
            self.send([update_available_commands(commands)])

    def _settings(self) -> tuple[str, str, str]:
        status = self.session.status()
        return status.mode, status.model, status.effort

    def _ask(self, question_id: str, asking: Coroutine[Any, Any, None]) -> None:
        self._questions[question_id] = asyncio.create_task(asking)

    async def _ask_permission(self, asked: events.PermissionAsked) -> None:
        permit = events.Permit("no", REFUSED)
        options = permission_options(asked)
        try:
            call = self._updates.call(asked.call, f"{asked.title} ({asked.reason})", asked.display)
            chosen = await self.request_choice(call, options)
            permit = events.Permit(
                next((choice for choice in asked.choices if choice == chosen), "no")
            )
        except Exception:  # noqa: BLE001 (any error of the client refuses the call)
            log.exception("the editor could not ask for a permission")
        self.session.answer(asked.question_id, permit)

    async def _ask_question(self, asked: events.QuestionAsked) -> None:
        answers: Sequence[str] = ()
        try:
            if self._can_fill_forms:
                answers = await self._fill_form(asked.question)
            elif asked.question.choices:
                choices = [Choice(choice, choice) for choice in asked.question.choices]
                chosen = await self.front_end.choose(_text_of(asked.question), choices)
                answers = (chosen,) if chosen else ()
            else:
                self.send([notice(f"{asked.question.text}\nAnswer with your next message.")])
        except Exception:  # noqa: BLE001 (any error leaves the question unanswered)
            log.exception("the editor could not ask a question")
        self.session.answer(asked.question_id, events.Reply(tuple(answers)))

    async def _fill_form(self, question: Question) -> Sequence[str]:
        await self.flush()
        field: Any = acp.ElicitationStringPropertySchema(
            type="string", enum=list(question.choices) or None
        )
        if question.several and question.choices:
            items = acp.StringMultiSelectItems(type="string", enum=list(question.choices))
            field = acp.ElicitationMultiSelectPropertySchema(type="array", items=items)
        schema = acp.ElicitationSchema(properties={ANSWER: field}, required=[ANSWER])
        mode = acp.ElicitationFormSessionMode(session_id=self.session.id, requested_schema=schema)
        answer = await self._client.create_elicitation(clean(_text_of(question)), mode)
        content = answer.content or {} if isinstance(answer, acp.AcceptElicitationResponse) else {}
        given = content.get(ANSWER, ())
        return (given,) if isinstance(given, str) else [str(item) for item in given]

    async def _send_all(self) -> None:
        while True:
            update = await self._outgoing.get()
            try:
                async with self._sending:
                    await self._client.session_update(self.session.id, update)
            except (ConnectionError, OSError):
                return  # the client is gone; the end of its input closes the sessions
            finally:
                self._outgoing.task_done()


def permission_options(asked: events.PermissionAsked) -> list[acp.PermissionOption]:
    """The possible answers to a permission question; their ids are those of ouro."""
    known: dict[events.PermitChoice, tuple[str, acp.PermissionOptionKind]] = {
        "yes": ("Allow once", "allow_once"),
        "session": (f"Allow {asked.rule} in this session", "allow_always"),
        "edits": ("Allow all edits in this session", "allow_always"),
        "always": (f"Always allow {asked.rule}", "allow_always"),
        "stop": ("Reject, and stop", "reject_once"),
        "no": ("Reject, and continue", "reject_once"),
    }
    offered = {choice: shown for choice, shown in known.items() if choice in asked.choices}
    return [
        acp.PermissionOption(option_id=key, name=name, kind=kind)
        for key, (name, kind) in offered.items()
    ]


def available_commands(session: Session) -> list[acp.AvailableCommand]:
    """The slash commands for the editor's completion: built-in ones, then those of files, skills
    and servers.
    """
    return [
        acp.AvailableCommand(
            name=command.name,
            description=clean(command.help or command.place),
            input=(
                acp.AvailableCommandInput(root=acp.UnstructuredCommandInput(hint=command.argument))
                if command.argument
                else None
            ),
        )
        for command in listed_commands(session)
        if command.name not in NOT_HERE
    ]


def _text_of(question: Question) -> str:
    return "\n\n".join(filter(None, (question.text, question.details)))


def _embedded_image(name: str, resource: acp.BlobResourceContents) -> Image:
    kind = resource.mime_type or ""
    if not kind.startswith("image/"):
        raise UsageError(
            f"{name} ({kind or 'binary'}) cannot be embedded.",
            "Name its path in the text.",
        )
    return _image(name, resource.blob)


def draft_of(blocks: Iterable[Any], folders: Sequence[Path]) -> Draft:
    """Build a message from the content blocks of a prompt. Files in one of `folders` are named
    relative to it.

    A linked file is named by its path, for the model to read. The text of an embedded file comes
    first, marked as not written by the user.

    Raises:
        UsageError: a block cannot be sent to a model, or the message is empty.
        ToolError: the data of an image is not a picture.
    """
    text, attached, images = "", list[str](), list[Image]()
    for block in blocks:
        match block:
            case acp.TextContentBlock():
                text += block.text
            case acp.ImageContentBlock():
                images.append(_image(_name(block.uri or "", folders) or "picture", block.data))
            case acp.ResourceContentBlock():
                text = _with_mention(text, _name(block.uri, folders))
            case acp.EmbeddedResourceContentBlock(resource=acp.TextResourceContents() as resource):
                name = _name(resource.uri, folders)
                text = _with_mention(text, name)
                attached.append(f"<file path={name!r}>\n{resource.text}\n</file>")
            case acp.EmbeddedResourceContentBlock(resource=acp.BlobResourceContents() as resource):
                name = _name(resource.uri, folders)
                text = _with_mention(text, name)
                images.append(_embedded_image(name, resource))
            case _:
                raise UsageError("ouro understands text, images and files; not audio.")
    if not text.strip() and not images:
        raise UsageError("The prompt is empty.")
    if attached:
        text = ATTACHED + "\n".join(attached) + f"\n\n{text}"
    return Draft(text, tuple(images))


def _with_mention(text: str, name: str) -> str:
    return f"{text}{' ' if text[-1:].isalnum() or text.endswith('/') else ''}@{name}"


def _name(uri: str, folders: Sequence[Path]) -> str:
    """The path of a file URI, relative to the first folder that it is in; any other URI unchanged."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    lines = f":{parts.fragment.removeprefix('L')}" if parts.fragment.startswith("L") else ""
    folder = next((folder for folder in folders if path.is_relative_to(folder)), None)
    return f"{path.relative_to(folder) if folder else path}{lines}"


def _image(name: str, data: str) -> Image:
    try:
        return make_image(name, base64.b64decode(data, validate=True))[0]
    except binascii.Error as error:
        raise UsageError(f"The image {name} is not base64: {error}.") from error
