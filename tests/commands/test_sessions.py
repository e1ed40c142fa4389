import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fakes.waiting import wait

from ouro.cli import run_action
from ouro.errors import SessionInUse, SessionNotFound, UsageError
from ouro.memory.backend import MessageRecord, SessionHeader, TitleRecord
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Image, Message, Text, ToolCall, ToolReply, Usage, tool, user

AT = "2026-11-21T20:14:03.120Z"
IDS = ("0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "1e9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f")


@pytest.fixture
def root(home, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    root = home / ".ouro" / "sessions"
    store = YamlFileMemoryStore(root)
    for session_id, project, title in zip(
        IDS, (str(tmp_path), "/elsewhere"), ("fix \x1b[31mimports", "docs"), strict=True
    ):
        wait(store.create_session(SessionHeader(session_id, project, "a/b", AT)))
        messages = [
            user("fix the import", [Image("image/png", b"x", "a.png")]),
            Message(
                "assistant",
                (Text("Looking."), ToolCall("1", "read", {"path": "api.py"})),
                Usage(10, 0, 0, 5, 0.25),
            ),
            tool(ToolReply("1", "read", "import os\x1b]0;title\x07")),
            Message("assistant", (Text("Done."),)),
        ]
        for number, message in enumerate(messages, 1):
            wait(store.save_message(session_id, MessageRecord(number, AT, message)))
        wait(store.save_memory(session_id, TitleRecord(title, AT)))
        wait(store.close_session(session_id))
    return root


def run(*arguments: str) -> int:
    return run_action("sessions", arguments)


def test_list_shows_the_sessions_of_this_folder(root, capsys):
    assert run("list") == 0
    assert (
        capsys.readouterr().out
        == "0d9f3c52  2026-11-21 20:14      4 messages     $0.25  fix imports\n"
    )


def test_manual_copy_is_listed_by_its_folder_name(root, capsys):
    shutil.copytree(root / "2026-11-21_0d9f3c52", root / "2026-11-21_0d9f3c52 copy")
    run("list", "imports")
    names = [line.partition("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(names) == ["0d9f3c52", "2026-11-21_0d9f3c52 copy"]
    assert run("show", "2026-11-21_0d9f3c52 copy") == run("show", "0d9f3c52") == 0


@pytest.mark.parametrize("words", [(), ("cannot",)])
def test_a_session_file_of_random_bytes_is_listed_in_every_folder(root, capsys, words):
    folder = root / "2026-11-22_deadbeef"
    folder.mkdir()
    file = folder / "session.yaml"
    file.write_bytes(bytes(range(256)) * 4)
    file.chmod(0o600)
    run("list", *words)
    assert "deadbeef" in (text := capsys.readouterr().out)
    assert "cannot be read" in text


def test_list_all_includes_other_folders(root, capsys):
    run("list", "--all")

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1e9f3c52", "0d9f3c52"]
    assert "/elsewhere" in lines[0]


def test_list_shows_a_page_and_says_that_there_are_more(root, tmp_path, capsys):
    for number in range(60):
        header = SessionHeader(f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f", str(tmp_path), "m", AT)
        wait(YamlFileMemoryStore(root).import_session(header, [TitleRecord(f"no {number}", AT)]))
    run("list")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 51
    assert lines[-1] == "There are more: ouro sessions list --max 500"
    run("list", "--max", "500")
    assert len(capsys.readouterr().out.splitlines()) == 61
    run("list", "-n", "2", "--all", "no", "4")
    assert capsys.readouterr().out.endswith("more: ouro sessions list --all --max 20 no 4\n")


def test_json_has_all_sessions_unless_a_number_is_given(root, tmp_path, capsys):
    for number in range(60):
        header = SessionHeader(f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f", str(tmp_path), "m", AT)
        wait(YamlFileMemoryStore(root).import_session(header, [TitleRecord(f"no {number}", AT)]))
    run("list", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == 61
    run("list", "--json", "--max", "3")
    assert json.loads(capsys.readouterr().out) == listed[:3]


def test_empty_list_reports_sessions_of_other_folders(home, tmp_path, monkeypatch, root, capsys):
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    run("list")

    assert (
        capsys.readouterr().out
        == "No session of this folder yet. 2 of other folders: ouro sessions list --all\n"
    )


def test_list_as_json(root, tmp_path, capsys):
    run("list", "--json")

    assert json.loads(capsys.readouterr().out) == [
        {
            "id": IDS[0],
            "title": "fix imports",
            "project": str(tmp_path),
            "model": "a/b",
            "created_at": AT,
            "updated_at": AT,
            "messages": 4,
            "size": (root / "2026-11-21_0d9f3c52" / "session.yaml").stat().st_size,
            "cost": 0.25,
            "folder": "2026-11-21_0d9f3c52",
            "summary": "",
            "spent": [
                {
                    "day": "2026-11-21",
                    "model": "a/b",
                    "calls": 1,
                    "input": 10,
                    "cached": 0,
                    "cache_written": 0,
                    "output": 5,
                    "cost": 0.25,
                }
            ],
            "fork_of": "",
            "mode": "",
            "tags": [],
            "pinned": False,
            "branch": "",
            "files": 0,
            "headless": False,
        }
    ]


def test_show_prints_the_session_details(root, tmp_path, capsys):
    run("show", "imports")

    path = root / "2026-11-21_0d9f3c52" / "session.yaml"
    assert (
        capsys.readouterr().out == "title      fix imports\n"
        f"id         {IDS[0]}\n"
        f"folder     {tmp_path}\n"
        "model      a/b\n"
        "started    2026-11-21 20:14\n"
        "last used  2026-11-21 20:14\n"
        "messages   4\n"
        "cost       $0.25\n"
        f"file       {path} ({path.stat().st_size:,} bytes)\n"
        "\nfirst message:\n  fix the import\n"
        "\nlast answer:\n  Done.\n"
    )


def test_show_reports_damage(root, capsys):
    path = root / "2026-11-21_0d9f3c52" / "session.yaml"
    path.write_bytes(path.read_bytes() + b"---\nmessage: x\n...\n")
    run("show", IDS[0])

    assert "! The record at byte" in capsys.readouterr().out


def test_export_prints_markdown_without_terminal_codes(root, tmp_path, capsys):
    run("export", "0d9f")

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [line for line in out.splitlines() if line] == [
        "# fix imports", f"- **Session**: `{IDS[0]}`", f"- **Folder**: `{tmp_path}`", "- **Model**: `a/b`",
        "- **From**: 2026-11-21 20:14 to 2026-11-21 20:14",
        "- **Used**: 10 tokens read (0 from the cache), 5 written, $0.25",
        "## You · 2026-11-21 20:14", "fix the import", "![a.png](data:image/png;base64,eA==)",
        "## ouro · 2026-11-21 20:14", "Looking.",
        "<details>", "<summary><code>read api.py</code> — import os</summary>", "```", "import os", "```", "</details>",
        "## ouro · 2026-11-21 20:14", "Done.",
    ]  # fmt: skip


def test_export_json_contains_all_records(root, tmp_path, capsys):
    run("export", "latest", "--json")

    whole = json.loads(capsys.readouterr().out)
    assert whole["session"]["id"] == IDS[0]
    assert [record.get("role", "title") for record in whole["records"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "title",
    ]
    assert whole["records"][0]["images"][0]["name"] == "a.png"


def test_export_format_follows_the_flag_or_the_file_ending(root, tmp_path):
    run("export", "latest", "-o", "chat.md")
    run("export", "latest", "-o", "chat.html")
    run("export", "latest", "-o", "chat.txt", "--format", "html")
    assert (tmp_path / "chat.md").read_text().startswith("# fix imports\n")
    assert (tmp_path / "chat.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "chat.txt").read_text() == (tmp_path / "chat.html").read_text()
    run("export", "latest", "-o", "also.md", "--json")
    assert (tmp_path / "also.md").read_text() == (tmp_path / "chat.md").read_text()
    for wrong in (("-o", "chat.pdf"), ("--to", "claude", "--format", "html")):
        with pytest.raises(UsageError):
            run("export", "latest", *wrong)


def test_export_overwrites_a_file_only_with_force(root, tmp_path):
    (tmp_path / "chat.md").write_text("mine")
    with pytest.raises(UsageError, match=r"chat\.md exists"):
        run("export", "latest", "-o", "chat.md")
    assert (tmp_path / "chat.md").read_text() == "mine"

    run("export", "latest", "-o", "chat.md", "--force")
    assert (tmp_path / "chat.md").read_text().startswith("# fix imports\n")


def test_rename_changes_the_title_and_keeps_the_rest(root, capsys):
    run("rename", "latest", "the broken\nimport")

    assert capsys.readouterr().out == "0d9f3c52 is now called the broken import.\n"
    assert [each.title for each in wait(YamlFileMemoryStore(root).list_sessions())] == [
        "docs",
        "the broken import",
    ]


def test_rm_asks_and_only_yes_deletes(root, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    run("rm", "latest")
    assert len(wait(YamlFileMemoryStore(root).list_sessions())) == 2
    assert "Move to the trash: “fix imports” (0d9f3c52, " in capsys.readouterr().out

    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    run("rm", "latest")
    assert [each.id for each in wait(YamlFileMemoryStore(root).list_sessions())] == [IDS[1]]
    assert not (root / "2026-11-21_0d9f3c52").exists()


def test_rm_without_a_terminal_needs_yes(root, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="pass --yes to confirm"):
        run("rm", "latest")

    run("rm", *IDS, "--yes")
    assert wait(YamlFileMemoryStore(root).list_sessions()) == []


def test_session_open_elsewhere_is_not_renamed_or_removed(root, capsys):
    holder = YamlFileMemoryStore(root)
    wait(holder.load_session(IDS[0]))
    with pytest.raises(SessionInUse):
        run("rename", "latest", "x")
    assert run("show", "latest") == run("export", "latest") == 0
    assert run("rm", *IDS, "--yes") == 1
    assert [each.id for each in wait(holder.list_sessions())] == [IDS[0]]
    said = capsys.readouterr()
    assert said.err.startswith("0d9f3c52 fix imports: This session is already open")
    assert "Moved to the trash: 1e9f3c52 docs" in said.out


def test_repair_without_a_name_skips_open_and_newer_sessions(root, capsys):
    path = root / "2026-11-21_0d9f3c52" / "session.yaml"
    path.write_bytes(path.read_bytes() + b"---\nhalf")
    newer = root / "2026-11-21_1e9f3c52" / "session.yaml"
    newer.write_bytes(newer.read_bytes().replace(b"format: 1", b"format: 2"))
    assert run("repair") == 1

    torn = path.with_name("session-1.torn")
    assert (
        capsys.readouterr().out
        == f"1e9f3c52  Left out: {newer} was written by a newer ouro (format 2). It was not"
        " changed.\n"
        f"0d9f3c52  Moved 0 records and 8 bytes at the end to {torn}.\n"
        "0d9f3c52  Kept 5 records.\n"
        "0 of 2 had no damage. The index was rebuilt: 2 sessions.\n"
    )
    wait(YamlFileMemoryStore(root).load_session(IDS[0]))
    run("repair")
    assert (
        "0d9f3c52  Left out: This session is already open in this ouro." in capsys.readouterr().out
    )


def test_unknown_session_is_reported(root):
    with pytest.raises(SessionNotFound, match="No session matches `nothing`"):
        run("show", "nothing")


def test_sync_sends_all_sessions_and_remembers_the_remote(root, tmp_path, capsys):
    with pytest.raises(UsageError, match="The sessions have no remote yet"):
        run("sync")
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    assert run("sync", str(remote)) == 0
    assert re.search(r"\d sessions? sent \(\d+ (B|KB)\), 0 received", capsys.readouterr().out)
    assert run("sync") == 0
    assert "0 sessions sent (0 B), 0 received." in capsys.readouterr().out


def test_session_exported_to_an_agent_is_imported_only_after_it_grew(root, home, capsys):
    assert run("export", "latest", "--to", "codex") == 0
    assert "Continue there, in the same folder: codex resume " in capsys.readouterr().out
    run("import", "--all")
    assert capsys.readouterr().out == "Sessions: 0 new, 1 already imported.\n"

    [there] = (home / ".codex" / "sessions").rglob("*.jsonl")
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}
    line = {"timestamp": "2026-11-22T09:00:00.000Z", "type": "response_item", "payload": said}
    there.write_text(f"{there.read_text()}{json.dumps(line)}\n")
    run("import", "--all")
    assert "Sessions: 1 new" in capsys.readouterr().out
