"""`ouro sessions rm`, `restore` and `clean`: only purged sessions are lost."""

import io
import json
from pathlib import Path

import pytest
from fakes.waiting import wait

from ouro.cli import run_action
from ouro.errors import SessionNotFound, UsageError
from ouro.memory.backend import MessageRecord, SessionHeader, TitleRecord, timestamp
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

OLD = "2025-01-02T03:04:05.000Z"
IDS = tuple(f"{letter}e9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f" for letter in "abc")


@pytest.fixture
def store(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    made = YamlFileMemoryStore(home / ".ouro" / "sessions")
    for session_id, title, at in zip(
        IDS, ("first", "second", "new"), (OLD, OLD, timestamp()), strict=True
    ):
        wait(made.create_session(SessionHeader(session_id, str(tmp_path), "a/b", at)))
        wait(made.save_message(session_id, MessageRecord(1, at, user(f"words of the {title}"))))
        wait(made.save_memory(session_id, TitleRecord(title, at)))
        wait(made.close_session(session_id))
    return made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(*arguments: str) -> int:
    return run_action("sessions", arguments)


def titles(infos):
    return sorted(each.title for each in infos)


def test_rm_moves_to_the_trash_and_restore_brings_it_back(store, capsys):
    run("rm", "first", "--yes")
    assert (
        capsys.readouterr().out
        == "Moved to the trash: ae9f3c52 first\nRestore: ouro sessions restore ae9f3c52\n"
    )
    assert (titles(wait(store.list_sessions())), titles(wait(store.list_deleted()))) == (
        ["new", "second"],
        ["first"],
    )
    run("restore")
    assert "ae9f3c52" in capsys.readouterr().out
    run("restore", "first")
    with pytest.raises(SessionNotFound, match="`ouro sessions restore` lists the trash"):
        run("restore", "first")
    assert (titles(wait(store.list_sessions())), wait(store.list_deleted())) == (
        ["first", "new", "second"],
        [],
    )


def test_purge_deletes_permanently_also_from_the_trash(store, capsys):
    run("rm", "first", "--yes")
    run("rm", "first", "second", "--yes", "--purge", "--json")
    assert json.loads(capsys.readouterr().out.partition("restore ae9f3c52\n")[2]) == {
        "removed": [IDS[0], IDS[1]],
        "for_good": True,
    }
    assert (titles(wait(store.list_sessions())), wait(store.list_deleted())) == (["new"], [])
    with pytest.raises(SessionNotFound):
        run("restore", "first")


def test_clean_needs_a_number_of_days(store):
    with pytest.raises(UsageError, match="keep_days"):
        run("clean")
    for days in ("0", "9999999"):
        with pytest.raises(SystemExit):
            run("clean", "--days", days)


def test_clean_shows_what_it_would_move_and_asks(store, capsys, monkeypatch):
    run("clean", "--days", "30")
    out = capsys.readouterr().out
    assert "ae9f3c52" in out
    assert "Nothing was moved: pass --yes to confirm.\n" in out
    assert len(wait(store.list_sessions())) == 3

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    run("clean", "--days", "30")
    assert len(wait(store.list_sessions())) == 3

    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    run("clean", "--days", "30")
    assert (titles(wait(store.list_sessions())), titles(wait(store.list_deleted()))) == (
        ["new"],
        ["first", "second"],
    )


def test_clean_follows_keep_days_and_skips_open_sessions(store, home, capsys):
    (home / ".ouro" / "config.yaml").write_text("sessions: {keep_days: 30}\n")
    wait(store.load_session(IDS[0]))
    run("clean", "--yes")
    assert "ae9f3c52 first: This session is already open" in capsys.readouterr().err
    assert titles(wait(store.list_deleted())) == ["second"]


def test_list_searches_titles_and_messages(store, capsys, tmp_path):
    run("list", "words", "second")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["be9f3c52"]
    run("list", "--json", "new")
    assert [each["title"] for each in json.loads(capsys.readouterr().out)] == ["new"]
    run("list", "nowhere")
    assert capsys.readouterr().out == "No matches in titles or messages.\n"


def test_the_sessions_of_another_worktree_are_listed(
    store, repository, tmp_path, monkeypatch, capsys
):
    import subprocess

    monkeypatch.chdir(repository)
    for session_id, folder in (
        (f"d{IDS[0][1:]}", repository),
        (f"e{IDS[0][1:]}", tmp_path / "tree"),
    ):
        wait(store.create_session(SessionHeader(session_id, str(folder), "a/b", OLD)))
        wait(store.save_message(session_id, MessageRecord(1, OLD, user("hello"))))
        wait(store.close_session(session_id))
    subprocess.run(["git", "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    run("list", "--json")
    assert {Path(each["project"]).name for each in json.loads(capsys.readouterr().out)} == {
        "repository",
        "tree",
    }


def test_a_session_that_is_named_twice_is_removed_once(store, capsys):
    assert run("rm", "first", IDS[0], "--yes", "--purge") == 0
    assert capsys.readouterr().out == "Deleted ae9f3c52 first\n"
