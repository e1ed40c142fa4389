"""A script for the model server that plays two models: the main model and the classifier."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fakes.classifier import BEGIN
from fakes.model_server import Raw, Reply, Request, Step, agent

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
