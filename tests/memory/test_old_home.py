"""A home folder of version 0.1.0 (`tests/fixtures/old_home.tar.gz`) opens and behaves as it did in
that version.

It contains sessions with images, a long output, a compaction, a rewind, a pin, a fork and an open
tool call, the trash, costs, an index and settings. `old_home.json` is the output of that version.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ouro.cli import main
from ouro.memory import MemoryManager, YamlFileMemoryStore
from ouro.memory.backend import MessageRecord
from ouro.memory.index import Index, Search, Sources, search_sessions
from ouro.memory.serialization import record_data
from ouro.messages import user
from ouro.settings_sources import load_settings
from ouro.utils.ouro_paths import get_index_path, get_sessions_dir

FIXTURES = Path(__file__).parents[1] / "fixtures"
GOLDEN: dict[str, Any] = json.loads((FIXTURES / "old_home.json").read_text())
MAIN, FORK, OPEN_CALL = GOLDEN["export"]
PROJECT = "/home/me/src/app"


@pytest.fixture(autouse=True)
def old_home(home) -> Path:
    with tarfile.open(FIXTURES / "old_home.tar.gz") as archive:
        archive.extractall(home, filter="data")
    return home / ".ouro"


def run_json(capsys, *arguments: str) -> Any:
    assert main([*arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_sessions_are_listed_and_their_costs_counted_as_before(capsys):
    found = run_json(capsys, "sessions", "list", "--all", "--json")
    for info, old in zip(found, GOLDEN["list"], strict=True):
        assert {key: info[key] for key in old} == old | {"cost": pytest.approx(old["cost"])}
    assert run_json(capsys, "usage", "--json")["all"] == GOLDEN["usage"]["all"]


@pytest.mark.parametrize("session", GOLDEN["export"])
def test_a_session_is_exported_as_before(capsys, session):
    assert (
        run_json(capsys, "sessions", "export", session, "--format", "json")
        == GOLDEN["export"][session]
    )


@pytest.mark.parametrize("session", GOLDEN["resume"])
async def test_resume_sends_the_same_context(session):
    old = GOLDEN["resume"][session]
    memory = await MemoryManager.resume(YamlFileMemoryStore(), session, project=PROJECT)
    await memory.pager.finish_loading()

    transcript = memory.transcript
    records = [MessageRecord(0, "", message) for message in memory.context()]
    sent = [record_data(record, str, lambda *_: None, inline=True) for record in records]
    assert [_without_frame(message) for message in sent] == [
        _without_frame(message) for message in old["context"]
    ]
    assert [
        [branch.since, [entry.number for entry in branch.entries]] for branch in transcript.branches
    ] == old["branches"]
    assert (memory.title, memory.model, sorted(transcript.pins)) == (
        old["title"],
        old["model"],
        old["pins"],
    )
    assert (memory.usage.input, memory.usage.cost, list(memory.notices)) == (
        old["usage"]["input"],
        old["usage"]["cost"],
        old["notices"],
    )
    await memory.add(user("more"))
    await memory.close()
    again = await YamlFileMemoryStore().load_session(session, read_only=True)
    assert (again.records[-1].message, again.notices) == (user("more"), ())


async def test_deleted_session_is_restored(capsys):
    store = YamlFileMemoryStore()
    [info] = await store.list_deleted()
    assert [info.id] == GOLDEN["deleted"]
    await store.restore_session(info.id)
    assert len(await store.list_sessions()) == 4


def test_index_returns_the_same_hits():
    index = Index(get_index_path())
    index.update(Sources(get_sessions_dir()))
    for words, hits in GOLDEN["sessions"].items():
        assert [[hit.session_id, hit.number] for hit in search_sessions(index, words)] == hits
    for words, ids in GOLDEN["search"].items():
        assert [hit.id for hit in Search(index).find(words, 5)] == ids
    index.close()


def test_settings_are_read():
    settings = load_settings()
    assert (
        settings.memory.cadence_turns,
        settings.memory.half_life_days,
        settings.compaction.at,
    ) == (3, 20, 0.7)
    assert (settings.tui.theme, settings.permissions.mode) == ("dark", "ask")


def _without_frame(message: dict[str, Any]) -> dict[str, Any]:
    """The message without the sentences that introduce a summary: their wording may change."""
    texts = [text.partition("\n\n## ")[2] for text in message.get("context", [])]
    return {**message, "context": texts}
