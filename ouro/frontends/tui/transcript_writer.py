"""TranscriptWriter: turns events into blocks of the transcript."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from ouro import events
from ouro.display import Display, Plain
from ouro.events import Event
from ouro.frontends.event_lines import (
    MemoryChanges,
    compaction_receipt,
    describe_compaction,
    is_of_other_project,
    notice_of,
)
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.display_body import DisplayBlock
from ouro.frontends.tui.blocks.messages import (
    AnswerBlock,
    NoticeBlock,
    RetryBlock,
    StreamedBlock,
    ThinkingBlock,
    UserMessage,
)
from ouro.frontends.tui.blocks.read_group import ReadGroup
from ouro.frontends.tui.blocks.tool_card import State, ToolCard
from ouro.frontends.tui.blocks.tool_kind import ToolKind, kind_of
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.messages import Image, Message, Text, Thinking
from ouro.session.turn_queue import Draft

_COMPACTION = "compaction"
"""The key of a running compaction among the cards of tool calls."""
_COMPACTION_TITLE = "compact the session"


def blocks_of(earlier: Iterable[Event], like: TranscriptView) -> list[TranscriptBlock]:
    """Make the blocks of earlier events, to put them above the blocks of the transcript `like`.
    They name the same keys as `like`, and use its clock.
    """
    view = TranscriptView(
        outputs_key=like.outputs_key,
        receipt_key=like.receipt_key,
        send_key=like.send_key,
        clock=like.clock,
    )
    TranscriptWriter(view).replay(earlier)
    return list(view.blocks)


class TranscriptWriter:
    """Shows events in a transcript: a block for each answer, tool call and notice."""

    def __init__(self, transcript: TranscriptView, *, moves: bool = True) -> None:
        """Make the writer of a transcript.

        Args:
            moves: whether the signs of running calls turn.
        """
        self._transcript = transcript
        self._moves = moves
        self._streamed_blocks: list[AnswerBlock | ThinkingBlock] = []
        """The streamed blocks of the running model call."""
        self._cards: dict[str, ToolCard] = {}
        """The cards of calls that have not ended, by the ids of the calls."""
        self._asked_calls: dict[str, str] = {}
        """The call that each open question is about, by the id of the question."""
        self._retry_notice: NoticeBlock | None = None
        """The notice that a model call is retried; None if none is."""
        self._memory = MemoryChanges()

    def show_only(self, shown_events: Iterable[Event]) -> None:
        """Show these events instead of all blocks. What runs continues in their blocks: the earlier
        ones are not visible any more.
        """
        self._transcript.clear()
        self._cards.clear()
        self._streamed_blocks, self._retry_notice = [], None
        self.replay(shown_events)
        for call_id in self._asked_calls.values():
            self._set_state(call_id, "waiting")

    def replay(self, earlier: Iterable[Event]) -> None:
        """Show earlier events; a block is drawn only when it is visible."""
        for event in earlier:
            self.show(event)

    def show(self, event: Event) -> None:
        """Show one event; events of other widgets are ignored."""
        match event:
            case (
                events.Prompted()
                | events.TextDelta()
                | events.ThinkingDelta()
                | events.Replied()
                | events.Retrying()
            ):
                self._show_conversation(event)
            case events.ToolStarted() | events.ToolProgress() | events.SubagentProgress():
                self._show_progress(event)
            case (
                events.PermissionAsked()
                | events.QuestionClosed()
                | events.ToolRunning()
                | events.ToolFinished()
            ):
                self._show_stage_of_call(event)
            case events.Compacting():
                self._show_compacting(event)
            case events.Compacted():
                self._show_compacted(event)
            case (
                events.Notice()
                | events.TurnFinished()
                | events.NotesRecalled()
                | events.NoteKept()
                | events.CoreChanged()
            ):
                self._show_notice(event)
            case (
                events.QuestionAsked()
                | events.TodosChanged()
                | events.UsageUpdated()
                | events.Titled()
            ):
                return
            case _:
                assert_never(event)
        self._transcript.draw_soon()

    def _show_conversation(
        self,
        event: events.Prompted
        | events.TextDelta
        | events.ThinkingDelta
        | events.Replied
        | events.Retrying,
    ) -> None:
        """Show what the user and the model say."""
        match event:
            case events.Prompted():
                self._show_prompt(event)
            case events.TextDelta():
                self._stream(AnswerBlock, event.text)
            case events.ThinkingDelta():
                self._stream(ThinkingBlock, event.text)
            case events.Replied():
                self._show_reply(event.message)
                self._end_reply()
            case events.Retrying():
                self._show_retry(event)
            case _:
                assert_never(event)

    def _show_progress(
        self, event: events.ToolStarted | events.ToolProgress | events.SubagentProgress
    ) -> None:
        """Show what a call does, or what it prints."""
        match event:
            case events.ToolStarted():
                self._get_card(event.call.id, tool=event.call.name).rename(event.title)
            case events.ToolProgress():
                self._get_card(event.call_id).append(event.text)
            case events.SubagentProgress():
                self._show_subagent(event)
            case _:
                assert_never(event)

    def _show_stage_of_call(
        self,
        event: events.PermissionAsked
        | events.QuestionClosed
        | events.ToolRunning
        | events.ToolFinished,
    ) -> None:
        """Show that a call waits for the user, runs, or has ended."""
        match event:
            case events.PermissionAsked():
                self._asked_calls[event.question_id] = event.call.id
                self._set_state(event.call.id, "waiting")
            case events.QuestionClosed():
                # The first checkpoint of a folder can take 20 s from here to ToolRunning.
                self._set_state(self._asked_calls.pop(event.question_id, ""), "pending")
            case events.ToolRunning():
                self._set_state(event.call_id, "running")
            case events.ToolFinished():
                self._show_end_of_call(event)
            case _:
                assert_never(event)

    def _show_notice(
        self,
        event: events.Notice
        | events.TurnFinished
        | events.NotesRecalled
        | events.NoteKept
        | events.CoreChanged,
    ) -> None:
        """Show a notice. One of the turn also ends a compaction, and the end of the turn all that
        still runs.
        """
        match event:
            case events.Notice():
                self._stop_cards([_COMPACTION])
                self._add_notice(event)
            case events.TurnFinished():
                self._end_reply()
                self._stop_cards(list(self._cards))
                self._add_notice(event)
            case events.NotesRecalled():
                self._add_notice(event, _receipt_hint(event, self._transcript))
            case events.NoteKept():
                self._add_notice(event)
            case events.CoreChanged():
                self._show_core(event)
            case _:
                assert_never(event)

    def _show_retry(self, event: events.Retrying) -> None:
        """Remove what was streamed, and show that the call is repeated."""
        view = self._transcript
        view.discard(*self._streamed_blocks)
        self._end_reply()
        self._retry_notice = RetryBlock(event, view.clock)
        view.add(self._retry_notice)

    def _show_end_of_call(self, event: events.ToolFinished) -> None:
        """Show the result of a call on its card. If its diff shows a change of memory, the notice of
        this change, which comes later, need not show it again.
        """
        self._memory.add_call(event)
        self._finish_card(
            event.call_id,
            title=event.name,
            display=event.display,
            failed=event.failed,
            seconds=event.seconds,
        )

    def _show_compacted(self, event: events.Compacted) -> None:
        receipt = Display(describe_compaction(event), Plain(compaction_receipt(event), "markdown"))
        self._finish_card(_COMPACTION, _COMPACTION_TITLE, receipt)

    def _show_prompt(self, event: events.Prompted) -> None:
        self._transcript.add(self._make_message(event.text, event.images))

    def show_queue(
        self, steering: Sequence[str], queued: Sequence[str], starting: Draft | None
    ) -> None:
        """Show the messages that wait. `steering` are for the running turn, and `queued` for later
        turns. `starting` is the message of a turn that begins, until its event comes.
        """
        message = self._make_message(starting.text, starting.images) if starting else None
        self._transcript.set_queued(steering, queued, message)

    def _make_message(self, text: str, images: Sequence[Image]) -> UserMessage:
        names = [image.name or image.media_type for image in images]
        return UserMessage(text, names, self._transcript.outputs_key)

    def _show_core(self, event: events.CoreChanged) -> None:
        """Show a change of the core of memory. Its diff is left out if a tool call has shown it."""
        text, level, body = self._memory.notice_of_change(event)
        self._transcript.add(NoticeBlock(text, level))
        if body is not None:
            self._transcript.add(DisplayBlock(event.display))

    def _show_compacting(self, event: events.Compacting) -> None:
        """Show that a compaction runs. If it has several parts, add a line when a part begins."""
        card = self._get_card(_COMPACTION, _COMPACTION_TITLE)
        card.set_state("running")
        begins_part = event.written == 0
        if event.parts > 1 and begins_part:
            card.append(f"part {event.part} of {event.parts}\n")

    def _show_subagent(self, event: events.SubagentProgress) -> None:
        """Show the state of a subagent on its card. A subagent in the background has no card: its
        end is a notice.
        """
        card = self._cards.get(event.call_id)
        if card is None:
            return
        card.rename(f"{event.id}: {event.task}")
        activity = event.state if event.state in ("thinking", "answering") else ""
        figures = event.figures if event.calls else ""
        state: State = "waiting" if event.state == "waiting" else "running"
        card.show_progress(" · ".join(filter(None, (activity, figures))), event.activity, state)

    def _add_notice(self, event: Event, hint: str = "") -> None:
        """Show the notice of an event, if it has one, with the hint behind its text."""
        notice = notice_of(event)
        if notice is not None:
            text, level = notice
            self._transcript.add(NoticeBlock(text + hint, level))

    def _stream(self, kind: type[AnswerBlock] | type[ThinkingBlock], text: str) -> None:
        """Append text to the last streamed block if it is of this kind, else begin a block."""
        block = self._streamed_blocks[-1] if self._streamed_blocks else None
        if not isinstance(block, kind):
            self._close_streams()
            view = self._transcript
            block = AnswerBlock()
            if kind is ThinkingBlock:
                block = ThinkingBlock(clock=view.clock, key=view.outputs_key)
            self._streamed_blocks.append(block)
            view.add(block)
        block.append(text)

    def _close_streams(self) -> None:
        """Stop the clocks of the streamed thinking."""
        for block in self._streamed_blocks:
            if isinstance(block, ThinkingBlock):
                block.close()

    def _end_reply(self) -> None:
        """End the streams of a model call, and remove the notice of its retry."""
        self._close_streams()
        self._streamed_blocks = []
        if self._retry_notice is not None:
            self._transcript.discard(self._retry_notice)
            self._retry_notice = None

    def _show_reply(self, message: Message) -> None:
        """Compare the complete answer with what was streamed. If they differ, show the complete
        answer instead: perhaps nothing was streamed, or a part of the text has turned out to be
        thinking or a call.
        """
        thinking = "".join(part.text for part in message.parts_of(Thinking))
        streamed_answer = _streamed_text(self._streamed_blocks, AnswerBlock)
        streamed_thinking = _streamed_text(self._streamed_blocks, ThinkingBlock)
        has_same_answer = streamed_answer == _without_spaces(message.text)
        has_same_thinking = streamed_thinking == _without_spaces(thinking)
        if not (has_same_answer and has_same_thinking):
            self._transcript.discard(*self._streamed_blocks)
            self._show_message(message)

    def _show_message(self, message: Message) -> None:
        """Show the texts and thinking of a complete message, each as a block, in their order."""
        for part in message.parts:
            if isinstance(part, Text) and part.text.strip():
                self._transcript.add(AnswerBlock(part.text))
            elif isinstance(part, Thinking) and part.text.strip():
                self._transcript.add(ThinkingBlock(part.text, key=self._transcript.outputs_key))

    def _get_card(self, call_id: str, title: str = "tool", tool: str = "") -> ToolCard:
        """The card of a tool call. If there is none, one with this title is added to the transcript."""
        if call_id not in self._cards:
            view = self._transcript
            card = ToolCard(title, view.clock, view.outputs_key, tool, moves=self._moves)
            self._cards[call_id] = card
            self._add_card(card, kind_of(tool))
        return self._cards[call_id]

    def _add_card(self, card: ToolCard, kind: ToolKind) -> None:
        """Add a card to the transcript; reads and searches in a row become one group."""
        if not kind.is_grouped:
            self._transcript.add(card)
            return
        last = self._transcript.blocks[-1] if self._transcript.blocks else None
        if isinstance(last, ReadGroup):
            last.add(card)
            return
        group = ReadGroup()
        group.add(card)
        self._transcript.add(group)

    def _set_state(self, call_id: str, state: State) -> None:
        if (card := self._cards.get(call_id)) is not None:
            card.set_state(state)

    def _finish_card(
        self,
        call_id: str,
        title: str,
        display: Display,
        failed: bool = False,
        seconds: float | None = None,
    ) -> None:
        """Show the result on the card of a call, and forget the card, because the call has ended.

        Args:
            title: the name of the tool, for a call without a card.
            seconds: how long the call took; None: since its card was made.
        """
        self._get_card(call_id, title or "tool", title).finish(display, failed, seconds)
        del self._cards[call_id]

    def _stop_cards(self, call_ids: Iterable[str]) -> None:
        """Show on the cards of these calls that they were stopped, and forget the cards."""
        for call_id in call_ids:
            if (card := self._cards.pop(call_id, None)) is not None:
                card.stop()


def _receipt_hint(event: events.NotesRecalled, view: TranscriptView) -> str:
    """The text after the notice of recalled notes: the key that shows or sends them."""
    if is_of_other_project(event):
        return f" · {view.send_key or '/memory send'} sends it"
    return f" · {view.receipt_key}" if view.receipt_key else ""


def _streamed_text(blocks: Iterable[StreamedBlock], kind: type[StreamedBlock]) -> str:
    """The text of all blocks of a kind, without white space."""
    return _without_spaces("".join(block.text for block in blocks if isinstance(block, kind)))


def _without_spaces(text: str) -> str:
    """The text without white space, in which a streamed answer may differ from the complete one."""
    return "".join(text.split())
