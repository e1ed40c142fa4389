"""Commands on the context window: compact, pin, context."""

from __future__ import annotations

from ouro.commands.front_end import FrontEnd
from ouro.commands.render import block, escape
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.session import Pinnable, WindowReport
from ouro.utils.text import clean, cut

BAR = 24
LISTED = 30
"""The length of the list of messages to pin; older ones need their number."""


async def compact(front_end: FrontEnd, argument: str) -> None:
    await front_end.run(front_end.session.window.compact(argument))


async def pin(front_end: FrontEnd, argument: str) -> None:
    messages = front_end.session.window.pinnable()
    if not messages:
        raise UsageError("There are no messages to pin yet.")
    if argument == "last":
        number = messages[-1].number
    elif argument.isdecimal():
        number = int(argument)
    elif argument:
        raise UsageError(f"`{clean(argument)}` is not a message number.", "Use /pin to choose one, or `/pin last`.")
    else:
        choices = [_choice(message) for message in messages[: -LISTED - 1 : -1]]
        chosen = await front_end.choose("Keep which message word for word?", choices)
        if chosen is None:
            return
        number = int(chosen)
    was_pinned = any(message.pinned for message in messages if message.number == number)
    await front_end.session.window.pin(number, not was_pinned)
    front_end.say(f"Message {number} is {'no longer pinned' if was_pinned else 'pinned: it stays word for word'}.")


async def context(front_end: FrontEnd, _argument: str) -> None:
    report = front_end.session.window.report()
    names = [*(name for name, _ in report.parts), "free"]
    sizes = [*(size for _, size in report.parts), max(0, report.window - report.tokens)]
    width = max(map(len, names))
    lines = []
    for name, size in zip(names, sizes, strict=True):
        share = size / max(1, report.window)
        lines.append(f"{name:<{width}}  {size:>9,}  {share:>4.0%}  {'█' * min(BAR, round(BAR * share))}")
    percent = round(100 * report.tokens / max(1, report.window))
    head = f"**Context**: {report.tokens:,} of {report.window:,} tokens ({percent} %)"
    front_end.show("\n\n".join([head, block("\n".join(lines)), _advice(report)]))


def _advice(report: WindowReport) -> str:
    lines = [f"The largest single thing is {escape(report.largest)}."] if report.largest else []
    if (outlook := report.outlook) is not None:
        done = f"would sum up {outlook.covered} messages, keep {outlook.kept} of them word for word"
        lines.append(f"A compaction now {done}, and leave about {outlook.tokens:,} tokens.")
    else:
        lines.append("There is nothing to compact yet.")
    if report.limit:
        lines.append(f"By itself it comes at {report.limit:,} tokens; `/compact` does it now.")
    else:
        lines.append("Automatic compaction is off (`compaction.auto`); `/compact` does it now.")
    return " ".join(lines)


def _choice(message: Pinnable) -> Choice:
    words = " ".join(clean(message.text).split()) or "(a picture)"
    mark = " · pinned" if message.pinned else ""
    return Choice(str(message.number), cut(words, 80), f"{message.speaker}{mark}")
