import json

from fakes.waiting import wait

from ouro.cli import main
from ouro.memory.backend import MessageRecord, SessionHeader, timestamp
from ouro.memory.sessions.usage import today
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Usage, user

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
