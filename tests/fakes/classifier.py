"""One scripted model for both the messages of a session and the classifier, selected by the text of
the request: as an object, and as a script for the model server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fakes.model_server import Raw, Reply, Request, Step, agent
from fakes.waiting import until
from ouro.assemble import Options, opener
from ouro.errors import ModelError
from ouro.llm import ScriptedModel, ScriptedReply
from ouro.messages import Message
from ouro.session import OpenRequest

BEGIN = "You maintain the notes of a coding assistant. You read"


class Two:
    """Answers messages with `replies` (then "Yes."), requests to the classifier with `answers`
    (then `[]`).

    An answer of the classifier is a list of operations, a text, an error, a ScriptedReply, or a
    function of the request that returns one of these.
    """

    def __init__(self, *answers, replies: Sequence = (), always=None) -> None:
        self.answers = list(answers)
        self.replies = list(replies)
        self.always = always
        self.captures: list[str] = []
        """The requests to the classifier, oldest first."""
        self.order: list[str] = []
        """`talk` or `capture` for each request, in order."""
        self.prompts: list[tuple[Message, ...]] = []
        self.model = ScriptedModel(self._steps())

    def _steps(self):
        while True:
            yield self._answer

    def _answer(self, messages: Sequence[Message]):
        if not messages[0].text.startswith(BEGIN):
            self.order.append("talk")
            self.prompts.append(tuple(messages))
            return self.replies.pop(0) if self.replies else "Yes."
        self.order.append("capture")
        self.captures.append(messages[-1].text)
        answer = (
            self.always if self.always is not None else self.answers.pop(0) if self.answers else []
        )
        if isinstance(answer, Callable) and not isinstance(answer, type):
            answer = answer(messages[-1].text)
        if isinstance(answer, ModelError):
            return ScriptedReply(error=answer)
        return answer if isinstance(answer, str | ScriptedReply) else json.dumps(answer)

    def opener(self, repository, **options):
        settings = {
            "sessions.titles": False,
            "permissions.mode": "auto",
            **options.pop("settings", {}),
        }
        options = {"interactive": True, **options}
        return opener(Options(repository, ready_model=self.model, settings=settings, **options))

    async def open(self, repository, resume: str = "", **options):
        return await self.opener(repository, **options)(OpenRequest(resume))


async def say(session, *texts):
    for text in texts:
        async for _ in session.send(text):
            pass


async def wait_until_quiet(session):
    """Wait until only background tasks that wait for the user are left."""
    tasks = session.turn.tasks
    await until(
        lambda: all(
            task.get_name().startswith(("ask about", "nothing")) for task in tasks._background
        )
    )


def unread_events(session) -> list:
    """The unread events between turns."""
    queue = session.turn.tasks._events
    return [queue.get_nowait() for _ in range(queue.qsize())]


def add(text: str, category: str = "project-conventions", by: str = "user", **fields) -> dict:
    return {"op": "add", "text": text, "category": category, "said_by": by, **fields}


Answer = list[dict[str, Any]] | Step | Callable[[str], "Answer"]


class TwoVoices:
    """`talk` answers the main model's requests, `answer` those of the classifier.

    Args:
        talk: returns a step for a request to the main model.
        answer: operations, any step of the server (a text, a Reply that is held, a failure), or a function of the
            request to the classifier that returns one of these.
    """

    def __init__(self, talk: Callable[[Request], Step] = agent, answer: Answer = ()) -> None:
        self.talk = talk
        self.answer: Answer = list(answer) if isinstance(answer, tuple) else answer
        self.said: list[Request] = []
        """The requests to the main model, in order."""
        self.asked: list[str] = []
        """The requests to the classifier, in order."""

    def __call__(self, request: Request) -> Step:
        if BEGIN in json.dumps(request.messages[0]):
            asked = content(request.messages[-1])
            answer = self.answer
            while callable(answer):
                answer = answer(asked)
            self.asked.append(asked)
            return answer if isinstance(answer, str | Reply | Raw) else json.dumps(answer)
        if request.tools:
            self.said.append(request)
            return self.talk(request)
        return "Nothing."  # a summary, a title

    @property
    def last(self) -> str:
        """The last message to the main model: the user's message with its context."""
        return content(self.said[-1].messages[-1])


def content(message: dict[str, Any]) -> str:
    """The text of a message in a request."""
    said = message["content"]
    return said if isinstance(said, str) else "\n".join(part.get("text", "") for part in said)


def place(asked: str, text: str) -> int:
    """The number under which the classifier got a note; 0: it did not get it."""
    shown = [
        line for line in asked.partition("The session, quoted")[0].splitlines() if ". (" in line
    ]
    return next((number for number, line in enumerate(shown, 1) if text in line), 0)
