"""Usage: tokens and cost by model for this session, today, this month and all time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import Quote
from ouro.memory.sessions.usage import ModelUse, UsagePeriod, periods_of, today
from ouro.messages import Usage
from ouro.session.budget import SpendingLimit, SpendingReport, spending_limits
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext

_NAMES = {"session": "This session", "today": "Today", "month": "This month", "all": "All sessions"}
_BUDGETS = {"session": "in this session", "today": "today", "month": "this month"}
_HEADS = ("read", "cached", "written", "calls", "cost")
UNKNOWN = "unknown"


async def usage(context: ActionContext) -> Answer:
    """Tokens and cost by model, and what is left of the budgets."""
    if context.session is not None:
        report = await context.session.budget.report()
    else:
        report = await _report_on_disk(context)
    data = {
        "day": today(),
        **{period.name: _period_data(period) for period in report.periods},
        "budgets": [{**asdict(limit), "left": limit.left} for limit in report.limits],
    }
    return Answer(data, [Quote("\n".join([*usage_lines(report.periods), *budget_lines(report.limits)]))])


async def _report_on_disk(context: ShellContext) -> SpendingReport:
    sessions = [*await context.store.list_sessions(), *await context.store.list_deleted()]
    periods = periods_of(sessions, await context.store.load_costs(), today())
    settings = context.folder.settings.limits
    limits = (settings.max_cost_day, settings.max_cost_month)
    return SpendingReport(periods, spending_limits(periods, *limits))


def _period_data(period: UsagePeriod) -> dict[str, Any]:
    models = [{"model": use.model, "calls": use.calls, **asdict(use.usage)} for use in period.models]
    return {"models": models, "total": asdict(period.total), "every_price_is_known": period.is_priced}


def usage_lines(periods: Iterable[UsagePeriod]) -> list[str]:
    """The tables; an unknown price is marked as unknown, never shown as free."""
    shown = list(periods)
    tables = [[(_NAMES[period.name], *_HEADS), *_rows(period)] for period in shown]
    widths = [max(len(row[column]) for table in tables for row in table) for column in range(len(_HEADS) + 1)]
    lines: list[str] = []
    for period, table in zip(shown, tables, strict=True):
        lines += [_line(row, widths) for row in table] if period.models else [f"{_NAMES[period.name]}: nothing"]
        lines.append("")
    return lines


def budget_lines(budgets: Iterable[SpendingLimit]) -> list[str]:
    """The limits, with what is left of each."""
    return [
        f"${limit.spent:.2f} of ${limit.limit:.2f} spent {_BUDGETS[limit.period]}, ${limit.left:.2f} left "
        f"({limit.setting})"
        for limit in budgets
    ]


def _rows(period: UsagePeriod) -> list[tuple[str, ...]]:
    rows = [_row(use) for use in period.models]
    if len(rows) > 1:
        rows.append(_row(ModelUse("together", period.total, sum(use.calls for use in period.models))))
        if not period.is_priced and period.total.cost is not None:
            rows[-1] = (*rows[-1][:-1], f"{rows[-1][-1]} + {UNKNOWN}")
    return rows


def _row(use: ModelUse) -> tuple[str, ...]:
    used = use.usage
    numbers = (used.input, used.cached, used.output, use.calls)
    return f"  {clean(use.model) or '(no name)'}", *(f"{number:,}" for number in numbers), cost_text(used)


def cost_text(used: Usage) -> str:
    """The cost, or that it is unknown."""
    return UNKNOWN if used.cost is None else f"${used.cost:.4f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = cells
    numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
    return "  ".join([first.ljust(widths[0]), *numbers])
