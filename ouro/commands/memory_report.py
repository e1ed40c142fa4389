"""`memory report`: whether memory helps."""

from __future__ import annotations

from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import CodeSpan, line, table
from ouro.memory import long_term
from ouro.utils.ouro_paths import get_recall_log_path
from ouro.utils.text import one_line, plural

_PROBLEMS = ("junk", "never used", "never sent", "stale", "duplicate", "contradicted")
_COLUMNS = ("entry", "weeks", "sent", "used", "obeyed", "broken", "again", "text")
_LEGEND = "In parentheses: this week. Again: changed or said again. ?: not judged by effects."


async def report(context: ActionContext) -> Answer:
    """Show how each entry was used, and which share of the entries has which problem."""
    counts = long_term.RecallLog(get_recall_log_path()).counts()
    usefulness = await context.memory(
        lambda memory: long_term.report_usefulness(memory.editor, counts)
    )
    if not usefulness.rows:
        return Answer({"rows": [], "shares": {}}, [line("Nothing is remembered yet.")])
    shares = {problem: usefulness.share(problem) for problem in _PROBLEMS}
    share_notes = [f"{100 * share:.0f} % {problem}" for problem, share in shares.items()]
    total = line(f"{plural(len(usefulness.rows), 'entry', 'entries')}: {', '.join(share_notes)}.")
    rows = [_COLUMNS, *map(_cells, usefulness.rows)]
    value = {"rows": [_row_data(row) for row in usefulness.rows], "shares": shares}
    return Answer(value, [*table(rows), total, line(_LEGEND)])


def _cells(row: long_term.ReportRow) -> tuple[CodeSpan | str, ...]:
    """The table row of an entry; after each count is that of this week in parentheses."""
    week = row.by_week.get(long_term.this_week(), long_term.WeekUse())
    return (
        CodeSpan(row.id[:24]),
        f"{row.weeks:.0f}",
        _count_text(row.sent, week.sent),
        _count_text(row.used, week.used),
        _count_text(row.obeyed, week.obeyed),
        _count_text(row.broken, week.broken),
        str(row.corrected),
        " · ".join((one_line(row.text, 60), *row.problems)),
    )


def _count_text(total: int | None, this_week: float) -> str:
    """A count with that of this week in parentheses, if it is not 0; `?` for one that is not known."""
    if total is None:
        return "?"
    return f"{total} ({this_week:.0f})" if this_week else str(total)


def _row_data(row: long_term.ReportRow) -> dict[str, object]:
    """The row of an entry as `--json` prints it."""
    by_week = {week: asdict(use) for week, use in row.by_week.items()}
    return {**asdict(row), "by_week": by_week}
