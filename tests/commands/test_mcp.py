"""`ouro mcp` and `/mcp`: list, test, switch, approve, add, import."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from ouro.safety import Confinement
from ouro.utils.ouro_paths import get_home

FAKE = str(Path(__file__).parent.parent / "fakes" / "mcp_stdio_server.py")


def run(*words, capsys=None):
    """Run `ouro mcp WORDS` in this process; returns its exit code and output."""
    from ouro.cli import main

    code = main(["mcp", *words])
    read = capsys.readouterr()
    return code, read.out, read.err


@pytest.fixture
def shell(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("ouro.commands.mcp._LIST_SECONDS", 90.0)  # the machine may be busy
    return lambda *words: run(*words, capsys=capsys)


def test_a_server_is_added_tested_listed_and_removed(shell):
    given = json.dumps({"tools": ["echo", "fail"]})
    assert "Add one" in shell("list")[1]
    hint = "Add one: `ouro mcp add NAME -- COMMAND`; `ouro help mcp` says more."
    assert shell("show", "demo")[2] == f"ouro: There is no MCP server `demo`.\n{hint}\n"
    assert "Usage: ouro mcp add NAME -- COMMAND" in shell("add", "demo")[2]
    code, out, _ = shell("add", "demo", "--env", "TOKEN=secret", "--", sys.executable, FAKE, given)
    assert code == 0
    assert "Added demo" in out
    assert "2 tools, about" in shell("list")[1]
    assert (get_home() / "mcp.json").stat().st_mode & 0o777 == 0o600
    code, out, _ = shell("test", "demo")
    assert code == 0, out
    assert "fake 1.0, protocol 2025-11-25" in out
    assert "read-only" in out
    listed = json.loads(shell("list", "--json")[1])
    assert (listed[0]["name"], listed[0]["tools"]) == ("demo", 2)
    assert f"2 tools, about {listed[0]['tokens']} tokens" in shell("list")[1]
    assert "secret" not in shell("list")[1] + json.dumps(listed) + shell("show", "demo")[1]
    assert shell("add", "demo", "--url", "https://x.example")[0] == 2  # it already exists
    assert "Removed demo" in shell("remove", "demo")[1]
    assert shell("remove", "demo")[0] == 2


def test_a_server_that_was_never_connected_is_connected_to_be_shown(shell):
    shell("add", "demo", "--", sys.executable, FAKE, json.dumps({"tools": ["echo", "fail"]}))
    code, out, _ = shell("show", "demo")
    assert (code, "echo" in out, "fake 1.0" in out) == (0, True, True)
    shell("add", "bad", "--", sys.executable, FAKE, '{"start": "exit"}')
    code, out, _ = shell("show", "bad")
    assert (code, "exit code 7" in out) == (1, True)


def test_failing_server_shows_reason_and_log(shell):
    shell("add", "bad", "--", sys.executable, FAKE, '{"start": "exit"}')
    code, out, _ = shell("test", "bad")
    assert code == 1
    assert "exit code 7" in out
    assert "no such database" in out
    assert (
        "exit code 7" in (get_home() / "logs" / "ouro.log").read_text()
    )  # in the log, not on the screen


def test_no_password_or_key_in_an_address_is_shown_or_logged(shell):
    address = "http://bo:hunter2@127.0.0.1:9/mcp?key=abc123&team=core"
    shell("add", "demo", "--url", address)
    texts = [
        text
        for words in (("list",), ("show", "demo"), ("test", "demo"))
        for text in shell(*words)[1:]
    ]
    texts += [path.read_text() for path in (get_home() / "logs").rglob("*.log")]
    shown = "\n".join(texts)
    assert "http://***@127.0.0.1:9/mcp?key=***&team=***" in shown
    assert not any(secret in shown for secret in ("hunter2", "abc123", "bo:"))


def test_r2_sandboxed_server_is_tested_in_the_sandbox(shell, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    if not Confinement(Path.cwd(), tmp_path / "state").is_on:
        pytest.skip("no sandbox works here")
    get_home().mkdir(exist_ok=True)
    for name, is_confined in (("boxed", True), ("free", False)):
        entry = {
            "command": "sh",
            "args": ["-c", f"touch {tmp_path / name}"],
            "sandbox": is_confined,
        }
        (get_home() / "mcp.json").write_text(json.dumps({"mcpServers": {name: entry}}))
        assert shell("test", name)[0] == 1  # it is not a server
    assert not (tmp_path / "boxed").exists()
    assert (tmp_path / "free").exists()


@pytest.mark.parametrize(("words", "entry"), [
    (["-e", "K=v=w", "x", "--", "run", "-e", "-p", "1", "--", "--flag"],
     {"command": "run", "args": ["-e", "-p", "1", "--", "--flag"], "env": {"K": "v=w"}}),
    (["-s", "user", "-t", "stdio", "x", "--", "run"], {"command": "run"}),
    (["--transport", "http", "x", "https://x.example", "-H", "A: b"],
     {"url": "https://x.example", "headers": {"A": "b"}}),
    (["-t", "sse", "x", "https://x.example"], {"url": "https://x.example", "type": "sse"}),
])  # fmt: skip
def test_a_server_is_added_with_the_words_of_other_programs(shell, words, entry):
    code, _out, err = shell("add", *words)
    assert code == 0, err
    assert json.loads((get_home() / "mcp.json").read_text())["mcpServers"] == {"x": entry}


@pytest.mark.parametrize("words", [
    ["add", "no name", "--url", "https://x.example"], ["add", "x"], ["add", "x", "--url", "ftp://x"],
    ["add", "x", "--url", "https://x.example", "--header", "nothing"], ["show", "nobody"],
    ["add", "x", "--sse", "--", "run"], ["add", "x", "--header", "A:b", "--", "run"],
    ["add", "x", "--url", "https://x.example", "--env", "A=b"],
    ["add", "x", "-t", "stdio", "https://x.example"], ["add", "x", "-t", "http", "--", "run"],
])  # fmt: skip
def test_invalid_arguments_are_refused(shell, words):
    assert shell(*words)[0] == 2
    assert not (get_home() / "mcp.json").exists()


def test_servers_and_tools_can_be_switched_off_permanently(shell):
    shell("add", "demo", "--", sys.executable, FAKE, '{"tools": ["echo"]}')
    shell("test", "demo")
    assert "demo.echo is off" in shell("off", "demo.echo")[1]
    assert shell("off", "demo.nothing")[0] == 2
    assert "off" in shell("show", "demo")[1]
    assert "demo is off" in shell("off", "demo")[1]
    assert json.loads((get_home() / "mcp.json").read_text())["off"] == ["demo.echo", "demo"]
    assert "switched off" in shell("test", "demo")[1]
    shell("on", "demo")
    assert json.loads((get_home() / "mcp.json").read_text())["off"] == ["demo.echo"]


def test_e1_a_changed_tool_is_shown_and_approved(shell, monkeypatch):
    shell(
        "add",
        "demo",
        "--env",
        "DESCRIBE=${NEW:-}",
        "--",
        sys.executable,
        FAKE,
        '{"tools": ["echo"]}',
    )
    shell("test", "demo")
    assert "changed nothing" in shell("approve", "demo", "--yes")[1]
    monkeypatch.setenv("NEW", "Something else.")
    assert "changed" in shell("test", "demo")[1]
    out = shell("approve", "demo", "--yes")[1]
    assert "+Something else." in out
    assert "changed nothing" in shell("approve", "demo", "--yes")[1]


def test_servers_of_other_programs_are_imported(shell, tmp_path):
    (tmp_path / ".claude.json").write_text(json.dumps({
        "mcpServers": {"one": {"type": "stdio", "command": "one", "args": ["-x"], "env": {"A": "b"}}},
        "projects": {str(tmp_path): {"mcpServers": {"two": {"type": "sse", "url": "https://two.example"}}}},
    }))  # fmt: skip
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": "other"}}}))
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(
        '[mcp_servers.three]\nurl = "https://three.example"\nbearer_token_env_var ='
        ' "KEY"\nenabled_tools = ["a"]\n'
    )
    code, out, _ = shell("import", "--all")
    assert code == 0, out
    written = json.loads((get_home() / "mcp.json").read_text())["mcpServers"]
    assert written == {
        "one": {"command": "one", "args": ["-x"], "env": {"A": "b"}},
        "two": {"url": "https://two.example", "type": "sse"},
        "three": {
            "url": "https://three.example",
            "headers": {"Authorization": "Bearer ${KEY}"},
            "tools": ["a"],
        },
    }
    assert "all known" in shell("import", "--all")[1]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"mcpServers": 3}', '{"mcpServers": {"x": {"command": 3}}}']
)
def test_broken_file_of_another_program_is_reported(shell, tmp_path, text):
    (tmp_path / ".claude.json").write_text(text)
    code, _, err = shell("import", "--all")
    assert code == 0
    assert ".claude.json" in err


def test_invalid_entry_of_another_program_skips_only_that_entry(shell, tmp_path):
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(
        '[mcp_servers.bad]\ncommand = "x"\ntool_timeout_sec = "soon"\nenv_http_headers = 3\n'
        '[mcp_servers.good]\ncommand = "y"\ntool_timeout_sec = 2.5\n'
    )
    _, _, err = shell("import", "--all")
    assert "config.toml is left out. `bad`: Expected `int`" in err
    written = json.loads((get_home() / "mcp.json").read_text())["mcpServers"]
    assert written == {"good": {"command": "y", "timeout_seconds": 2}}


def test_settings_show_servers_without_their_secrets(shell, capsys):
    from ouro.cli import main

    get_home().mkdir(mode=0o700)
    server = {"command": "one", "env": {"TOKEN": "very-secret"}}
    (get_home() / "config.yaml").write_text(yaml.safe_dump({"mcp": {"servers": {"demo": server}}}))
    main(["config"])
    main(["config", "--json"])
    out = capsys.readouterr().out
    assert "demo" in out
    assert "very-secret" not in out


def test_the_list_connects_and_shows_state_tools_tokens_and_latency(shell):
    for name, given in (("good", {"tools": ["echo"]}), ("bad", {"start": "exit"}), ("no", {})):
        shell("add", name, "--", sys.executable, FAKE, json.dumps(given))
    shell("off", "no")
    code, out, _ = shell("list")
    lines = {line.split()[0].strip("`"): line for line in out.splitlines()}
    assert code == 0
    assert "ready" in lines["good"]
    assert "1 tool, about" in lines["good"]
    assert " ms" in lines["good"]
    assert "failed" in lines["bad"]
    assert "off" in lines["no"]
    assert "ended with exit code 7" in out
    found = {item["name"]: item for item in json.loads(shell("list", "--json")[1])}
    assert found["good"]["latency_ms"] >= 0
    assert found["bad"]["state"] == "failed"
