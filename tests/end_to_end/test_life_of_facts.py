"""A preference, a decision that is changed and a correction, over five sessions on two machines."""

import asyncio
import subprocess

import pytest

from benchmarks.memory_in_use.run import PlayedTurn, play_turn, scripted
from ouro.cli import main


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch):
    """Recall may take its time: on a busy machine its first turn, which imports, does."""
    for limit in ("LOCAL_TIMEOUT", "INDEX_TIMEOUT", "VECTOR_TIMEOUT"):
        monkeypatch.setattr(f"ouro.memory.long_term.recall.turn_recall.{limit}", 30.0)


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """Plays a session on a machine of its own home and clone, with a sync of both memories before and after it."""
    for name in ("user", "repo"):
        subprocess.run(["git", "init", "--bare", "--quiet", tmp_path / f"{name}.git"], check=True)

    def sync():
        for scope in ("user", "repo"):
            assert main(["memory", "sync", "--scope", scope, "--remote", str(tmp_path / f"{scope}.git")]) == 0

    def play(machine: str, text: str) -> PlayedTurn:
        home, project = tmp_path / machine / "home", tmp_path / machine / "shop"
        if not project.exists():
            home.mkdir(parents=True, mode=0o700)
            (home / "config.yaml").write_text(
                "memory: {cadence_turns: 1}\nsessions: {titles: false, summaries: false}\n"
            )
            subprocess.run(["git", "init", "--quiet", project], check=True)
        monkeypatch.setenv("OURO_HOME", str(home))
        monkeypatch.chdir(project)
        sync()
        turn = asyncio.run(play_turn(project, scripted(), text))
        sync()
        return turn

    return play


def test_three_facts_live_over_five_sessions_and_two_machines(machines):
    machines("one", "I prefer answers in one sentence.")
    machines("one", "We use Redis for the job queue.")

    third = machines("two", "We changed our mind: RabbitMQ replaces Redis for the job queue.")
    assert [line.lstrip("- ") for line in third.receipt] == [
        "I prefer answers in one sentence.",
        "We use Redis for the job queue.",
    ]

    fourth = machines("one", "No, that is wrong: the basket must never be empty. Which job queue do we use?")
    assert "RabbitMQ replaces Redis" in fourth.sent
    assert "We use Redis" not in fourth.sent

    fifth = machines("two", "Which job queue do we use, and may the basket be empty?")
    assert sorted(line.lstrip("- ") for line in fifth.receipt) == [
        "I prefer answers in one sentence.",
        "RabbitMQ replaces Redis for the job queue.",
        "The basket must never be empty.",
    ]
