"""Usage: tokens and cost by model for this session, today, this month and all time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import Quote
from ouro.memory.sessions.usage import ModelUse, UsagePeriod, sum_periods, today
from ouro.messages import Usage
from ouro.session.budget import SpendingReport, spending_limits
from ouro.utils.text import clean, dollars, plural

_NAMES = {"session": "This session", "today": "Today", "month": "This month", "all": "All sessions"}
_BUDGETS = {"session": "in this session", "today": "today", "month": "this month"}
_HEADS = ("read", "cached", "written", "calls", "cost")
_UNKNOWN = "unknown"


async def usage(context: ActionContext) -> Answer:
    if context.session is not None:
        report = await context.session.budget.report()
        agents = tuple((await context.session.background.subagents.saved()).values())
    else:
        sessions = [*await context.store.list_sessions(), *await context.store.list_deleted()]
        periods = sum_periods(sessions, await context.store.load_costs(), today())
        settings = context.folder.settings.limits
        report = SpendingReport(periods, spending_limits(periods, settings))
        agents = ()
    data: dict[str, Any] = {
        "day": today(),
        **{
            period.name: {
                "models": [
                    {"model": use.model, "calls": use.calls, **asdict(use.usage)}
                    for use in period.models
                ],
                "total": asdict(period.total),
                "every_price_is_known": period.is_priced,
            }
            for period in report.periods
        },
        "budgets": [{**asdict(limit), "left": limit.left} for limit in report.limits],
    }
    used_by_agents = sum((day.usage for info in agents for day in info.spent), Usage())
    if agents:
        data["subagents"] = {"count": len(agents), **asdict(used_by_agents)}
    budgets = [
        f"{dollars(limit.spent)} of {dollars(limit.limit)} spent {_BUDGETS[limit.period]}, "
        f"{dollars(limit.left)} left ({limit.setting})"
        for limit in report.limits
    ]
    if context.session is not None:
        data["beside"] = [
            {"purpose": purpose, "calls": calls, **asdict(used)}
            for purpose, calls, used in report.side_calls
        ]
    shares = [_share(plural(len(agents), "subagent"), used_by_agents)] if agents else []
    shares += [
        _share(f"{plural(calls, 'call')} for {purpose}", used)
        for purpose, calls, used in report.side_calls
        if purpose != "subagent"
    ]
    return Answer(data, [Quote("\n".join([*_tables(report.periods), *shares, *budgets]))])


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
    for period, rows in zip(periods, tables, strict=True):
        for name, *numbers in rows if period.models else ():
            cells = (number.rjust(width) for number, width in zip(numbers, widths, strict=True))
            lines.append("  ".join([name.ljust(first), *cells]))
        if not period.models:
            lines.append(f"{_NAMES[period.name]}: nothing")
        lines.append("")
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
