"""Commands on the context window: compact, pin, context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from ouro.commands.action import Answer, parse_indexes
from ouro.commands.front_end import review_draft
from ouro.commands.render import Markdown, Quote, View, escape, line
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.session import ContextItem
from ouro.utils.text import clean, code_block, one_line, plural, whole_number

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.session.context_window import ContextWindow, WindowReport

ItemVerb = Literal["drop", "restore", "pin"]
"""What the user can do with items of the context."""
BAR_WIDTH = 24
MAX_LISTED = 30
"""The maximum number of messages to pin, and of items, in a list; others can be named by number."""


async def compact(context: SessionContext, probe: bool, keep: str) -> None:
    """Replace older messages by a summary, which the user can edit or refuse.

    Args:
        probe: ask a model what the summary lost.
        keep: what the summary must contain, in words of the user; empty for nothing in particular.
    """
    front_end = context.front_end

    async def review(summary: str) -> str:
        """Let the user edit the summary; returns it, or an empty text if they refuse it. It is
        returned unchanged if no user can be asked.
        """
        if not context.can_ask:
            return summary
        question = "Use this summary instead of the older messages?"
        choices = [Choice("use", "Use it")]
        edited, chosen = await review_draft(
            front_end,
            question,
            choices,
            draft=summary,
            as_markdown=lambda text: f"**Summary**\n\n{text}",
        )
        return edited if chosen else ""

    await front_end.run(context.session.window.compact(keep, review, probe=probe))


async def pin(context: SessionContext, message: str) -> Answer | None:
    """Keep a message word for word through compactions; if it is pinned, no longer. None if the user
    cancels.

    Args:
        message: its number, `last`, or empty to let the user choose.
    """
    window = context.session.window
    messages = window.pinnable()
    if not messages:
        raise UsageError("There are no messages to pin yet.")
    if message == "last":
        number = messages[-1].number
    elif (written_number := whole_number(message)) is not None:
        number = written_number
    elif message:
        raise UsageError(
            f"`{one_line(clean(message), 40)}` is not a message number.",
            "Use /pin to choose one, or `/pin last`.",
        )
    else:
        chosen = await _choose_message(context, messages)
        if chosen is None:
            return None
        number = chosen
    was_pinned = any(item.is_pinned for item in messages if item.number == number)
    await window.pin(number, not was_pinned)
    state = "no longer pinned" if was_pinned else "pinned: it stays word for word"
    return Answer(number, [line(f"Message {number} is {state}.")])


async def _choose_message(context: SessionContext, messages: Sequence[ContextItem]) -> int | None:
    """Let the user choose one of the last messages, newest first; returns its number, None if they
    cancel.
    """
    choices = []
    for item in reversed(messages[-MAX_LISTED:]):
        kind = f"{item.kind} · pinned" if item.is_pinned else item.kind
        choices.append(Choice(str(item.number), one_line(item.text, 80), kind))
    chosen = await context.choose("Keep which message word for word?", choices)
    return None if chosen is None else int(chosen)


async def show_context(context: SessionContext, what: str) -> Answer | None:
    """Show what fills the context window, with its largest items, and return None; or change some of
    them.

    Args:
        what: empty to show it; else a verb and numbers of the largest items, as `parse_indexes`
            reads them: `drop 1 3-5`.
    """
    verb, _, numbers = what.partition(" ")
    window = context.session.window
    items = largest_items(window)
    if what:
        indexes = parse_indexes(numbers, len(items))
        known_verb = next((known for known in get_args(ItemVerb) if known == verb), None)
        if known_verb is None or not indexes:
            raise UsageError(
                "Usage: /context [drop|restore|pin N]", commands=["context", "context drop 1 3-5"]
            )
        outcome = await change_items(window, [items[index] for index in indexes], known_verb)
        context.front_end.redraw()
        return Answer(outcome, [line(outcome)])
    context.show([Markdown(_report_text(window.report()))])
    problems = context.session.extensions.instructions.problems
    context.show([line(problem, level="warning") for problem in problems])
    if not await context.front_end.browse("context") and items:  # there is no screen for the items
        context.show(_items_view(items))
    return None


def _items_view(items: Sequence[ContextItem]) -> View:
    """A view of the first items with their numbers, and of the commands that change them."""
    head = "**Largest items**: `/context drop 1 3`, `/context restore 1`, `/context pin 2`"
    rows = [f"{number:>3}. {item_line(item)}" for number, item in enumerate(items[:MAX_LISTED], 1)]
    view: View = [Markdown(head), Quote("\n".join(rows))]
    if len(items) > MAX_LISTED:
        view.append(line(f"{len(items) - MAX_LISTED} smaller items are not listed."))
    return view


def largest_items(window: ContextWindow) -> list[ContextItem]:
    """The messages, tool outputs and notes of the request, the largest first. A dropped item keeps its
    place in the list, so that the numbers of the other items stay the same.
    """
    return sorted(window.items(), key=lambda item: -item.tokens)


def item_state(item: ContextItem) -> str:
    """`dropped`, `pinned`, or empty."""
    if item.is_dropped:
        return "dropped"
    return "pinned" if item.is_pinned else ""


def item_line(item: ContextItem) -> str:
    """An item on one line: tokens, state, kind and text."""
    return f"{item.tokens:>9,}  {item_state(item):<7}  {item.kind:<6}  {one_line(item.text, 60)}"


async def change_items(window: ContextWindow, items: Sequence[ContextItem], verb: ItemVerb) -> str:
    """Drop, restore or pin items; returns a message for the user. Pinning a pinned message unpins
    it.
    """
    if verb == "pin":
        unpinned_before = [item for item in items if not item.is_pinned]
        for item in items:
            await window.pin(item.number, not item.is_pinned)
        counts = {"pinned": len(unpinned_before), "unpinned": len(items) - len(unpinned_before)}
        outcomes = [f"{plural(count, 'message')} {word}" for word, count in counts.items() if count]
        return f"{', '.join(outcomes)}."
    restore = verb == "restore"
    if restore and not any(item.is_dropped for item in items):
        return "That is sent already."
    if not restore and all(item.is_dropped for item in items):
        return "That is dropped already."
    before, after = await window.drop([item.id for item in items], restore=restore)
    word = "Restored" if restore else "Dropped"
    return (
        f"{word}: {before:,} → {after:,} tokens. The next request is not in the provider's cache"
        " from there on."
    )


def _report_text(report: WindowReport) -> str:
    """Markdown about the context window: what fills it, with bars, what a compaction now would do, and
    when one starts automatically.
    """
    sizes = [*report.parts, ("free", max(0, report.window - report.tokens))]
    width = max(len(name) for name, _size in sizes)
    lines = []
    for name, size in sizes:
        share = size / max(1, report.window)
        bar = "█" * min(BAR_WIDTH, round(BAR_WIDTH * share))
        lines.append(f"{name:<{width}}  {size:>9,}  {share:>4.0%}  {bar}")
    percent = round(100 * report.tokens / max(1, report.window))
    head = f"**Context**: {report.tokens:,} of {report.window:,} tokens ({percent} %)"
    advice = [f"The largest single thing is {escape(report.largest)}."] if report.largest else []
    outlook = report.outlook
    if outlook is not None:
        effect = (
            f"would summarize {plural(outlook.covered, 'message')}, keep {outlook.kept} of them"
            " word for word"
        )
        advice.append(f"A compaction now {effect}, and leave about {outlook.tokens:,} tokens.")
    else:
        advice.append("There is nothing to compact yet.")
    if report.limit:
        advice.append(
            f"Automatic compaction starts at {report.limit:,} tokens; `/compact` does it now."
        )
    else:
        advice.append("Automatic compaction is off (`compaction.auto`); `/compact` does it now.")
    return "\n\n".join([head, code_block("\n".join(lines)), " ".join(advice)])
