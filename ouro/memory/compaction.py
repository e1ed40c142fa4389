"""Plans a compaction, and makes the parts of its summary that are quoted or listed. Pure functions,
no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set

import msgspec

from ouro.memory.backend import CompactionRecord, MessageRecord
from ouro.memory.short_term import make_sendable, remove_outputs, replace_by_summary, strip_message
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate_messages
from ouro.messages import Image, Message, Text, ToolCall, ToolReply
from ouro.settings import CompactionSettings

MAX_TAIL = 16_000
"""Tokens at the end of the session that stay unchanged, if the window allows."""
QUOTED_ENDS = (1_200, 400)
"""Characters quoted from the beginning and the end of a message that is too long to keep."""
FILES_HEADING = "## Files in play"
_MAX_LISTED = 30
"""Files, or images, that a section of a summary lists."""


def compaction_limit(settings: CompactionSettings, window: int) -> int:
    """Returns the maximum number of tokens of a request; before a larger one a compaction runs.
    `window` is the context window of the model in tokens.
    """
    reserve = min(settings.reserve, window // 4)  # a small window must not be all reserve
    return int(min(settings.at * window, window - reserve))


class CompactionPlan(msgspec.Struct, frozen=True):
    """What a compaction replaces by a summary, and what it keeps."""

    covers: tuple[int, int]
    """The numbers of the first and the last message that the summary stands for."""
    kept: tuple[int, ...]
    """Numbers of the covered messages that stay word for word, oldest first."""
    quoted: tuple[MessageRecord, ...]
    """User messages that are too long to keep: their beginning and end are quoted."""
    covered: tuple[MessageRecord, ...]
    """The entries that the summary replaces."""
    tail: tuple[MessageRecord, ...]
    """The entries that stay unchanged."""

    def find_lost(self, sent: Sequence[Message]) -> tuple[int, ...]:
        """Returns the numbers of the messages that should stay word for word but are not in `sent`:
        a check after the compaction.
        """
        covered = [entry for entry in self.covered if entry.number in self.kept]
        return tuple(entry.number for entry in covered if strip_message(entry.message) not in sent)

    def will_be_sent(self, summary: str, dropped: Set[str]) -> list[Message]:
        """Returns the messages that are sent after the compaction, if it has this summary.
        `dropped` has the ids of the calls whose outputs are not sent.
        """
        kept = [entry.message for entry in self.covered if entry.number in self.kept]
        messages = replace_by_summary(kept, summary, [entry.message for entry in self.tail])
        return make_sendable(remove_outputs(messages, dropped))


def plan_compaction(
    sent: Sequence[MessageRecord],
    earlier: CompactionRecord | None,
    pins: Collection[int],
    *,
    max_verbatim_tokens: int,
    max_tail_tokens: int,
    max_last_round_tokens: int,
) -> CompactionPlan | None:
    """Returns what a compaction summarizes, what it keeps word for word, and of what it quotes a
    part; None if there is nothing new to summarize.

    Args:
        sent: the entries that are sent now, oldest first.
        earlier: the last compaction; None if there was none.
        pins: the numbers of the messages that the user pinned.
        max_verbatim_tokens: those of the messages that are kept word for word.
        max_tail_tokens: those of the messages at the end that stay unchanged.
        max_last_round_tokens: up to this size the last round stays unchanged, even if it is larger
            than `max_tail_tokens`.
    """
    tail_start = _find_tail_start(sent, max_tail_tokens, max_last_round_tokens)
    if sent and is_own_words(sent[-1].message):  # the user's message has no answer yet: it stays
        tail_start = min(tail_start, len(sent) - 1)
    covered = sent[:tail_start]
    last_covered_before = earlier.covers[1] if earlier else 0
    if not any(entry.number > last_covered_before for entry in covered):
        return None
    numbers = [entry.number for entry in covered if entry.number]
    kept, quoted = _choose_verbatim(covered, pins, max_verbatim_tokens)
    first = earlier.covers[0] if earlier else numbers[0]
    return CompactionPlan(
        (first, max(numbers)), kept, quoted, covered=tuple(covered), tail=tuple(sent[tail_start:])
    )


def is_own_words(message: Message) -> bool:
    """Whether a message holds text or an image of the user."""
    return message.role == "user" and any(
        isinstance(part, Image) or (isinstance(part, Text) and part.text.strip())
        for part in message.parts
    )


def quote_messages(entries: Iterable[MessageRecord]) -> str:
    """Returns the messages as quoted text for the summary; of a long one its beginning and its end,
    as QUOTED_ENDS says.
    """
    head, tail = QUOTED_ENDS
    quotes: list[str] = []
    for entry in entries:
        text = entry.message.text
        left_out = len(text) - head - tail
        if left_out > 0:
            text = f"{text[:head]}\n[… {left_out:,} characters are left out …]\n{text[-tail:]}"
        quoted_lines = "\n".join(f"> {line}" for line in text.splitlines())
        quotes.append(f"Message {entry.number}:\n{quoted_lines}")
    return "\n\n".join(quotes)


def parse_files(summary: str) -> list[str]:
    """Returns the lines of the last section about files in a summary; empty if it has none."""
    _, heading, text_after = summary.rpartition(FILES_HEADING + "\n")
    if not heading:
        return []
    section, _, _ = text_after.partition("\n\n")
    return [line for line in section.splitlines() if line.startswith("- ")]


def format_files(lines: Iterable[str]) -> str:
    """Returns a section of a summary about files, with the last _MAX_LISTED of these lines in their
    order; of equal lines only the last. Empty without lines.
    """
    newest_first = reversed(list(lines))
    different_lines = list(dict.fromkeys(newest_first))
    if not different_lines:
        return ""
    listed = reversed(different_lines[:_MAX_LISTED])
    return "\n".join([FILES_HEADING, *listed])


def format_pictures(plan: CompactionPlan) -> str:
    """Returns a section of a summary that names the images which are not sent any more after the
    compaction, the first _MAX_LISTED of them; empty if there are none.
    """
    lines: list[str] = []
    for entry in plan.covered:
        if entry.number not in plan.kept:
            images = [*entry.message.parts_of(Image)]
            for reply in entry.message.parts_of(ToolReply):
                images += reply.images
            lines += [
                f"- {image.name or image.media_type}, message {entry.number}" for image in images
            ]
    if not lines:
        return ""
    shown = lines[:_MAX_LISTED]
    if len(lines) > _MAX_LISTED:
        shown.append(f"- and {len(lines) - _MAX_LISTED} more")
    return "\n".join(["## Pictures that are not sent any more", *shown])


def scale_tokens(
    tokens_before: int, sent: Sequence[Message], will_be_sent: Sequence[Message], constant: int
) -> int:
    """Returns the approximate tokens of the next request after a change: `tokens_before`, the
    figure before it, scaled by the ratio of the estimates.

    Args:
        sent: the messages that were sent before.
        will_be_sent: those that are sent after the change.
        constant: the estimate of what every request has besides them: the system prompt and tools.
    """
    estimate_now = constant + estimate_messages(sent)
    return tokens_before * (constant + estimate_messages(will_be_sent)) // max(1, estimate_now)


def _find_tail_start(
    sent: Sequence[MessageRecord], max_tail_tokens: int, max_last_round_tokens: int
) -> int:
    """Returns the position in `sent` where the tail begins, which stays unchanged.

    The session can be cut at the positions of `_cut_points`; from one to the next is a round. The
    tail has as many whole rounds as fit into `max_tail_tokens`. If none fits, it is the last
    round, if that has at most `max_last_round_tokens`. Otherwise it is what follows the last of
    these positions; it is empty if that is the end. Without such a position all of `sent` is the
    tail.
    """
    starts = list(_cut_points(sent))
    if not starts:
        return 0
    sizes = [estimate_messages([entry.message]) for entry in sent]
    round_starts = [start for start in starts if start < len(sent)]
    # A tail of a few characters counts as 0 tokens, and would fit although nothing may stay (0).
    fitting_starts = [start for start in round_starts if 0 < sum(sizes[start:]) <= max_tail_tokens]
    if fitting_starts:
        return fitting_starts[0]
    if round_starts and sum(sizes[round_starts[-1] :]) <= max_last_round_tokens:
        return round_starts[-1]
    return starts[-1]


def _cut_points(sent: Sequence[MessageRecord]) -> Iterator[int]:
    """Yield the positions in `sent` where the session can be cut, so that no tool call is separated
    from its result. The end is one of them if no call is open there.
    """
    open_calls: set[str] = set()
    for position, entry in enumerate(sent):
        message = entry.message
        if message.role == "assistant":
            yield position  # a call that has no result by now will never get one
            open_calls = set() if message.cut else {call.id for call in message.parts_of(ToolCall)}
        elif message.role == "tool":
            open_calls -= {reply.call_id for reply in message.parts_of(ToolReply)}
        elif not open_calls:
            yield position
    if not open_calls:
        yield len(sent)


def _choose_verbatim(
    covered: Sequence[MessageRecord], pins: Collection[int], max_tokens: int
) -> tuple[tuple[int, ...], tuple[MessageRecord, ...]]:
    """Returns the numbers of the messages to keep word for word, and the messages to quote, each
    oldest first. They have at most `max_tokens` together.

    First come the first message of the user and the pinned ones, then the others of the user,
    newest first. One that does not fit is quoted if its quotation fits.
    """
    user_entries = [entry for entry in covered if is_own_words(entry.message)]
    pinned = [entry for entry in covered if entry.number in pins]
    by_priority = (*user_entries[:1], *pinned, *reversed(user_entries))
    candidates = {entry.number: entry for entry in by_priority}  # each once
    quoted_tokens = int(sum(QUOTED_ENDS) / CHARACTERS_A_TOKEN)
    tokens_left = max_tokens
    kept_numbers: list[int] = []
    quoted: list[MessageRecord] = []
    for entry in candidates.values():
        size = estimate_messages([strip_message(entry.message)])
        if size <= tokens_left:
            kept_numbers.append(entry.number)
            tokens_left -= size
        elif quoted_tokens < size and quoted_tokens <= tokens_left:
            # A quotation is shorter than the message, and fits.
            quoted.append(entry)
            tokens_left -= quoted_tokens
    return tuple(sorted(kept_numbers)), tuple(sorted(quoted, key=lambda entry: entry.number))
