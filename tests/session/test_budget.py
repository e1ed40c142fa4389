import multiprocessing
from pathlib import Path

import pytest
from fakes.waiting import wait

from ouro.errors import LimitReached
from ouro.llm import ModelSpec, Prices
from ouro.memory.backend import CostRecord, MessageRecord, SessionHeader, timestamp
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.sessions.usage import ModelUse, UsagePeriod
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Usage, user
from ouro.session.budget import Budget, SpendingLimit
from ouro.settings import LimitSettings

FREE = Prices(0, 0)
OLD = "2026-01-05T12:00:00.000Z"


@pytest.fixture
def store(home) -> YamlFileMemoryStore:
    return YamlFileMemoryStore(home / ".ouro" / "sessions")


def spend(
    store, number: int, cost: float | None, at: str = "", model: str = "a/one", purpose: str = ""
) -> str:
    """A stored session with one model call."""
    at = at or timestamp()
    session_id = f"0000000{number}-7e1b-4d0a-9a55-3b8f0c1d2e4f"
    used = Usage(100, 40, 0, 10, cost)
    answer = Message("assistant", (Text("x"),), None if purpose else used, model)
    records = [MessageRecord(1, at, user("x")), MessageRecord(2, at, answer)]
    if purpose:
        records.append(CostRecord(purpose, at, model, used))
    wait(store.import_session(SessionHeader(session_id, "/p", model, at), records))
    return session_id


def money(store, prices: Prices | None = FREE, **limits) -> Budget:
    memory = MemoryManager.start(store, project="/p", model="a/one")
    spec = ModelSpec("a/one", prices=prices)
    return Budget(memory, SessionCatalog(store, "/p"), LimitSettings(**limits), lambda: spec)


async def test_spending_is_reported_by_period_and_model_with_side_calls(store):
    spend(store, 1, 0.5)
    spend(store, 2, 0.25, purpose="title", model="a/small")
    spend(store, 3, 2.0, at=OLD)
    report = await money(store).report()

    one, small = (
        ModelUse("a/one", Usage(100, 40, 0, 10, 0.5), 1),
        ModelUse("a/small", Usage(100, 40, 0, 10, 0.25), 1),
    )
    both = ModelUse("a/one", Usage(200, 80, 0, 20, 2.5), 2)
    assert report.periods == (
        UsagePeriod("session", ()),
        *(UsagePeriod(name, (one, small)) for name in ("today", "month")),
        UsagePeriod("all", (both, small)),
    )  # fmt: skip
    assert report.limits == ()


async def test_side_calls_are_apart_also_in_a_resumed_session(store):
    at, used = timestamp(), Usage(100, 40, 0, 10, 0.5)
    header = SessionHeader("00000009-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "a/one", at)
    asked = [
        CostRecord(purpose, at, "a/small", used) for purpose in ("title", "capture", "capture")
    ]
    wait(store.import_session(header, [MessageRecord(1, at, user("x")), *asked]))
    memory = await MemoryManager.resume(store, header.id, project="/p", read_only=True)
    report = await Budget(
        memory, SessionCatalog(store, "/p"), LimitSettings(), lambda: ModelSpec("a/one")
    ).report()
    assert report.side_calls == (("capture", 2, used + used), ("title", 1, used))


async def test_deleted_sessions_count_as_spent(store):
    await store.delete_session(spend(store, 1, 0.5))
    report = await money(store, max_cost_day=1.0).report()
    assert report.limits == (SpendingLimit("today", "limits.max_cost_day", 1.0, 0.5),)


async def test_session_list_is_not_read_without_a_day_limit(store, monkeypatch):
    monkeypatch.setattr(YamlFileMemoryStore, "list_sessions", None)
    assert await money(store, max_cost=1.0).check(0) == ""


async def test_unreadable_spending_stops_at_a_daily_limit(store, home):
    (home / ".ouro" / "sessions").mkdir(parents=True, exist_ok=True)
    (home / ".ouro" / "sessions" / "spent.json").write_text('{"format": 2}')
    with pytest.raises(
        LimitReached, match=r"The limits of cost cannot be checked: .*spent.json cannot be read"
    ):
        await money(store, max_cost_day=1.0).check(0)
    assert await money(store, max_cost=1.0).check(0) == ""


async def test_warning_near_a_limit_is_given_once(store):
    purse = money(store, max_cost_day=1.0, max_cost_month=100.0)
    spend(store, 1, 0.79)
    assert await purse.check(0) == ""
    spend(store, 2, 0.02)
    assert (
        await purse.check(0)
        == "Today has cost $0.81 of $1.00 (limits.max_cost_day): $0.19 are left."
    )
    assert await purse.check(0) == ""


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (
            {"max_cost_day": 1.0},
            (
                "Stopped: today has cost $1.00 of $1.00.\nIt is reset tomorrow. Raise"
                " limits.max_cost_day"
            ),
        ),
        (
            {"max_cost_month": 0.5},
            "Stopped: this month has cost $1.00 of $0.50.\nIt is reset next month.",
        ),
    ],
)
async def test_reached_limit_stops_and_says_when_it_resets(store, limits, told):
    purse = money(store, **limits)
    purse.check_background_call()
    spend(store, 1, 1.0)
    with pytest.raises(LimitReached) as stopped:
        await purse.check(0)
    assert str(stopped.value).startswith(told)
    with pytest.raises(LimitReached):
        purse.check_background_call()  # in the background too


async def test_yesterday_and_unknown_prices_do_not_count(store):
    spend(store, 1, 5.0, at=OLD)
    spend(store, 2, None)
    purse = money(store, max_cost_day=1.0, max_cost_month=1.0)
    assert (await purse.check(0)).startswith(
        "The price of a/one is not known: its calls count for no limit"
    )
    assert await purse.check(0) == ""


@pytest.mark.parametrize("limits", [{"max_cost": 1.0}, {"max_cost_day": 1.0}])
async def test_unknown_price_is_reported_before_the_first_call(store, limits):
    purse = money(store, None, **limits)
    assert (await purse.check(0)).startswith("The price of a/one is not known")
    assert await purse.check(1) == ""


async def test_a_cost_that_the_provider_reports_counts(store):
    purse = money(store, None, max_cost=1.0)
    purse.memory.transcript.usage = Usage(100, 0, 0, 10, 0.1)
    assert await purse.check(1) == ""
    assert await money(store, None).check(0) == ""


def _spend_elsewhere(root: Path, numbers) -> None:
    for number in numbers:
        spend(YamlFileMemoryStore(root), number, 0.125)


async def test_spending_of_other_processes_counts_once_on_disk(store, home):
    purse = money(store, max_cost_day=1.0)
    context = multiprocessing.get_context("spawn")
    others = [
        context.Process(target=_spend_elsewhere, args=(home / ".ouro" / "sessions", part))
        for part in ((1, 2, 3, 4), (5, 6, 7))
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert "$0.88 of $1.00" in await purse.check(0)
    spend(store, 8, 0.125)
    with pytest.raises(LimitReached, match=r"today has cost \$1\.00"):
        await purse.check(0)
