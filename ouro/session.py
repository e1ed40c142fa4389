"""One conversation: send a prompt, answer a question, steer, interrupt, close. All that a front end may do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ouro.display import Todo
from ouro.events import Answer, Event
from ouro.llm.model import Effort
from ouro.messages import Image, Usage
from ouro.safety.permissions import Mode


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Which session a front end asks for."""

    resume: str = ""
    """Empty: a new one. Else an id, the start of one, words of a title, or `latest`."""
    fork: bool = False


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that could be used, and why it cannot."""

    name: str
    usable: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """What the status line tells."""

    model: str
    effort: Effort
    mode: Mode
    branch: str
    context: int
    window: int
    usage: Usage


class Session:
    """One conversation."""

    id: str
    cwd: Path
    title: str
    running: bool
    todos: tuple[Todo, ...]
    waiting: tuple[str, ...]

    def status(self) -> Status: ...
    def history(self) -> Iterator[Event]: ...
    def send(self, text: str, images: Sequence[Image] = ()) -> AsyncGenerator[Event, None]: ...
    def answer(self, question_id: str, answer: Answer) -> None: ...
    def steer(self, text: str, images: Sequence[Image] = ()) -> None: ...
    def take_back(self) -> str | None: ...
    def interrupt(self) -> None: ...
    def kill_children(self) -> None: ...
    def run_shell(self, line: str, share: bool) -> AsyncGenerator[Event, None]: ...
    async def close(self) -> None: ...
