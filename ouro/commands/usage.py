"""Usage: tokens and cost by model for periods, or by day, project, model or purpose."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import Quote
from ouro.memory.backend import DailyUsage
from ouro.memory.sessions.usage import ModelUse, UsagePeriod, sum_by, sum_periods, today
from ouro.messages import Usage
from ouro.session.budget import SpendingReport, spending_limits
from ouro.utils.text import clean, dollars, plural

if TYPE_CHECKING:
    from ouro.memory.backend import SessionInfo

_PERIOD_TITLES = {
    "session": "This session",
    "today": "Today",
    "month": "This month",
    "all": "All sessions",
}
_BUDGET_PERIODS = {"session": "in this session", "today": "today", "month": "this month"}
_COLUMN_HEADS = ("read", "cached", "written", "calls", "cost")
_UNKNOWN = "unknown"
_OUTSIDE_OF_SESSIONS = "(outside of sessions)"
_TURNS = "turns"
MAX_DAYS = 30
"""Days that are listed, the newest first."""
MAX_NAME = 32
MAX_BAR = 10
"""Columns of the longest bar: with the name of a model the row fits into 80 columns."""
MARGIN = 6
"""Columns of the screen beside a table: its indent and the scroll bar."""

By = Literal["", "day", "project", "model", "purpose"]


class UsageRow(NamedTuple):
    """A row of a table of usage. The cost is a text: a sum may lack the price of some models."""

    name: str
    usage: Usage
    calls: int
    cost: str

    @property
    def has_cost(self) -> bool:
        """Whether at least a part of the cost is known."""
        return self.usage.cost is not None

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts of the columns, in the order of the heads."""
        usage = self.usage
        numbers = (
            f"{number:,}" for number in (usage.input, usage.cached, usage.output, self.calls)
        )
        return f"  {self.name}", *numbers, self.cost


async def usage(context: ActionContext, by: By = "") -> Answer:
    """Show tokens and cost by model for periods; or, if `by` is not empty, the sums of all sessions for
    each day, project, model or purpose, with bars.
    """
    if by:
        return await _usage_by(context, by)
    return await _usage_of_periods(context)


async def _usage_by(context: ActionContext, by: By) -> Answer:
    """Show the usage of all sessions, also of those in the trash, and of calls outside of sessions,
    summed by `by`. The most expensive row is first; by day, the newest.
    """
    store = context.session.session_catalog.store if context.session is not None else context.store
    sessions = [*await store.list_sessions(), *await store.list_deleted()]
    named_usages = list[tuple[str, DailyUsage]]()
    for info in sessions:
        named_usages += [(_row_name(by, info.project, usage), usage) for usage in info.spent]
    costs = await store.load_costs()
    named_usages += [(_row_name(by, _OUTSIDE_OF_SESSIONS, usage), usage) for usage in costs]
    uses = sum_by(named_usages)  # the name of a row is in the field `model`
    if by == "day":
        uses = tuple(sorted(uses, key=lambda use: use.model, reverse=True)[:MAX_DAYS])
    data = [{by: use.model, "calls": use.calls, **asdict(use.usage)} for use in uses]
    text = "\n".join(_bar_lines(by, uses)) if uses else "No usage yet."
    return Answer({"by": by, "rows": data}, [Quote(text)])


def _row_name(by: By, project: str, daily_usage: DailyUsage) -> str:
    """The name of the row to which a usage is added: its day, project, model or purpose."""
    match by:
        case "day":
            return daily_usage.day
        case "project":
            return project or _UNKNOWN
        case "purpose":
            return daily_usage.purpose or _TURNS
        case _:
            return daily_usage.model


def _bar_lines(by: By, uses: Sequence[ModelUse]) -> list[str]:
    """A table with a bar for each row, and a line that says what the bars measure: the cost, or, if a
    price is not known, the tokens read. The longest bar has the largest value.
    """
    is_priced = all(use.usage.cost is not None for use in uses)
    weights = [_weight(use, is_priced=is_priced) for use in uses]
    max_weight = max(weights) or 1
    bars = [_bar(weight / max_weight) for weight in weights]
    measure = "cost" if is_priced else "tokens read, because not every price is known"
    return [*_bar_table(by, [*map(_row, uses)], bars), "", *_wrap_text(f"Bars: {measure}")]


