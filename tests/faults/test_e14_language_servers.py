"""E14: language servers that flood, die, never answer, send wrong positions or files of others; the
programs of a project that is not trusted; what a rename would touch.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from fakes.model_server import Call
from fakes.tool_benches import SERVER, LspBench
from fakes.waiting import until
from fakes.warm_python import WARM

from ouro.lsp import servers as lsp_servers
from ouro.lsp.configuration import find_language_servers
from ouro.lsp.stdio import start_server


@pytest.fixture
async def bench(tmp_path):
    made = LspBench(tmp_path / "project")
    yield made
    for servers in made.opened:
        await servers.close()


@pytest.mark.parametrize("mode", ["garbage", "huge", "die", "die on change"])
async def test_e14_server_that_ends_or_prints_nonsense_is_restarted_twice_and_then_left(
    bench, mode
):
    servers = bench.open(mode=mode)
    server = servers.servers[0]
    for number in range(5):
        text = await bench.write(f"{number}.toy", f"wrong {number}\n")
        assert text.startswith("Wrote")
        await until(lambda: server.state == "failed")
    assert server.failures == 3
    assert len(bench.notices) == 1
    assert "is not used any more" in bench.notices[0]


async def test_e14_server_whose_command_cannot_be_made_has_failed(bench):
    servers = bench.open()
    server = servers.servers[0]

    def confine(_command):
        raise ValueError("no such profile")

    server._host = msgspec.structs.replace(server._host, confine=confine)
    assert server.start()
    await server.wait_until_opened()
    assert (server.state, server.failures) == ("failed", 1)
    assert "no such profile" in server.problem


async def test_e14_a_message_that_is_announced_as_huge_is_not_waited_for(tmp_path):
    """Without the limit the reason would be that the program has ended."""
    announce = "import sys; sys.stdout.write('Content-Length: 999999999999\\r\\n\\r\\n')"
    command = [sys.executable, "-c", announce]
    server = await start_server(command, os.environ, str(tmp_path), print, print)
    assert await server.read() == "it sent a message of more than 32 MB"
    await server.stop()


def use_limits(monkeypatch, **limits: float):
    """Start the worker with other limits: a busy machine takes too long for the real ones."""
    settings = "; ".join(f"{name.replace('__', '.')} = {value}" for name, value in limits.items())
    code = WARM + (
        f"import ouro.lsp.connection as connection, ouro.lsp.stdio as stdio; {settings}\n"
        "from ouro.lsp.worker import main; main()"
    )
    monkeypatch.setattr(lsp_servers, "WORKER", ("-c", code))


async def test_e14_server_that_floods_is_ended(bench, monkeypatch):
    use_limits(monkeypatch, stdio__FLOOD_BYTES=5_000_000, stdio__FLOOD_SECONDS=60.0)
    servers = bench.open(mode="flood", seconds=0.1)
    bench.file("a.toy", "one\n")
    await bench.edit("a.toy", "one", "two")
    server = servers.servers[0]
    await until(lambda: server.state == "failed")
    assert "MB in" in server.problem
    assert len(server.log) <= 200


@pytest.mark.parametrize("mode", ["mute", "silent"])
async def test_e14_server_that_never_answers_does_not_hold_up_a_change(bench, mode):
    bench.open(mode=mode, seconds=0.2)
    bench.file("a.toy", "one\n")
    began = time.monotonic()
    assert await bench.edit("a.toy", "one", "wrong") == "Changed a.toy (+1 −1)."
    assert time.monotonic() - began < 30  # not as long as the server takes


async def test_e14_server_that_never_answers_is_ended_after_some_changes(bench, monkeypatch):
    servers = bench.open(mode="silent", seconds=0.1)
    use_limits(monkeypatch, connection__LOAD_SECONDS=0.1, connection__ANSWER_SECONDS=0.1)
    for number in range(2):
        await bench.write(f"{number}.toy", "one\n")
    server = servers.servers[0]
    await until(lambda: server.state == "failed")
    assert "did not answer after 2 changes" in server.problem


async def test_e14_wrong_positions_and_odd_errors_are_left_out(bench):
    bench.open(mode="odd")
    bench.file("a.toy", "one\n")
    text = await bench.edit("a.toy", "one", "one\nwrong x")
    assert "a.toy:2:1: x is wrong" in text
    assert "nowhere" not in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 700


async def test_e14_errors_of_files_of_others_are_ignored(bench):
    bench.open(mode="elsewhere")
    bench.file("a.toy", "one\n")
    text = await bench.edit("a.toy", "one", "wrong x")
    assert "x is wrong" in text
    assert "elsewhere" not in text
    assert "passwd" not in text


def test_e14_a_program_of_the_working_folder_is_not_started(tmp_path, monkeypatch):
    program = tmp_path / "pyright-langserver"
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert find_language_servers({}, tmp_path, ".::bin") == []


def server_in(folder: Path, **options: str) -> dict:
    """An entry of the settings with a copy of the server in the project, which its sandbox shows."""
    program = shutil.copy(SERVER, folder)
    return {
        "command": sys.executable,
        "args": [program, json.dumps(options)],
        "languages": {".toy": "toy"},
    }


def test_e14_server_of_a_project_that_is_not_trusted_is_not_started(ouro):
    log = ouro.folder / "log"
    servers = {"toy": server_in(ouro.folder, log=str(log))}
    (ouro.folder / ".ouro").mkdir()
    config = ouro.folder / ".ouro" / "config.yaml"
    config.write_text(yaml.safe_dump({"lsp": {"servers": servers}}))
    (ouro.folder / "a.toy").write_text("one\n")
    ouro.server.script([Call("lsp", {"action": "symbols", "path": "a.toy"}), "Done."])
    ouro.more["OURO_LSP_ENABLED"] = "true"
    done = ouro.headless("--no-trust", "-p", "which symbols?")
    assert done.out == "Done.\n", done
    assert not log.exists()
    ouro.server.script([Call("lsp", {"action": "symbols", "path": "a.toy"}), "Done."])
    done = ouro.headless("--trust", "-p", "which symbols?")
    assert log.exists(), done


def test_e14_server_of_the_user_reads_no_project_that_is_not_trusted(ouro):
    """A language server runs what a project configures: build scripts, plugins."""
    log = ouro.home / "log"
    entry = server_in(ouro.home, log=str(log))
    (ouro.home / "config.yaml").write_text(yaml.safe_dump({"lsp": {"servers": {"toy": entry}}}))
    (ouro.folder / "AGENTS.md").write_text("Say please.\n")
    (ouro.folder / "a.toy").write_text("one\n")
    ouro.server.script([Call("lsp", {"action": "symbols", "path": "a.toy"}), "Done."])
    ouro.more |= {"OURO_LSP_ENABLED": "true", "OURO_SANDBOX_ENABLED": "false"}
    done = ouro.headless("--no-trust", "-p", "which symbols?")
    assert done.out == "Done.\n", done
    assert not log.exists()
    ouro.server.script([Call("lsp", {"action": "symbols", "path": "a.toy"}), "Done."])
    ouro.headless("--trust", "-p", "which symbols?")
    assert log.exists()


def test_e14_servers_run_in_the_sandbox(ouro):
    """The server may write in the workspace, but not beside it."""
    beside, inside = ouro.home / "beside", ouro.folder / "inside"
    entry = server_in(ouro.folder)
    script = 'touch "$0" "$1"; shift; exec "$@"'
    command = ["-c", script, str(beside), str(inside), entry["command"], *entry["args"]]
    entry |= {"command": "/bin/sh", "args": command}
    (ouro.home / "config.yaml").write_text(yaml.safe_dump({"lsp": {"servers": {"toy": entry}}}))
    (ouro.folder / "a.toy").write_text("one\n")
    ouro.server.script([Call("lsp", {"action": "symbols", "path": "a.toy"}), "Done."])
    ouro.more["OURO_LSP_ENABLED"] = "true"
    done = ouro.headless("--mode", "edit", "-p", "which symbols?")
    assert done.code == 0, done
    assert ouro.server.requests[1].results[-1] == "No symbols."
    assert inside.exists()
    assert not beside.exists()
