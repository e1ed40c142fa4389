"""SessionFeed: one session as patches for a page, over the socket that `ouro attach` uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, islice
from typing import Any, cast

from ouro import events
from ouro.events import Event
from ouro.frontends.background.background_sessions import AgentRow
from ouro.frontends.background.event_codec import decode
from ouro.frontends.background.remote import RemoteSession, RemoteTurns
from ouro.frontends.event_lines import MemoryChanges, notice_of
from ouro.frontends.web import pages
from ouro.session import Session, TurnObserver
from ouro.session.background_record import BackgroundRecord

MAX_CARDS = 250
"""Cards of the transcript that a page shows; of a longer one the last."""
MAX_WAITING = 2 * MAX_CARDS
"""Changed cards that wait for a page; of more, the oldest are left out."""
DRAW_EVERY = 0.12
"""Seconds between two patches: an answer that is streamed changes often."""
EARLIER = "Earlier messages are on the full screen, and in `ouro sessions show`."


class SessionFeed(TurnObserver):
    """Collects what changes in a session until the page takes it.

    A page that reads slowly gets fewer patches: each card is kept once, as it is when it is taken.
    """

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._turns = RemoteTurns(self, self)
        self._numbers = count(1)
        self._memory = MemoryChanges()
        self._cards: dict[str, Callable[[], str]] = {}
        """The changed cards, in their order on the page."""
        self._titles: dict[str, str] = {}
        """The titles of running calls."""
        self._outputs: dict[str, str] = {}
        """The output of running calls so far."""
        self._call_cards: dict[str, str] = {}
        """The card of each call: some providers use an id again in the next turn."""
        self._answer, self._thought = "", ""
        """What is streamed of the answer and of its thinking."""
        self._answer_card = self._thought_card = ""
        """The cards of the answer and of its thinking; empty before the first piece."""
        self._is_new = True
        """Whether the page shows the transcript from its beginning."""
        self._draft = ""
        """A text that the page puts into its prompt; empty if there is none."""
        self._ended = ""
        """Why the session has ended; empty while it runs."""
        self._has_changed = asyncio.Event()
        """Set when the next patch has something to show."""

    @classmethod
    async def open(cls, record: BackgroundRecord) -> SessionFeed:
        """Attach to the session. Raises what `RemoteSession.open` raises."""
        feed = cls(await RemoteSession.open(record))
        feed._show_from_start()
        feed._turns.attach(cast("Session", cast("object", feed._session)))
        return feed

    async def close(self) -> None:
        """Leave the session; it continues."""
        await self._turns.close()

    async def next_patch(self) -> dict[str, Any]:
        """Wait for a change, and return all that has changed since the last patch.

        If the session has ended, `ended` has the reason, and the patch is the last one.
        """
        await asyncio.sleep(DRAW_EVERY)  # changes that come meanwhile are in one patch
        await self._has_changed.wait()
        self._has_changed.clear()
        cards, self._cards = self._cards, {}
        is_new, self._is_new = self._is_new, False
        draft, self._draft = self._draft, ""
        state = self._session.state
        return {
            "id": self._session.id,
            "new": is_new,
            "cards": [[card, draw()] for card, draw in cards.items()],
            "head": pages.head_page(state),
            "state": state.activity if not self._ended else "ended",
            "todos": pages.todos_page(state.turn.todos),
            "waiting": pages.waiting_page(state.turn.waiting),
            "question": self._question(),
            "ended": self._ended,
            "draft": draft,
        }

    def _question(self) -> dict[str, str] | None:
        """The id and the page of the oldest open question; None if there is none."""
        if self._ended:
            return None
        questions = [
            event
            for event in map(decode, self._session.state.questions)
            if isinstance(event, events.PermissionAsked | events.QuestionAsked)
        ]
        if not questions:
            return None
        page = pages.question_page(questions[0], len(questions) - 1)
        return {"id": questions[0].question_id, "page": page}

    # The transcript

    def _show_from_start(self) -> None:
        """Drop what was collected, and collect the cards of the whole transcript. If they are more
        than MAX_CARDS, only the last ones are kept, below a card that says so.
        """
        self._cards.clear()
        self._titles.clear()
        self._outputs.clear()
        self._call_cards.clear()
        self._answer = self._thought = self._answer_card = self._thought_card = ""
        self._is_new = True
        earlier = list(self._session.scrollback.shown_events())
        for event in earlier:
            self._show_event(event)
        if len(self._cards) > MAX_CARDS:
            last = islice(self._cards.items(), len(self._cards) - MAX_CARDS, None)
            note = {"earlier": partial(pages.notice_card, EARLIER)}
            self._cards = note | dict(last)
        self._has_changed.set()

    def show(self, event: Event) -> None:
        """Collect the card of an event, for the next patch. If too many cards wait for it, the
        oldest are dropped.
        """
        self._show_event(event)
        while len(self._cards) > MAX_WAITING:
            del self._cards[next(iter(self._cards))]
        self._has_changed.set()

    def _show_event(self, event: Event) -> None:
        """Add or change the card of an event. A streamed answer has one card, which its whole reply
        replaces.
        """
        match event:
            case events.TextDelta(text):
                self._stream_answer(text)
            case events.ThinkingDelta(text):
                self._stream_thinking(text)
            case events.Replied(message):
                self._finish_answer(partial(pages.reply_card, message))
            case events.Retrying():  # what was streamed is not valid any more
                self._finish_answer(_empty_card)
                self._add_notice(event)
            case events.Prompted():
                self._add(partial(pages.prompt_card, event))
            case events.SubagentProgress():
                self._cards[f"agent-{event.id}"] = partial(pages.subagent_card, event)
            case events.CoreChanged():
                self._add_core(event)
            case events.NotesRecalled():
                self._add_receipt(event)
            case events.TurnFinished():
                self._end_turn()
                self._add_notice(event)
            case _:
                self._show_call(event)

    def _show_call(self, event: Event) -> None:
        """Add or change the card of a tool call; any other event is shown by its notice."""
        match event:
            case events.ToolStarted():
                if event.call.id not in self._titles:
                    self._call_cards[event.call.id] = self._new_card()
                self._titles[event.call.id] = event.title
                self._draw_call(event.call.id)
            case events.ToolProgress(call_id, text):
                output = self._outputs.get(call_id, "") + text
                self._outputs[call_id] = output[-pages.MAX_OUTPUT :]
                self._draw_call(call_id)
            case events.ToolFinished(call_id):
                self._memory.add_call(event)
                self._outputs.pop(call_id, None)
                title = self._titles.pop(call_id, event.name)
                card = self._call_cards.pop(call_id, "") or self._new_card()
                self._cards[card] = partial(pages.finished_card, title, event)
            case _:
                self._add_notice(event)

    def _end_turn(self) -> None:
        """End what an interrupted turn has left: an answer without its reply, and calls without
        results.
        """
        if self._answer_card:
            self._cards[self._answer_card] = partial(pages.answer_card, self._answer)
        self._answer = self._thought = self._answer_card = self._thought_card = ""
        for call_id, title in self._titles.items():
            output = self._outputs.get(call_id, "")
            self._cards[self._call_cards[call_id]] = partial(pages.stopped_card, title, output)
        self._titles.clear()
        self._outputs.clear()
        self._call_cards.clear()

    def _draw_call(self, call_id: str) -> None:
        """Draw the card of a running call again. Does nothing if the start of the call is not
        known, because it was before the part of the transcript that is shown.
        """
        title, card = self._titles.get(call_id), self._call_cards.get(call_id)
        if title is not None and card is not None:
            output = self._outputs.get(call_id, "")
            self._cards[card] = partial(pages.running_card, title, output)

    def _stream_answer(self, text: str) -> None:
        """Add a streamed piece of the answer to its card."""
        self._answer += text
        self._answer_card = self._answer_card or self._new_card()
        self._cards[self._answer_card] = partial(pages.answer_card, self._answer, is_open=True)

    def _stream_thinking(self, text: str) -> None:
        """Add a streamed piece of the model's thinking to its card."""
        self._thought += text
        self._thought_card = self._thought_card or self._new_card()
        self._cards[self._thought_card] = partial(pages.thought_card, self._thought)

    def _finish_answer(self, draw: Callable[[], str]) -> None:
        """Replace the card of the streamed answer by `draw`, and empty the card of its thinking:
        the whole reply has both.
        """
        if self._thought_card:
            self._cards[self._thought_card] = _empty_card
        self._cards[self._answer_card or self._new_card()] = draw
        self._answer = self._thought = self._answer_card = self._thought_card = ""

    def _add_notice(self, event: Event) -> None:
        if notice := notice_of(event):
            self._add(partial(pages.notice_card, *notice))

    def _add_core(self, event: events.CoreChanged) -> None:
        """Add the notice of a changed core memory, with its diff."""
        self._add(partial(pages.core_card, *self._memory.notice_of_change(event)))

    def _add_receipt(self, event: events.NotesRecalled) -> None:
        """Add the notice of recalled notes, with the command that shows them."""
        if notice := notice_of(event):
            text = pages.receipt_text(notice[0], event)
            self._add(partial(pages.notice_card, text))

    def _add(self, draw: Callable[[], str]) -> None:
        self._cards[self._new_card()] = draw

    def _new_card(self) -> str:
        return f"card-{next(self._numbers)}"

    # What the session reports

    def turn_began(self) -> None:
        self._has_changed.set()

    def turn_ended(self, outcome: events.Outcome, seconds: float) -> None:  # noqa: ARG002
        self._has_changed.set()

    def queue_changed(self) -> None:
        self._has_changed.set()

    def show_changes(self) -> None:
        self._has_changed.set()

    def show_text(self, markdown: str, page: str) -> None:  # noqa: ARG002 (for screens)
        self._add(partial(pages.text_card, markdown))
        self._has_changed.set()

    def show_session(self, draft: str) -> None:
        """Show the transcript again: it has changed."""
        self._draft = draft
        self._show_from_start()

    def show_session_end(self, text: str) -> None:
        self._ended = text
        self._has_changed.set()

    def run_here(self, text: str) -> bool:  # noqa: ARG002 (the page has no commands)
        return False


def _empty_card() -> str:
    return ""


def saved_patch(row: AgentRow, pieces: Iterable[str]) -> dict[str, Any]:
    """A patch that shows a session without a process. `pieces` are the cards of its transcript as
    HTML, of which the last MAX_CARDS are shown.
    """
    cards = [[f"saved-{number}", card] for number, card in enumerate(pieces)]
    return {
        "id": row.id,
        "new": True,
        "cards": cards[-MAX_CARDS:],
        "head": pages.ended_page(row),
        "state": "ended",
        "todos": "",
        "waiting": "",
        "question": None,
        "ended": row.line,
        "draft": "",
    }