def _bar(share: float) -> str:
    """A bar for a share from 0 to 1 of the longest one; empty for 0, else at least one column."""
    return "█" * max(1, round(MAX_BAR * share)) if share else ""


def _bar_table(by: By, rows: Sequence[UsageRow], bars: Sequence[str]) -> list[str]:
    """The lines of a table with a bar after each row. If they are too wide for the terminal, each row
    is several lines, with the bar before its cost.
    """
    heads = (by.capitalize(), *_COLUMN_HEADS)
    columns = zip(heads, *(row.cells for row in rows), strict=True)
    widths = [max(map(len, column)) for column in columns]
    widths[0] = min(widths[0], MAX_NAME)
    lines = [_table_line(heads, widths)]
    for row, bar in zip(rows, bars, strict=True):
        lines.append(f"{_table_line(row.cells, widths)}  {bar}".rstrip())
    if _fits(lines):
        return lines
    lines = [heads[0]]
    for row, bar in zip(rows, bars, strict=True):
        lines += _row_as_lines(row, bar)
    return lines


def _line_width() -> float:
    """How many columns a line of a table may take: infinitely many if the output is no terminal."""
    try:
        return max(20, os.get_terminal_size(1).columns - MARGIN)
    except OSError:
        return math.inf


def _fits(lines: Sequence[str]) -> bool:
    return max(map(len, lines)) <= _line_width()


