"""EditorFrontEnd: an editor as the commands see it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import TYPE_CHECKING

from acp import schema as acp
from acp.helpers import update_agent_message_text

from ouro.commands.front_end import FrontEnd, choice_line
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Event, Level
from ouro.frontends.acp.updates import notice, split_title
from ouro.messages import Image
from ouro.session import Draft, OpenRequest, Session, SessionCatalog, TurnQueue
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.frontends.acp.editor_session import EditorSession

MAX_CHOICES = 9
"""The maximum of buttons in one question. A longer list is printed, and the user types a choice
after the command.
"""
USE_EDITOR_LIST = "Use the editor's own list of threads."


class EditorFrontEnd(FrontEnd):
    """What commands can do in an editor."""

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
        """Ask with a button for each choice. Returns the value of the choice that the user picks;
        None if the user picks none. If there are more than MAX_CHOICES, they are printed instead of
        asked, and the result is None, too.
        """
        if len(choices) > MAX_CHOICES:
            names = "\n".join(f"- `{choice.value}` {choice.detail}".rstrip() for choice in choices)
            self.show(f"{clean(title)} Name one after the command:\n\n{clean(names)}")
            return None
        options = [
            acp.PermissionOption(
                option_id=str(index), name=choice_line(choice, current), kind="allow_once"
            )
            for index, choice in enumerate(choices)
        ]
        options.append(acp.PermissionOption(option_id="cancel", name="Cancel", kind="reject_once"))
        call_id = f"choice_{next(self._numbers)}"
        short_title, whole_title = split_title(title)
        call = acp.ToolCallUpdate(
            tool_call_id=call_id,
            title=short_title,
            kind="other",
            status="pending",
            content=whole_title or None,
        )
        option_id = await self._editor.request_choice(call, options)
        values = {str(index): choice.value for index, choice in enumerate(choices)}
        return values.get(option_id)

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:  # noqa: ARG002 (the editor has them)
        """Tell the user of a rewind, because an editor still shows the messages that were removed."""
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
        raise UsageError(USE_EDITOR_LIST)

    async def open(self, request: OpenRequest) -> None:
        raise UsageError(
            USE_EDITOR_LIST, f"The session is {request.resume}." if request.resume else ""
        )

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
