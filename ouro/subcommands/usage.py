"""`ouro usage`: tokens and money by model, today, this month and in all."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from msgspec.structs import asdict

from ouro.commands.usage import budget_lines, usage_lines
from ouro.config import load_settings
from ouro.memory.sessions.usage import UsagePeriod, periods_of, today
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.session.budget import SpendingLimit, spending_limits
from ouro.subcommands.output import show, show_json
from ouro.utils.runtime import get_sessions_dir

EXAMPLE = """\
examples:
  ouro usage
  ouro usage --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ouro usage`."""
    parser.epilog = EXAMPLE
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Tell what was used; gives the exit code."""
    periods = asyncio.run(_periods())
    limits = load_settings().limits
    budgets = spending_limits(periods, limits.max_cost_day, limits.max_cost_month)
    if args.json:
        show_json({"day": today(), **{each.name: _data(each) for each in periods}, "budgets": _budgets(budgets)})
        return 0
    for line in (*usage_lines(periods), *budget_lines(budgets)):
        show(line)
    return 0


async def _periods() -> tuple[UsagePeriod, ...]:
    store = YamlFileMemoryStore(get_sessions_dir())
    sessions = [*await store.list_sessions(), *await store.list_deleted()]
    return periods_of(sessions, await store.load_costs(), today())


def _data(period: UsagePeriod) -> dict[str, Any]:
    models = [{"model": each.model, "calls": each.calls, **asdict(each.usage)} for each in period.models]
    return {"models": models, "total": asdict(period.total), "every_price_is_known": period.is_priced}


def _budgets(budgets: tuple[SpendingLimit, ...]) -> list[dict[str, Any]]:
    return [{**asdict(each), "left": each.left} for each in budgets]
