import io
import json
import shutil
from pathlib import Path

import pytest

from ouro.cli import run_action
from ouro.errors import UsageError
from ouro.importers.importer import Importer

DATA = Path(__file__).parents[1] / "importers" / "data"


@pytest.fixture
def logs(home) -> Path:
    place = home / ".claude" / "projects" / "-home-me"
    place.mkdir(parents=True)
    for name in ("claude-code-1.0.jsonl", "claude-code-2.1.jsonl"):
        shutil.copy(DATA / name, place / name)
    (home / ".codex" / "sessions").mkdir(parents=True)
    shutil.copy(DATA / "codex-0.98.jsonl", home / ".codex" / "sessions" / "rollout-1.jsonl")
    return place


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(*arguments: str) -> int:
    return run_action("sessions", ["import", *arguments])


def listed_titles(capsys) -> list[str]:
    capsys.readouterr()
    run_action("sessions", ["list", "--all", "--json"])
    return sorted(each["title"] for each in json.loads(capsys.readouterr().out))


def test_import_without_a_path_lists_sessions_and_imports_the_picked(logs, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Terminal("1 3\n"))
    assert run() == 0

    shown = capsys.readouterr().out
    assert shown.count("Claude Code") == 2
    assert "/home/me/src/shop" in shown
    assert "add a test for the cart" in shown
    assert "Sessions: 2 new." in shown
    assert len(listed_titles(capsys)) == 2


def test_import_without_a_terminal_imports_nothing_and_suggests_all(logs, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("all\n"))
    run()
    assert "Import all with --all" in capsys.readouterr().out
    assert listed_titles(capsys) == []


@pytest.mark.parametrize("answer", ["0", "4", "2-9", "x", "-1", "3-1"])
def test_invalid_selection_is_reported(logs, capsys, monkeypatch, answer):
    monkeypatch.setattr("sys.stdin", Terminal(answer + "\n"))
    assert run() == 0
    assert f"`{answer}` is not a number from 1 to 3." in capsys.readouterr().out


def test_import_all_twice_adds_nothing_new(logs, capsys):
    assert run("--all") == 0
    assert "Sessions: 3 new." in capsys.readouterr().out
    assert run("--all") == 0
    assert "Sessions: 0 new, 3 already imported." in capsys.readouterr().out
    assert listed_titles(capsys) == ["Cart test", "Flask import repaired", "The cart"]


def test_json_output_lists_found_and_imported_sessions(logs, capsys):
    run("--json")
    assert sorted(each["from"] for each in json.loads(capsys.readouterr().out)["found"]) == [
        "claude-code", "claude-code", "codex",
    ]  # fmt: skip
    run(str(logs / "claude-code-2.1.jsonl"), "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["interrupted"] is False
    assert [(each["outcome"], each["messages"], each["title"]) for each in found["imported"]] == [
        ("new", 11, "The cart")
    ]


def test_interrupt_keeps_finished_imports_and_reports_the_rest(logs, capsys, monkeypatch):
    import_source = Importer.import_source
    imported = []

    def interrupted(self, source):
        if imported:
            raise KeyboardInterrupt
        imported.append(source)
        return import_source(self, source)

    with monkeypatch.context() as patch:
        patch.setattr(Importer, "import_source", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run("--all")
    told = capsys.readouterr().out
    assert "Sessions: 1 new." in told
    assert "Interrupted: 2 sessions left." in told
    run("--all")
    assert len(listed_titles(capsys)) == 3


def test_failed_file_is_reported_and_the_rest_is_imported(tmp_path, capsys):
    (tmp_path / "a.json").write_text('{"session": {"format": 99, "id": "x"}}')
    shutil.copy(DATA / "codex-0.98.jsonl", tmp_path / "b.jsonl")
    assert run(str(tmp_path)) == 1
    told = capsys.readouterr().out
    assert "Sessions: 1 new, 1 failed." in told


def test_missing_or_unknown_path_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="is not there"):
        run(str(tmp_path / "x.jsonl"))
    (tmp_path / "x.jsonl").write_text("hello\n")
    with pytest.raises(UsageError, match="is not a known kind of session"):
        run(str(tmp_path / "x.jsonl"))


def test_no_sessions_found_is_reported(home, capsys):
    assert run() == 0
    assert "pass a path" in capsys.readouterr().out
