"""UnsavedEvents: what a session has shown and its file does not have yet, and its open questions."""

from __future__ import annotations

from collections.abc import Container, Iterator

from ouro import events
from ouro.events import Event
from ouro.utils.text import one_line

MAX_OUTPUT = 20_000
"""Characters at the end of the running output of a call."""
MAX_LINE = 200
_MAX_TAIL = 4 * MAX_LINE
Asked = events.PermissionAsked | events.QuestionAsked
_Delta = events.TextDelta | events.ThinkingDelta


class UnsavedEvents:
    """Keeps the events of a running turn for a front end that joins the session in the middle of it."""

    def __init__(self) -> None:
        self.asked: dict[str, Asked] = {}
        """The open questions by their id, the oldest first."""
        self._tail = ""
        """The end of what was said or done last, for `last_line`."""
        self._answer: list[Event] = []
        """The deltas of the running model call."""
        self._calls: dict[str, list[Event]] = {}
        """The events of each call since the last answer."""
        self._output: dict[str, str] = {}
        """The end of what each running call has printed, by its id."""
        self._finished: events.TurnFinished | None = None
        """The last event of the last turn, if the turn did not end with an answer."""

    @property
    def last_line(self) -> str:
        """One line about what the session did last: the end of the answer or of a message, the
        title of a call, or why the last turn failed. Empty if nothing happened yet.
        """
        lines = [line for line in self._tail.splitlines() if any(map(str.isalnum, line))]
        return one_line(lines[-1], MAX_LINE) if lines else ""

    def add(self, event: Event) -> None:
        """Keep the event if a front end that joins later needs it, and drop the events that the
        session file has now: an answer is written when it is complete, then the results of its
        calls.
        """
        self._update_tail(event)  # before the event is kept: it looks at the event before this one
        self._note_question(event)
        match event:
            case events.TextDelta() | events.ThinkingDelta():
                self._answer.append(event)
            case events.Retrying():
                self._answer = [event]
            case events.Replied():
                self._start_new_answer()
            case events.Prompted():
                self._finished = None
            case events.ToolStarted() | events.ToolRunning() | events.ToolFinished():
                call_id = event.call.id if isinstance(event, events.ToolStarted) else event.call_id
                self._calls.setdefault(call_id, []).append(event)
            case events.ToolProgress(call_id, text):
                self._output[call_id] = (self._output.get(call_id, "") + text)[-MAX_OUTPUT:]
            case events.TurnFinished(outcome):
                self._start_new_answer()
                self._finished = event if outcome != "answered" else None
            case _:
                pass

    def _note_question(self, event: Event) -> None:
        """Keep a question while it is open: from the event that asks it until that which closes it."""
        if isinstance(event, events.PermissionAsked | events.QuestionAsked):
            self.asked[event.question_id] = event
        elif isinstance(event, events.QuestionClosed):
            self.asked.pop(event.question_id, None)

    def end_turn(self) -> None:
        """Forget the questions of the turn. Those of an interrupted turn are not closed one by one."""
        self.asked = {key: asked for key, asked in self.asked.items() if not asked.of_turn}

    def since(self, saved_calls: Container[str]) -> Iterator[Event]:
        """Yields the events that follow the saved messages: the calls without a saved result, the
        answer that is being written, and the end of the last turn if it failed.

        Args:
            saved_calls: the ids of calls whose results are in the saved messages.
        """
        for call_id, call_events in self._calls.items():
            if call_id in saved_calls:
                continue
            ends = [event for event in call_events if isinstance(event, events.ToolFinished)]
            yield from (event for event in call_events if event not in ends)
            if output := self._output.get(call_id):  # as one event, between start and end
                yield events.ToolProgress(call_id, output)
            yield from ends
        yield from _merge_deltas(self._answer)
        if self._finished is not None:
            yield self._finished

    def _start_new_answer(self) -> None:
        """Drop the events of the last answer and its calls: the session file has them now."""
        self._answer = []
        self._calls.clear()
        self._output.clear()

    def _update_tail(self, event: Event) -> None:
        """Keep the end of what an event shows, for `last_line`."""
        match event:
            case events.TextDelta(text):
                continues = bool(self._answer) and isinstance(self._answer[-1], events.TextDelta)
                self._tail = (self._tail[-_MAX_TAIL:] if continues else "") + text
            case events.Replied(message) if message.text.strip():
                self._tail = message.text[-_MAX_TAIL:]
            case events.ToolStarted():
                self._tail = event.title[:_MAX_TAIL]
            case events.Prompted(text):
                self._tail = text[-_MAX_TAIL:]
            case events.TurnFinished(outcome, detail) if outcome != "answered":
                self._tail = detail or outcome
            case events.Notice(text, "error"):
                self._tail = text
            case _:
                pass


def _merge_deltas(deltas: list[Event]) -> Iterator[Event]:
    """Yields the same events, but deltas of one kind that follow each other are joined to one. Any
    other event is before the first delta: a retry empties the list and is then its only event.
    """
    kind: type[_Delta] | None = None
    texts: list[str] = []
    for event in deltas:
        if isinstance(event, events.TextDelta | events.ThinkingDelta):
            if kind is not None and type(event) is not kind:
                yield kind("".join(texts))
                texts = []
            kind = type(event)
            texts.append(event.text)
        else:
            yield event
    if kind is not None:
        yield kind("".join(texts))
