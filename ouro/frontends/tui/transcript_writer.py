"""TranscriptWriter: turns events into blocks of the transcript."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from ouro import events
from ouro.display import Display, Plain
from ouro.events import Event
from ouro.frontends.event_lines import compaction_receipt, describe_compaction, notice_of
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.messages import AnswerBlock, NoticeBlock, RetryBlock, ThinkingBlock, UserMessage
from ouro.frontends.tui.blocks.tool_card import DisplayBlock, ToolCard
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.messages import Message, Text, Thinking

_COMPACTION = "compaction"
"""The key of a running compaction among the cards of tool calls."""


def blocks_of(earlier: Iterable[Event], like: TranscriptView) -> list[TranscriptBlock]:
    """The blocks of these events, with the keys and the clock of the transcript `like`."""
    view = TranscriptView(outputs_key=like.outputs_key, receipt_key=like.receipt_key, clock=like.clock)
    TranscriptWriter(view).replay(earlier)
    return list(view.blocks)


class TranscriptWriter:
    def __init__(self, transcript: TranscriptView) -> None:
        self._transcript = transcript
        self._reply: list[AnswerBlock | ThinkingBlock] = []
        """The streamed blocks of the running model call."""
        self._cards: dict[str, ToolCard] = {}
        self._asked: dict[str, str] = {}
        """The ids of calls that wait for an answer, by question id."""
        self._retry: NoticeBlock | None = None

    def replay(self, earlier: Iterable[Event]) -> None:
        """Show earlier events; a block is drawn only when it is visible."""
        for event in earlier:
            self.show(event)

    def show(self, event: Event) -> None:
        """Show one event; events of other widgets are ignored."""
        match event:
            case events.Prompted():
                names = [image.name or image.media_type for image in event.images]
                self._transcript.add(UserMessage(event.text, names, self._transcript.outputs_key))
            case events.TextDelta():
                self._stream(AnswerBlock, event.text)
            case events.ThinkingDelta():
                self._stream(ThinkingBlock, event.text)
            case events.Replied():
                self._end_reply(event.message)
            case events.Retrying():
                self._show_retry(event)
            case events.ToolStarted():
                card = self._card(event.call.id)
                card.rename(event.title)
                self._transcript.update(card)
            case events.ToolProgress():
                self._card(event.call_id).append(event.text)
                self._transcript.update(self._card(event.call_id))
            case events.SubagentProgress():
                self._show_subagent(event)
            case events.PermissionAsked():
                self._asked[event.question_id] = event.call.id
                self._wait(event.call.id, True)
            case events.QuestionClosed():
                self._wait(self._asked.pop(event.question_id, ""), False)
            case events.ToolFinished():
                self._finish(event)
            case events.Compacting():
                self._compacting(event)
            case events.Compacted():
                self._compacted(event)
            case events.Notice():
                self._end_compaction()
                self._notice(event)
            case events.TurnFinished():
                self._end_turn()
                self._notice(event)
            case events.NotesRecalled():
                self._notice(event, f" · {key}" if (key := self._transcript.receipt_key) else "")
            case events.NoteKept():
                self._notice(event)
            case events.CoreChanged():
                self._notice(event)
                if event.display.body is not None:
                    self._transcript.add(DisplayBlock(event.display))
            case events.QuestionAsked() | events.TodosChanged() | events.UsageUpdated() | events.Titled():
                pass
            case _:
                assert_never(event)

    def _show_subagent(self, event: events.SubagentProgress) -> None:
        card = self._cards.get(event.call_id)
        if card is None:  # in the background: its end is a notice
            return
        card.rename(f"{event.id}: {event.task}")
        doing = event.state if event.state in ("thinking", "answering") else ""
        used = event.figures if event.calls else ""
        card.note(" · ".join(filter(None, (doing, used))), event.activity, is_waiting=event.state == "waiting")
        self._transcript.update(card)

    def _notice(self, event: Event, hint: str = "") -> None:
        if found := notice_of(event):
            self._transcript.add(NoticeBlock(found[0] + hint, found[1]))

    def _compacting(self, event: events.Compacting) -> None:
        is_new = _COMPACTION not in self._cards
        card = self._card(_COMPACTION, "compact the session")
        if event.parts > 1 and not event.written:
            card.append(f"part {event.part} of {event.parts}\n")
        if not is_new:
            self._transcript.update(card)

    def _compacted(self, event: events.Compacted) -> None:
        card = self._card(_COMPACTION, "compact the session")
        card.finish(Display(describe_compaction(event), Plain(compaction_receipt(event), "markdown")), False)
        self._transcript.update(card)
        del self._cards[_COMPACTION]

    def _end_compaction(self) -> None:
        if (card := self._cards.pop(_COMPACTION, None)) is not None:
            card.stop()
            self._transcript.update(card)

    def _stream(self, kind: type[AnswerBlock] | type[ThinkingBlock], text: str) -> None:
        block = self._reply[-1] if self._reply else None
        if not isinstance(block, kind):
            self._close_streams()
            view = self._transcript
            block = AnswerBlock() if kind is AnswerBlock else ThinkingBlock(clock=view.clock, key=view.outputs_key)
            self._reply.append(block)
            view.add(block)
        block.append(text)
        self._transcript.update(block)

    def _close_streams(self) -> None:
        for block in self._reply:
            block.close()
            self._transcript.update(block)

    def _end_reply(self, message: Message) -> None:
        if not self._reply:
            self._show_message(message)
        self._close_streams()
        self._reply = []
        self._drop_retry()

    def _show_message(self, message: Message) -> None:
        for part in message.parts:
            if isinstance(part, Text) and part.text.strip():
                self._transcript.add(AnswerBlock(part.text))
            elif isinstance(part, Thinking) and part.text.strip():
                self._transcript.add(ThinkingBlock(part.text, key=self._transcript.outputs_key))

    def _show_retry(self, event: events.Retrying) -> None:
        self._transcript.discard(*self._reply)
        self._reply = []
        self._drop_retry()
        self._retry = RetryBlock(event, self._transcript.clock)
        self._transcript.add(self._retry)

    def _drop_retry(self) -> None:
        if self._retry is not None:
            self._transcript.discard(self._retry)
            self._retry = None

    def _card(self, call_id: str, title: str = "") -> ToolCard:
        card = self._cards.get(call_id)
        if card is None:
            card = self._cards[call_id] = ToolCard(
                title or "tool", self._transcript.clock, self._transcript.outputs_key
            )
            self._transcript.add(card)
        return card

    def _wait(self, call_id: str, is_waiting: bool) -> None:
        if (card := self._cards.get(call_id)) is not None:
            card.wait(is_waiting)
            self._transcript.update(card)

    def _finish(self, event: events.ToolFinished) -> None:
        card = self._card(event.call_id, event.name)
        card.finish(event.display, event.failed, event.seconds)
        self._transcript.update(card)
        del self._cards[event.call_id]

    def _end_turn(self) -> None:
        self._close_streams()
        self._reply = []
        for card in self._cards.values():
            card.stop()
            self._transcript.update(card)
        self._cards.clear()
        self._drop_retry()
