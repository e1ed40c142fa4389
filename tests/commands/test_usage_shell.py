import json

import pytest
from fakes.waiting import wait

from ouro.cli import main
from ouro.memory.backend import CostRecord, MessageRecord, SessionHeader, timestamp
from ouro.memory.sessions.usage import today
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Usage, user
from ouro.utils.ouro_paths import get_sessions_dir

ID = "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f"


def one_call(home) -> None:
    at = timestamp()
    answer = Message("assistant", (Text("x"),), Usage(1_000, 400, 0, 10, 0.5), "a/one")
    store = YamlFileMemoryStore(home / ".ouro" / "sessions")
    wait(
        store.import_session(
            SessionHeader(ID, "/p", "a/one", at),
            [MessageRecord(1, at, user("x")), MessageRecord(2, at, answer)],
        )
    )


def test_usage_prints_tokens_cost_and_remaining_limits(home, capsys):
    one_call(home)
    (home / ".ouro" / "config.yaml").write_text("limits: {max_cost_day: 2, max_cost_month: 10}\n")
    assert main(["usage"]) == 0

    out = capsys.readouterr().out
    assert out.splitlines()[:2] == [
        "Today          read  cached  written  calls   cost",
        "  a/one       1,000     400       10      1  $0.50",
    ]
    assert out.splitlines()[-2:] == [
        "$0.50 of $2.00 spent today, $1.50 left (limits.max_cost_day)",
        "$0.50 of $10.00 spent this month, $9.50 left (limits.max_cost_month)",
    ]


def test_usage_as_json(home, capsys):
    one_call(home)
    main(["usage", "--json"])

    used = {"input": 1_000, "cached": 400, "cache_written": 0, "output": 10, "cost": 0.5}
    period = {
        "models": [{"model": "a/one", "calls": 1, **used}],
        "total": used,
        "every_price_is_known": True,
    }
    assert json.loads(capsys.readouterr().out) == {
        "day": today(), "today": period, "month": period, "all": period, "budgets": [],
    }  # fmt: skip


def test_empty_usage_is_reported(home, capsys):
    assert main(["usage"]) == 0
    assert (
        capsys.readouterr().out
        == "Today: nothing\n\nThis month: nothing\n\nAll sessions: nothing\n"
    )


def several_calls() -> None:
    at, later = "2026-11-20T12:00:00.000Z", "2026-11-21T12:00:00.000Z"
    first = Message("assistant", (Text("x"),), Usage(1_000, 400, 0, 10, 0.5), "a/one")
    second = Message("assistant", (Text("x"),), Usage(3_000, 0, 0, 30, 1.5), "a/two")
    store = YamlFileMemoryStore(get_sessions_dir())
    records = [
        MessageRecord(1, at, user("x")),
        MessageRecord(2, at, first),
        CostRecord("title", at, "a/one", Usage(10, cost=0.25)),
        MessageRecord(3, later, second),
    ]
    wait(store.import_session(SessionHeader(ID, "/home/me/日本/project", "a/one", at), records))
    wait(store.save_cost(CostRecord("vectors", later, "a/small", Usage(5, cost=0.25))))


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("day", ["2026-11-21", "2026-11-20"]),
        ("model", ["a/two", "a/one", "a/small"]),
        ("purpose", ["turns", "title", "vectors"]),
        ("project", ["/home/me/日本/project", "(outside of sessions)"]),
    ],
)
def test_usage_by_has_a_row_with_a_bar_for_each(home, capsys, by, names):
    several_calls()
    assert main(["usage", "--by", by, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [row[by] for row in data["rows"]] == names
    assert sum(row["cost"] for row in data["rows"]) == 2.5
    assert main(["usage", "--by", by]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(by.capitalize())
    assert [name for name, line in zip(names, lines[1:], strict=False) if name not in line] == []
    assert all("█" in line for line in lines[1 : 1 + len(names)])
    assert lines[-1] == "Bars: cost"


def test_bars_are_tokens_if_a_price_is_not_known(home, capsys):
    several_calls()
    store = YamlFileMemoryStore(get_sessions_dir())
    wait(store.save_cost(CostRecord("vectors", timestamp(), "a/free", Usage(6_000))))
    main(["usage", "--by", "model"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("Bars: tokens read")
    assert max(lines, key=lambda line: line.count("█")).split()[0] == "a/free"


def test_usage_by_of_nothing_says_so(home, capsys):
    assert main(["usage", "--by", "day"]) == 0
    assert capsys.readouterr().out == "No usage yet.\n"
