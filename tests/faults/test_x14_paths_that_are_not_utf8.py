"""X14: names of folders and files that are not UTF-8, in every command and tool."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from fakes.model_server import Call, ModelServer
from fakes.ouro_program import OuroProgram

from ouro.safety import Effect, Permissions, Workspace
from ouro.tools.files_seen import FilesSeen
from ouro.tools.glob import Glob, GlobArgs
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs
from ouro.tools.read import Read, ReadArgs
from ouro.utils.path_encoding import path_text, text_path

NAMES = (
    b"na\xefve.txt",
    b"\xff",
    b"\xe4\xd6\xfc",
    b"\x83\x6e\x83\x8d.txt",
    b"a\xc3.txt",
    b"x\xfe\xff \xe9",
)
"""Latin-1, one byte, a word of letters, Shift JIS, half of a character, with a space."""
COMMANDS = (
    ("sessions", "list", "--json"),
    ("sessions", "list", "--all", "--json"),
    ("sessions", "show", "latest", "--json"),
    ("sessions", "export", "latest", "--format", "json"),
    ("sessions", "export", "latest"),
    ("sessions", "repair", "--json"),
    ("sessions", "rename", "latest", os.fsdecode(b"t\xeftle"), "--json"),
    ("memory", "remember", os.fsdecode(b"The menu of the caf\xe9 is in menu.txt.")),
    ("memory", "remember", "--scope", "repo", "This project uses tabs.", "--json"),
    ("memory", "list", "--json"),
    ("memory", "search", os.fsdecode(b"caf\xe9"), "--json"),
    ("memory", "doctor", "--json"),
    ("memory", "doctor"),
    ("memory", "export", "--json"),
    ("memory", "log", "--json"),
    ("memory", "index", "--json"),
    ("mcp", "list", "--json"),
    ("config", "--json"),
    ("doctor", "--json"),
    ("permissions", "list", "--json"),
    ("checkpoints", "list", "--json"),
    ("usage", "--json"),
    ("hooks", "list", "--json"),
    ("plugin", "list", "--json"),
    ("--resume", "latest", "-p", "continue", "--output", "json"),
    ("--resume", os.fsdecode(b"\xff"), "-p", "hello"),
    ("--schema", os.fsdecode(b"no\xff"), "-p", "hello"),
    ("-m", os.fsdecode(b"\xff"), "-p", "hello"),
    ("memory", os.fsdecode(b"li\xffst")),
    ("sessions", "import", os.fsdecode(b"\xff")),
    ("memory", "import", os.fsdecode(b"na\xefve.txt"), "--dry-run"),
    ("-p", os.fsdecode(b"what does na\xefve.txt do?"), "--output", "stream-json"),
)


@pytest.mark.parametrize("name", NAMES)
def test_x14_any_name_is_text_and_found_again(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    path.write_text("")

    text = path_text(path)

    assert text.encode().decode() == text
    assert text_path(text) == path
    assert text_path(path_text(tmp_path / "plain")) == tmp_path / "plain"


@pytest.mark.parametrize("name", NAMES)
async def test_x14_tools_find_and_read_a_file_with_any_name(tmp_path, name):
    (tmp_path / os.fsdecode(name)).write_text("needle\n")
    workspace = Workspace(tmp_path)
    read = Read(FilesSeen(workspace))

    [listed] = (await Glob(workspace).run(GlobArgs("**/*"), None)).text.splitlines()
    found = (await Grep(workspace).run(GrepArgs("needle"), None)).text.splitlines()[0]

    assert found == listed
    listed.encode()
    tool, args = read.resolve(ReadArgs(listed))
    assert "needle" in tool.read_now(args).text


def test_x14_rule_for_a_name_that_is_not_utf8_holds(tmp_path):
    path = tmp_path / os.fsdecode(b"na\xefve.txt")
    path.write_text("")
    permissions = Permissions(Workspace(tmp_path), "edit", deny=[r"read(na\xefve.txt)"])

    decision = permissions.decide("read", Effect.READ, [str(path)])

    assert "forbids" in decision.reason
    assert permissions.unreadable_files() == [path]


@pytest.mark.parametrize("with_git", [True, False])
def test_x14_each_command_works_in_a_folder_that_is_not_utf8(tmp_path, with_git):
    folder = tmp_path / os.fsdecode(b"caf\xe9-\xff")
    folder.mkdir()
    (folder / os.fsdecode(b"na\xefve.txt")).write_text("needle\n")
    if with_git:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    calls = [
        Call("read", {"path": r"na\xefve.txt"}),
        Call("write", {"path": "new.txt", "content": "x\n"}),
        Call("shell", {"command": r"printf more >> $'na\xefve.txt'; ls"}),
        "Done.",
    ]
    with ModelServer(calls) as server:
        ouro = OuroProgram(server, folder)
        first = ouro.headless("-p", "do it", "--mode", "auto", "--output", "stream-json")
        assert first.code == 0, first.err
        assert first.lines[0]["cwd"].endswith(r"caf\xe9-\xff")
        assert "needle" in server.requests[-1].results[0]
        assert (folder / os.fsdecode(b"na\xefve.txt")).read_text() == "needle\nmore"
        server.script(["Yes."] * len(COMMANDS))
        for command in COMMANDS:
            done = ouro.headless(*command)
            assert "Traceback" not in done.err + done.out, (command, done.err)
            assert done.out or done.err, command
            if "--json" in command or "json" in command:
                json.loads(done.out)
                assert r"\udc" not in done.out
        assert all(info["project"].endswith(r"caf\xe9-\xff") for info in ouro.sessions())
        assert r"what does na\xefve.txt do?" in server.requests[-1].prompt
        ouro.close()
