"""What is told of a session that was taken up again: the same words on every front end."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ouro.frontends.session_lines import age, size, tokens
from ouro.session.opening import Part
from ouro.utils.text import clean, plural

if TYPE_CHECKING:
    from ouro.session import RepositoryNews, ResumeCard


def card_lines(card: ResumeCard, now: datetime) -> list[tuple[str, str]]:
    """What there is to know before the first call: what it is about, and the words; the price first."""
    rows = [
        ("last used", " · ".join([_ago(card, now), f"{card.info.messages:,} messages", size(card.info.size)])),
        ("about", " ".join(clean(card.info.summary).split())),
        ("first call", _first_call(card)),
        ("repository", _repository(card.repository)),
        ("memory", _memory(card)),
        ("folder", f"it was in {clean(card.info.project)}, and goes on in {clean(card.folder)}" if card.folder else ""),
        ("open", _open(card)),
    ]
    return [(name, words) for name, words in rows if words]


def card_line(card: ResumeCard, now: datetime) -> str:
    """The same in one line, where there is little to tell."""
    parts = [_ago(card, now), _first_call(card), _repository(card.repository), _memory(card)]
    parts += [f"in {clean(card.folder)} now" if card.folder else "", _open(card)]
    return f"Resumed: {' · '.join(filter(None, parts))}"


def card_choices(card: ResumeCard) -> list[tuple[Part, str]]:
    """How one can go on, in a few words each; the first is what happens without a choice."""
    choices: list[tuple[Part, str]] = [("full", f"full: {tokens(card.tokens)} tokens")]
    if card.tail is not None:
        turns = "last turn" if card.tail.turns == 1 else f"last {card.tail.turns} turns"
        choices.append(("tail", f"tail: {turns}, {tokens(card.tail.tokens)}"))
        price = "one call" if card.price is None else f"made for {_dollars(card.price)}"
        choices.append(("summary", f"summary: {price}"))
    return choices


def _ago(card: ResumeCard, now: datetime) -> str:
    ago = age(card.info.updated_at, now)
    return ago if "-" in ago or ago == "now" else f"{ago} ago"


def _first_call(card: ResumeCard) -> str:
    size_of_it = f"{tokens(card.tokens)} tokens"
    if card.price is None or card.price_cold is None:
        return f"{size_of_it}, the provider's cache is {card.cache}"
    if "warm" in card.cache:
        return f"{size_of_it}, {_dollars(card.price)} (cache {card.cache}; else {_dollars(card.price_cold)})"
    return f"{size_of_it}, {_dollars(card.price)} (cache {card.cache})"


def _dollars(price: float) -> str:
    return f"${price:.2f}" if price >= 0.005 else "under 1 ¢"


def _repository(news: RepositoryNews | None) -> str:
    if news is None:
        return ""
    parts = []
    if news.branch_then and news.branch_then != news.branch:
        parts.append(f"on {clean(news.branch)} now, on {clean(news.branch_then)} then")
    if news.changed:
        parts.append(f"{plural(news.changed, 'file')} not committed")
    if news.commits:
        subjects = "; ".join(clean(each) for each in news.subjects)
        parts.append(f"{plural(news.commits, 'commit')} since: {subjects}")
    return ", ".join(parts)


def _memory(card: ResumeCard) -> str:
    if not card.memory:
        return ""
    of = ", ".join(f"{scope} {count}" for scope, count in card.memory.items())
    return f"{plural(sum(card.memory.values()), 'change')} of memory since ({of})"


def _open(card: ResumeCard) -> str:
    parts = ["it ended before the answer was there"] if card.in_the_middle else []
    if card.todos:
        parts.append(f"{plural(len(card.todos), 'todo')} open: {' '.join(clean(card.todos[0].text).split())[:60]}")
    return ", ".join(parts)
