from fakes.fake_front_end import FakeFrontEnd

from ouro.commands.slash import dispatch
from ouro.memory.sessions.usage import ModelUse, UsagePeriod
from ouro.messages import Usage
from ouro.session.budget import SpendingLimit, SpendingReport


async def shown(report: SpendingReport) -> str:
    front_end = FakeFrontEnd()
    front_end.session.budget.given = report
    await dispatch(front_end, "/usage")
    return front_end.shown[0]


async def test_usage_is_shown_by_model_and_period_with_the_remaining_limit():
    one, two = (
        ModelUse("a/one", Usage(5_210, 4_800, 0, 41, 0.25), 3),
        ModelUse("a/two", Usage(10, 0, 0, 5, 1.0), 1),
    )
    periods = (
        UsagePeriod("session", (one,)),
        UsagePeriod("today", (two, one)),
        UsagePeriod("month", ()),
    )
    budgets = (
        SpendingLimit("today", "limits.max_cost_day", 5.0, 1.25),
        SpendingLimit("month", "limits.max_cost_month", 1.0, 1.25),
    )
    assert (
        await shown(SpendingReport(periods, budgets))
        == """\
```
This session   read  cached  written  calls   cost
  a/one       5,210   4,800       41      3  $0.25

Today          read  cached  written  calls   cost
  a/two          10       0        5      1  $1.00
  a/one       5,210   4,800       41      3  $0.25
  together    5,220   4,800       46      4  $1.25

This month: nothing

$1.25 of $5.00 spent today, $3.75 left (limits.max_cost_day)
$1.25 of $1.00 spent this month, $0.00 left (limits.max_cost_month)
```"""
    )


async def test_side_calls_are_listed_apart_from_turns():
    one = ModelUse("a/one", Usage(5_210, 4_800, 0, 41, 0.25), 3)
    beside = (
        ("capture", 2, Usage(1_200, 0, 0, 30, 0.1)),
        ("subagent", 9, Usage()),
        ("title", 1, Usage(90, 0, 0, 5)),
    )
    text = await shown(SpendingReport((UsagePeriod("session", (one,)),), (), beside))
    assert [line for line in text.splitlines() if line.startswith("Of this")] == [
        "Of this session: 2 calls for capture, 1,200 tokens read, 30 written, $0.10",
        "Of this session: 1 call for title, 90 tokens read, 5 written, cost unknown",
    ]


async def test_unknown_price_is_never_shown_as_free():
    free, priced = (
        ModelUse("local/one", Usage(9, 0, 0, 1), 1),
        ModelUse("a/two", Usage(10, 0, 0, 5, 0.5), 1),
    )
    text = await shown(
        SpendingReport((UsagePeriod("today", (priced, free)), UsagePeriod("all", (free, free))), ())
    )
    rows = [line.split()[-1] for line in text.splitlines() if line.startswith("  ")]
    assert rows == ["$0.50", "unknown", "unknown", "unknown", "unknown", "unknown"]
    assert "$0.50 + unknown" in text
    assert "$0.00" not in text


async def test_model_names_are_stripped_of_control_codes():
    text = await shown(
        SpendingReport(
            (
                UsagePeriod(
                    "today", (ModelUse("a\x1b[31m", Usage(1), 1), ModelUse("", Usage(1), 1))
                ),
            ),
            (),
        )
    )
    assert "\x1b" not in text
    assert "(no name)" in text
