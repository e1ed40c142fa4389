"""TranscriptBuilder: the records of a session that is told by another program, message by message."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ouro.memory.backend import (
    CompactionRecord,
    CompactionTrigger,
    MessageRecord,
    ModelRecord,
    Record,
    RewindRecord,
    TitleRecord,
)
from ouro.memory.titles import title_of
from ouro.messages import Message, Part


class TranscriptBuilder:
    """Numbers what it is told. Told the same again and more, it gives the same again and more."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.model = ""
        """The first one that answered."""
        self.last_at = ""
        self.line: list[int] = []
        """The numbers of the messages that the conversation goes on from."""
        self._places: dict[int, int] = {}
        self._next = 1
        self._model_now = ""
        self._title = ""

    def add(self, message: Message, at: str) -> int:
        """Put a message behind the others; gives its number."""
        if message.model and message.model != self._model_now:
            self._note_model(message.model, at)
        number = self._take_number()
        self._places[number] = len(self.records)
        self.records.append(MessageRecord(number, self._time(at), message))
        self.line.append(number)
        return number

    def message(self, number: int) -> Message:
        """A message that was added."""
        record = self.records[self._places[number]]
        assert isinstance(record, MessageRecord)
        return record.message

    def change(self, number: int, message: Message) -> None:
        """Put a fuller message in the place of one that was told in pieces."""
        place = self._places[number]
        self.records[place] = replace(self.records[place], message=message)

    def extend(self, number: int, parts: Sequence[Part]) -> None:
        """Add parts to a message."""
        message = self.message(number)
        self.change(number, replace(message, parts=(*message.parts, *parts)))

    def rewind(self, to: int, at: str) -> None:
        """The conversation goes on behind message `to`; 0: from its start."""
        while self.line and self.line[-1] > to:
            self.line.pop()
        self.records.append(RewindRecord(to, self._time(at)))

    def compact(
        self,
        summary: str,
        at: str,
        trigger: CompactionTrigger = "auto",
        tokens: tuple[int, int] = (0, 0),
        kept: Sequence[int] = (),
    ) -> None:
        """From here on a summary is sent in place of what was said."""
        if self.line and summary.strip():
            covers = (self.line[0], self.line[-1])
            still = tuple(number for number in kept if number in self._places)
            self.records.append(
                CompactionRecord(self._take_number(), self._time(at), covers, still, summary, trigger, tokens=tokens)
            )

    def entitle(self, title: str) -> None:
        """Call the session so; the last word wins."""
        self._title = title_of(title) or self._title

    def finish(self) -> tuple[Record, ...]:
        """All records, the title last: the first words of the person where none was given."""
        if title := self._title or self._first_words():
            self.records.append(TitleRecord(title, self.last_at))
        return tuple(self.records)

    def _first_words(self) -> str:
        said = (each.message for each in self.records if isinstance(each, MessageRecord))
        titles = [title for each in said if each.role == "user" and (title := title_of(each.text))]
        return next((title for title in titles if not title.startswith("/")), titles[0] if titles else "")

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def _time(self, at: str) -> str:
        self.last_at = at or self.last_at
        return self.last_at

    def _note_model(self, model: str, at: str) -> None:
        self._model_now = model
        if not self.model:
            self.model = model
        elif self.records:
            self.records.append(ModelRecord(model, self._time(at)))
