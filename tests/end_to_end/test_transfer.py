"""Import of sessions from other programs, export as documents, and a daily budget."""

import json
import subprocess
from pathlib import Path

import pytest
from fakes.ouro_program import ANTHROPIC

LOG = Path(__file__).parent.parent / "importers" / "data" / "claude-code-1.0.jsonl"
IMPORTED = "5f0c1b2a-3d4e-4f50-8a6b-7c8d9e0f1a2b"


def run(ouro, *arguments: str) -> str:
    done = subprocess.run(
        ouro.command(*arguments),
        env=ouro.environment,
        cwd=ouro.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("model", ["openai/test-model", ANTHROPIC])
def test_a_session_of_another_program_continues_with_any_model(ouro, model):
    run(ouro, "sessions", "import", str(LOG))
    done = ouro.headless("--resume", IMPORTED[:8], "-m", model, "-p", "say: It was Flask.")

    assert (done.code, done.out) == (0, "It was Flask.\n")
    (request,) = ouro.server.requests
    sent = json.dumps(request.body)
    assert "fix the broken import in api.py" in sent
    assert "toolu_03" in sent
    assert "EqQBCkYIBRgC" not in sent  # another model's encrypted thinking is not sent
    assert "words for a sub-agent" not in sent


def test_a_session_is_exported_as_a_page_and_imported_from_json(ouro, tmp_path, monkeypatch):
    ouro.headless("-p", "read: api.py\nsay: It greets.")
    page, document = ouro.folder / "chat.html", ouro.folder / "chat.json"
    run(ouro, "sessions", "export", "latest", "-o", str(page))
    run(ouro, "sessions", "export", "latest", "-o", str(document))
    assert "It greets." in page.read_text()

    session_id = ouro.sessions()[0]["id"]
    run(ouro, "sessions", "rm", session_id, "--yes")
    assert ouro.sessions() == []
    assert "1 new" in run(ouro, "sessions", "import", str(document))
    assert [info["id"] for info in ouro.sessions()] == [session_id]
    again = ouro.folder / "again.json"
    run(ouro, "sessions", "export", session_id, "-o", str(again))
    imported, exported = json.loads(again.read_text()), json.loads(document.read_text())
    assert imported.pop("origin")["from"] == "json"
    assert imported == exported
    assert "1 already imported" in run(ouro, "sessions", "import", str(again))


def test_a_budget_of_a_day_stops_before_the_next_call_in_any_session(ouro):
    (ouro.home / "config.yaml").write_text(
        "limits: {max_cost_day: 0.000001}\nsessions: {titles: false}\n"
    )
    first = ouro.headless("-m", ANTHROPIC, "-p", "say: one")
    asked = len(ouro.server.requests)
    second = ouro.headless("-m", ANTHROPIC, "-p", "say: two")

    assert first.code == 0
    assert second.code == 4
    assert "limits.max_cost_day" in second.err
    assert len(ouro.server.requests) == asked
    assert "limits.max_cost_day" in run(ouro, "usage")