def _wrap_text(text: str, indent: str = "") -> list[str]:
    """The text as lines that fit the terminal, each with the indent. It is not broken at a no-break
    space, which becomes a space.
    """
    width = _line_width()
    if width == math.inf:
        return [indent + text]
    lines = textwrap.wrap(
        text, int(width), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [line.replace("\u00a0", " ") for line in lines]


def _row_as_lines(row: UsageRow, bar: str = "") -> list[str]:
    """A row for a narrow terminal: its name, and its numbers indented below, after the bar of the
    chart if there is one.
    """
    usage = row.usage
    # `unknown` alone would not say what is unknown.
    cost = row.cost if row.has_cost else f"cost\u00a0{row.cost}"
    numbers = [
        plural(row.calls, "call"),
        f"{usage.input:,} read",
        f"{usage.cached:,} cached",
        f"{usage.output:,} written",
    ]
    unbroken_numbers = [text.replace(" ", "\u00a0") for text in numbers]
    numbers_text = " · ".join([f"{bar} {cost}".lstrip(), *unbroken_numbers])
    width = min(MAX_NAME, _line_width())
    return [_cut_name(row.cells[0], int(width)), *_wrap_text(numbers_text, "    ")]


def _weight(use: ModelUse, *, is_priced: bool) -> float:
    """What the bar of a row measures: its cost, or, unless `is_priced`, the tokens read."""
    if is_priced:
        return use.usage.cost or 0.0
    return use.usage.input


def _table_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A row as one line: the name to the left, the numbers to the right of their columns."""
    name = _cut_name(cells[0], widths[0])
    numbers = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([name.ljust(widths[0]), *numbers])


def _cut_name(name: str, width: int) -> str:
    """The name, with an ellipsis instead of its beginning if it is longer than `width`. The result has
    the indent of a name, two spaces.
    """
    if len(name) <= width:
        return name
    mark = "  …"
    kept_length = width - len(mark)
    return mark + name[-kept_length:]


def _period_data(period: UsagePeriod) -> dict[str, Any]:
    """A period as `--json` prints it."""
    uses = [{"model": use.model, "calls": use.calls, **asdict(use.usage)} for use in period.models]
    return {
        "models": uses,
        "total": asdict(period.total),
        "every_price_is_known": period.is_priced,
    }


async def _usage_of_periods(context: ActionContext) -> Answer:
    """Show a table for each period, then the shares of subagents and background calls in the session,
    then the budgets.
    """
    report, agents = await _report(context)
    data: dict[str, Any] = {
        "day": today(),
        **{period.name: _period_data(period) for period in report.periods},
        "budgets": [{**asdict(limit), "left": limit.left} for limit in report.limits],
    }
    daily_usages = chain.from_iterable(info.spent for info in agents)
    agents_usage = sum((daily_usage.usage for daily_usage in daily_usages), Usage())
    shares: list[str] = []
    if agents:
        data["subagents"] = {"count": len(agents), **asdict(agents_usage)}
        shares.append(_share_text(plural(len(agents), "subagent"), agents_usage))
    if context.session is not None:
        data["beside"] = [
            {"purpose": purpose, "calls": calls, **asdict(usage)}
            for purpose, calls, usage in report.side_calls
        ]
    shares += [
        _share_text(f"{plural(calls, 'call')} for {purpose}", usage)
        for purpose, calls, usage in report.side_calls
        if purpose != "subagent"  # these have a share already
    ]
    budgets = [
        f"{dollars(limit.spent)} of {dollars(limit.limit)} spent {_BUDGET_PERIODS[limit.period]}, "
        f"{dollars(limit.left)} left ({limit.setting})"
        for limit in report.limits
    ]
    return Answer(data, [Quote("\n".join([*_tables(report.periods), *shares, *budgets]))])


async def _report(context: ActionContext) -> tuple[SpendingReport, Sequence[SessionInfo]]:
    """The report of what was spent, and the transcripts of the subagents of the session. Outside of a
    session the report is of all sessions, and there are no subagents.
    """
    if context.session is not None:
        agents = await context.session.background.subagents.list_transcripts()
        return await context.session.budget.report(), tuple(agents.values())
    sessions = [*await context.store.list_sessions(), *await context.store.list_deleted()]
    periods = sum_periods(sessions, await context.store.load_costs(), today())
    limits = spending_limits(periods, context.folder.settings.limits)
    return SpendingReport(periods, limits), ()


def _share_text(users: str, usage: Usage) -> str:
    """A line about the share of a session that its subagents, or calls of one purpose, used."""
    cost = dollars(usage.cost, f"cost {_UNKNOWN}")
    return (
        f"Of this session: {users}, {usage.input:,} tokens read, {usage.output:,} written, {cost}"
    )


def _tables(periods: Sequence[UsagePeriod]) -> list[str]:
    """The lines of a table for each period, with an empty line after each; an unknown price is marked
    as unknown, never shown as free.
    """
    rows_by_title = {_PERIOD_TITLES[period.name]: _rows(period) for period in periods}
    heads = [(title, *_COLUMN_HEADS) for title in rows_by_title]
    cells = [row.cells for row in chain.from_iterable(rows_by_title.values())]
    # All tables have the same columns, so that the numbers stand below each other.
    widths = [max(map(len, column)) for column in zip(*heads, *cells, strict=True)]
    lines: list[str] = []
    for title, rows in rows_by_title.items():
        lines += [*_table(title, rows, widths), ""]
    return lines


def _table(title: str, rows: Sequence[UsageRow], widths: Sequence[int]) -> list[str]:
    """The lines of the table of one period. If they are too wide for the terminal, each row is several
    lines.
    """
    if not rows:
        return [f"{title}: nothing"]
    lines = [_table_line((title, *_COLUMN_HEADS), widths)]
    lines += [_table_line(row.cells, widths) for row in rows]
    if _fits(lines):
        return lines
    return [title, *chain.from_iterable(map(_row_as_lines, rows))]


def _rows(period: UsagePeriod) -> list[UsageRow]:
    """A row for each model, and, if there are several, a row with their sum. If only some prices are
    known, the cost in that row is the sum of the known costs, followed by `+ unknown`.
    """
    rows = [_row(use) for use in period.models]
    if len(rows) > 1:
        calls = sum(use.calls for use in period.models)
        total = _row(ModelUse("together", period.total, calls))
        if total.has_cost and not period.is_priced:
            total = total._replace(cost=f"{total.cost} + {_UNKNOWN}")
        rows.append(total)
    return rows


def _row(use: ModelUse) -> UsageRow:
    """The row of a use, with its cost as text: `unknown` without a price."""
    name = clean(use.model) or "(no name)"
    return UsageRow(name, use.usage, use.calls, cost=dollars(use.usage.cost, _UNKNOWN))
