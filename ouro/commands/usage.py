"""Usage: tokens and cost by model for periods, or by day, project, model or purpose."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

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

_NAMES = {"session": "This session", "today": "Today", "month": "This month", "all": "All sessions"}
_BUDGETS = {"session": "in this session", "today": "today", "month": "this month"}
_HEADS = ("read", "cached", "written", "calls", "cost")
_UNKNOWN = "unknown"
_OUTSIDE = "(outside of sessions)"
_TURNS = "turns"
MAX_DAYS = 30
"""Days that are listed, the newest first."""
MAX_NAME = 32
MAX_BAR = 10
"""Columns of the longest bar: with the name of a model the row fits into 80 columns."""
BESIDE = 6
"""Columns of the screen beside a table: its indent and the scroll bar."""


By = Literal["", "day", "project", "model", "purpose"]


async def usage(context: ActionContext, by: By = "") -> Answer:
    """Tokens and cost: of periods, or by day, project, model or purpose with bars."""
    return await (_usage_by(context, by) if by else _usage_of_periods(context))


async def _usage_by(context: ActionContext, by: By) -> Answer:
    """The usage of all sessions, with the most expensive first, and days in their order."""
    store = context.session.session_catalog.store if context.session is not None else context.store
    sessions = [*await store.list_sessions(), *await store.list_deleted()]
    rows = list[tuple[str, DailyUsage]]()
    for info in sessions:
        rows += [(_row_name(by, info.project, item), item) for item in info.spent]
    rows += [(_row_name(by, _OUTSIDE, item), item) for item in await store.load_costs()]
    found = sum_by(rows)
    if by == "day":
        found = tuple(sorted(found, key=lambda use: use.model, reverse=True)[:MAX_DAYS])
    data = [{by: use.model, "calls": use.calls, **asdict(use.usage)} for use in found]
    shown = "\n".join(_bars(by, found)) if found else "No usage yet."
    return Answer({"by": by, "rows": data}, [Quote(shown)])


def _row_name(by: By, project: str, item: DailyUsage) -> str:
    if by == "project":
        return project or _UNKNOWN
    if by == "purpose":
        return item.purpose or _TURNS
    return item.day if by == "day" else item.model


def _bars(by: By, found: Sequence[ModelUse]) -> list[str]:
    """A table with a bar for each row: its share of the cost, or of the tokens if a price is not
    known.
    """
    is_priced = all(use.usage.cost is not None for use in found)
    weights = [_weight(use, is_priced=is_priced) for use in found]
    most = max(weights) or 1
    bars = [_bar(weight / most) for weight in weights]
    measure = "cost" if is_priced else "tokens read, because not every price is known"
    return [*_bar_table(by, [_row(use) for use in found], bars), "", *_wrapped(f"Bars: {measure}")]


def _bar(share: float) -> str:
    return "█" * max(1, round(MAX_BAR * share)) if share else ""


def _bar_table(by: By, cells: Sequence[Sequence[str]], bars: Sequence[str]) -> list[str]:
    heads = (by.capitalize(), *_HEADS)
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    widths[0] = min(widths[0], MAX_NAME)
    lines = [_table_line(heads, widths)]
    for row, bar in zip(cells, bars, strict=True):
        lines.append(f"{_table_line(row, widths)}  {bar}".rstrip())
    if _fits(lines):
        return lines
    folded = [_folded(row, bar) for row, bar in zip(cells, bars, strict=True)]
    return [heads[0], *chain.from_iterable(folded)]


def _line_width() -> float:
    """The columns for a line of a table; without a limit if the output is no terminal."""
    try:
        return max(20, os.get_terminal_size(1).columns - BESIDE)
    except OSError:
        return math.inf


def _fits(lines: Sequence[str]) -> bool:
    return max(map(len, lines)) <= _line_width()


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Lines that fit; a no-break space stays a space."""
    width = _line_width()
    if width == math.inf:
        return [indent + text]
    found = textwrap.wrap(
        text, int(width), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [line.replace("\u00a0", " ") for line in found]


def _folded(row: Sequence[str], bar: str = "") -> list[str]:
    """A row as lines, for a narrow terminal."""
    name, read, cached, written, calls, cost = row
    price = f"cost\u00a0{cost}" if cost == _UNKNOWN else cost
    made = f"{calls}\u00a0{'call' if calls == '1' else 'calls'}"
    words = f"{read}\u00a0read", f"{cached}\u00a0cached", f"{written}\u00a0written"
    counts = " · ".join([f"{bar} {price}".lstrip(), made, *words])
    width = min(MAX_NAME, _line_width())
    return [_cut_name(name, int(width)), *_wrapped(counts, "    ")]


def _weight(use: ModelUse, *, is_priced: bool) -> float:
    return (use.usage.cost or 0.0) if is_priced else use.usage.input


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    name = _cut_name(row[0], widths[0])
    numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join([name.ljust(widths[0]), *numbers])


def _cut_name(name: str, width: int) -> str:
    return name if len(name) <= width else f"  …{name[3 - width :]}"


def _period_data(period: UsagePeriod) -> dict[str, Any]:
    uses = [{"model": use.model, "calls": use.calls, **asdict(use.usage)} for use in period.models]
    return {
        "models": uses,
        "total": asdict(period.total),
        "every_price_is_known": period.is_priced,
    }


async def _usage_of_periods(context: ActionContext) -> Answer:
    report, agents = await _report(context)
    data: dict[str, Any] = {
        "day": today(),
        **{period.name: _period_data(period) for period in report.periods},
        "budgets": [{**asdict(limit), "left": limit.left} for limit in report.limits],
    }
    spent = chain.from_iterable(info.spent for info in agents)
    used_by_agents = sum((day.usage for day in spent), Usage())
    shares: list[str] = []
    if agents:
        data["subagents"] = {"count": len(agents), **asdict(used_by_agents)}
        shares.append(_share(plural(len(agents), "subagent"), used_by_agents))
    if context.session is not None:
        data["beside"] = [
            {"purpose": purpose, "calls": calls, **asdict(used)}
            for purpose, calls, used in report.side_calls
        ]
    shares += [
        _share(f"{plural(calls, 'call')} for {purpose}", used)
        for purpose, calls, used in report.side_calls
        if purpose != "subagent"
    ]
    budgets = [
        f"{dollars(limit.spent)} of {dollars(limit.limit)} spent {_BUDGETS[limit.period]}, "
        f"{dollars(limit.left)} left ({limit.setting})"
        for limit in report.limits
    ]
    return Answer(data, [Quote("\n".join([*_tables(report.periods), *shares, *budgets]))])


async def _report(context: ActionContext) -> tuple[SpendingReport, Sequence[SessionInfo]]:
    """What was spent, and the subagents of the session, if there is one."""
    if context.session is not None:
        agents = await context.session.background.subagents.list_transcripts()
        return await context.session.budget.report(), tuple(agents.values())
    sessions = [*await context.store.list_sessions(), *await context.store.list_deleted()]
    periods = sum_periods(sessions, await context.store.load_costs(), today())
    limits = spending_limits(periods, context.folder.settings.limits)
    return SpendingReport(periods, limits), ()


def _share(what: str, used: Usage) -> str:
    cost = dollars(used.cost, f"cost {_UNKNOWN}")
    return f"Of this session: {what}, {used.input:,} tokens read, {used.output:,} written, {cost}"


def _tables(periods: Sequence[UsagePeriod]) -> list[str]:
    """A table for each period; an unknown price is marked as unknown, never shown as free."""
    tables = [[(_NAMES[period.name], *_HEADS), *_rows(period)] for period in periods]
    columns = range(1 + len(_HEADS))
    first, *widths = [
        max(len(row[column]) for rows in tables for row in rows) for column in columns
    ]
    lines: list[str] = []
    for period, (heads, *rows) in zip(periods, tables, strict=True):
        found = [_table_line(row, [first, *widths]) for row in (heads, *rows)]
        if not period.models:
            found = [f"{_NAMES[period.name]}: nothing"]
        elif not _fits(found):
            found = [heads[0], *chain.from_iterable(map(_folded, rows))]
        lines += [*found, ""]
    return lines


def _rows(period: UsagePeriod) -> list[tuple[str, ...]]:
    rows = [_row(use) for use in period.models]
    if len(rows) > 1:
        *cells, cost = _row(
            ModelUse("together", period.total, sum(use.calls for use in period.models))
        )
        is_partly_known = not period.is_priced and period.total.cost is not None
        rows.append((*cells, f"{cost} + {_UNKNOWN}" if is_partly_known else cost))
    return rows


def _row(use: ModelUse) -> tuple[str, ...]:
    used = use.usage
    cost = dollars(used.cost, _UNKNOWN)
    numbers = (f"{number:,}" for number in (used.input, used.cached, used.output, use.calls))
    return f"  {clean(use.model) or '(no name)'}", *numbers, cost
