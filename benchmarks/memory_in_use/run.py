"""Runs a story with a model: its sessions, then the questions, each in a new session."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import re
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.memory_in_use.stories import Story
from ouro.agent.system_prompt import system_prompt
from ouro.assemble import Options, opener
from ouro.events import (
    Event,
    NotesRecalled,
    PermissionAsked,
    Permit,
    QuestionAsked,
    Replied,
    UsageUpdated,
)
from ouro.llm import (
    Chunk,
    EndChunk,
    Model,
    ModelSpec,
    ScriptedModel,
    ScriptedReply,
    TextChunk,
    constrain,
)
from ouro.llm.small_model_memory import NOW
from ouro.memory.long_term import MemoryEntry, all_entries
from ouro.messages import Context, Message
from ouro.session import OpenRequest, Session
from ouro.utils.ouro_paths import get_home

_BEFORE = re.compile(r"^\|?\s*before \(.*$", re.MULTILINE)
"""An earlier version of a note, marked as such: it is delivered, but not as the current version."""
_PROMPT = system_prompt(())[:40]
"""The beginning of a turn's request; tools may be described in the text."""
_KINDS = {
    "coding-preferences": "preferences",
    "architectural-decisions": "decisions",
    "project-conventions": "facts",
    "corrections": "facts",
    "user-facts": "facts",
}
"""The core file of each category of notes."""
_SETTINGS = """\
memory: {cadence_turns: 1}
sessions: {titles: false, summaries: false}
limits: {max_turns: 4}
"""


@dataclass(frozen=True)
class Outcome:
    captured: bool
    """The statement is in the core or a note that is in use."""
    placed: bool
    """It is also in the right scope and category, and the corrected entry is no longer in use."""
    delivered: bool
    """It was in the request with the question, and no outdated entry was."""
    delivered_elsewhere: bool
    """A note was sent with the unrelated question."""
    applied: bool
    """The answer has it."""
    contradicted: bool
    """The answer has the corrected statement."""
    capture_seconds: float
    tokens: int
    """The tokens of the request with the question."""
    kept: str = ""
    """The entries in memory."""
    answer: str = ""


class Recording:
    """A model that records the messages of the last turn.

    With an `answer` the model is not called for turns, only for background work.
    """

    def __init__(self, model: Any, answer: str = "") -> None:
        self._model = model
        self._answer = answer
        self.spec = model.spec
        self._requests: list[Sequence[Message]] = []

    def with_schema(self, schema: Any) -> Any:
        made = copy.copy(self)  # with the same list
        made._model = constrain(self._model, schema)
        return made

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[Any] = ()
    ) -> AsyncGenerator[Chunk, None]:
        if messages[0].text.startswith(_PROMPT):
            self._requests[:] = [tuple(messages)]
            if self._answer:
                yield TextChunk(self._answer)
                yield EndChunk("stop")
                return
        async with aclosing(self._model.stream(messages, tools)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        await self._model.close()

    @property
    def sent(self) -> str:
        """The system prompt and the context of the messages, without the user's own words."""
        last = self._requests[0] if self._requests else ()
        texts = [part.text for message in last for part in message.parts_of(Context)]
        texts += [
            before
            for message in last[-1:]
            for before, now, _ in [message.text.partition(NOW)]
            if now
        ]
        whole = "\n".join([*(message.text for message in last if message.role == "system"), *texts])
        return _BEFORE.sub("", whole)


def scripted(latency: float = 0.0) -> Model:
    """A small classifier that accepts every sentence, and answers turns with "Ok.".

    Args:
        latency: seconds until it answers.
    """

    def answer(messages: Sequence[Message]) -> str:
        said = messages[-1].text
        if said.startswith("The sentence: "):
            return json.dumps({"kind": "fact"})
        if '"own"' in messages[0].text:  # the second question: is it the user's own statement?
            return json.dumps({"label": "own"})
        return "Ok."

    def step(messages: Sequence[Message]) -> ScriptedReply:
        return ScriptedReply(answer(messages), hold=partial(asyncio.sleep, latency))

    return ScriptedModel([step] * 50, spec=ModelSpec("scripted-1b"))


async def run_story(story: Story, make: Callable[[], Model], folder: Path) -> Outcome:
    """The outcome of a story, in a new repository in `folder`; the home of the process is used.

    The model does the background work and answers the question. Other turns are answered "Ok.",
    because their answers are not used.
    """
    repository = folder / "project"
    repository.mkdir()
    (repository / "README.md").write_text("# shop\n")
    subprocess.run("git init -q && git add -A", shell=True, cwd=repository, check=True)
    get_home().mkdir(mode=0o700, exist_ok=True)
    (get_home() / "config.yaml").write_text(_SETTINGS)
    (get_home() / "mark.key").write_bytes(
        bytes(32)
    )  # the same prompt each time, so that a server has it in its cache
    turns = [await play_turn(repository, make(), said, "Ok.") for said in story.said]
    entries = turns[-1].entries
    matching_entries = [entry for entry in entries if re.search(story.wanted, entry.text)]
    question_turn = await play_turn(repository, make(), story.question)
    other_turn = await play_turn(repository, make(), story.other, "Ok.")
    has_outdated = bool(story.outdated and re.search(story.outdated, question_turn.sent))
    return Outcome(
        captured=bool(matching_entries),
        placed=any(_place(entry) in story.place.split("|") for entry in matching_entries)
        and not (
            story.outdated and any(re.search(story.outdated, entry.text) for entry in entries)
        ),
        delivered=bool(re.search(story.wanted, question_turn.sent)) and not has_outdated,
        delivered_elsewhere=other_turn.notes > 0,
        applied=bool(re.search(story.wanted, question_turn.answer)),
        contradicted=bool(story.outdated and re.search(story.outdated, question_turn.answer)),
        capture_seconds=max(turn.capture_seconds for turn in turns),
        tokens=question_turn.tokens,
        kept="\n".join(f"{_place(entry)}, {entry.kind}: {entry.text}" for entry in entries),
        answer=question_turn.answer,
    )


@dataclass(frozen=True)
class PlayedTurn:
    answer: str
    sent: str
    notes: int
    capture_seconds: float
    tokens: int
    receipt: Sequence[str]
    """The entries that were sent to the model: the core and recalled notes."""
    entries: Sequence[MemoryEntry]
    """The entries that are in use after the turn."""


async def play_turn(
    repository: Path,
    model: Model,
    text: str,
    answer: str = "",
    *,
    does_permit: bool = False,
    seconds: float = math.inf,
) -> PlayedTurn:
    """One turn of a new session, up to the end of capture.

    Args:
        answer: of the model, which is then not called for the turn.
        does_permit: whether each permission is given, as by a user who watches.
        seconds: after so many the turn is interrupted.
    """
    recording = Recording(model, answer)
    options = Options(
        repository,
        ready_model=recording,
        trust=True,
        interactive=True,
        settings={"permissions.mode": "auto"},
    )
    session: Session = await opener(options)(OpenRequest())
    events: list[Event] = []
    limit = time.monotonic() + seconds
    async for event in session.send(text):
        events.append(event)
        if isinstance(event, PermissionAsked) and does_permit:
            session.answer(event.question_id, Permit("yes"))
        elif isinstance(event, QuestionAsked) or time.monotonic() > limit:
            session.interrupt()  # no user is present to answer
    ended = time.monotonic()
    while any(task.get_name() == "capture" for task in asyncio.all_tasks()):
        await asyncio.sleep(0.01)
    seconds = time.monotonic() - ended
    recalled = [
        item for event in events if isinstance(event, NotesRecalled) for item in event.items
    ]
    replies = [event.message.text for event in events if isinstance(event, Replied)]
    usage = [event.context for event in events if isinstance(event, UsageUpdated)]
    core = session.session_memory.receipt().lines
    receipt = [item.text for item in (*core, *recalled) if item.state == "loaded"]
    entries = await session.session_memory.with_editor(all_entries)
    await session.close()
    notes = sum(item.state == "loaded" for item in recalled)
    answer, tokens = replies[-1] if replies else "", usage[-1] if usage else 0
    return PlayedTurn(answer, recording.sent, notes, seconds, tokens, receipt, entries)


def _place(entry: MemoryEntry) -> str:
    return f"{entry.scope} {_KINDS.get(entry.category, entry.category)}"
