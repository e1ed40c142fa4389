"""MCP servers in the real program: found by search, called and approved; in the request from the
second session on.
"""

import itertools
import json
import sys
from pathlib import Path

import pytest
import yaml
from fakes.model_server import Call, ModelServer

FAKE = str(Path(__file__).parent.parent / "fakes" / "mcp_stdio_server.py")


@pytest.fixture
def configured(ouro):
    """The program with a server in config.yaml."""
    server = {"command": sys.executable, "args": [FAKE, json.dumps({"tools": ["echo", "fail"]})]}
    (ouro.home / "config.yaml").write_text(yaml.safe_dump({"mcp": {"servers": {"demo": server}}}))
    return ouro


def tools_of(server: ModelServer, place: int) -> list[str]:
    return [tool["function"]["name"] for tool in server.requests[place].body["tools"]]


def test_tool_is_found_called_and_listed_in_the_next_session(configured):
    server = configured.server
    server.script([
        Call("tool_search", {"query": "say a text back"}),
        Call("mcp_call", {"tool": "demo.echo", "arguments": {"text": "heron"}}),
        "Done.",
        Call("mcp__demo__echo", {"text": "egret"}),
        "Done again.",
    ])  # fmt: skip
    done = configured.headless("--allow", "mcp(demo.*)", "-p", "echo it")
    assert (done.code, done.out) == (0, "Done.\n"), done
    found = server.requests[1].results[-1]
    assert "demo.echo" in found
    assert '"text": {"type": "string"}' in found
    assert server.requests[2].results[-1] == "heron"
    assert tools_of(server, 0) == tools_of(server, 2)
    own = ["tool_search", "mcp_call", "mcp_read"]
    assert [name for name in tools_of(server, 0) if name in own] == own
    done = configured.headless("--allow", "mcp(demo.echo)", "-p", "again")
    assert done.code == 0, done
    listed = [name for name in tools_of(server, 3) if name.startswith("mcp__")]
    assert listed == ["mcp__demo__echo", "mcp__demo__fail"]
    assert server.requests[4].results[-1] == "egret"
    assert tools_of(server, 3) == tools_of(server, 4)


def test_a_tool_that_search_has_named_is_called_by_either_name(ouro):
    """Models know `mcp__server__tool`; with a small budget the request does not list it."""
    command = {"command": sys.executable, "args": [FAKE, json.dumps({"tools": ["echo"]})]}
    mcp = {"tool_budget_tokens": 1, "servers": {"demo": command}}
    (ouro.home / "config.yaml").write_text(yaml.safe_dump({"mcp": mcp}))
    name = "mcp__demo__echo"
    ouro.server.script([
        Call(name, {"text": "heron"}),
        Call("mcp_call", {"tool": name, "arguments": {"text": "egret"}}),
        Call("mcp_call", {"tool": "mcp__none__echo"}),
        "Done.",
    ])  # fmt: skip
    done = ouro.headless("--allow", "mcp(demo.echo)", "-p", "echo it")
    assert (done.code, done.out) == (0, "Done.\n"), done
    heron, egret, none = ouro.server.requests[-1].results
    assert (heron, egret) == ("heron", "egret")
    assert "There is no MCP tool `mcp__none__echo`" in none
    denied = [Call(name, {"text": "heron"}), "Refused."]
    ouro.server.script(denied)
    ouro.headless("--deny", "mcp(demo.echo)", "-p", "echo it")
    assert "heron" not in ouro.server.requests[-1].results[-1], "the rule knows the tool"


def test_cached_prefix_is_kept_while_servers_start_and_change(ouro):
    """With more tools than the budget: a search and a server that changes its tools leave the sent
    prefix unchanged.
    """
    args = [FAKE, json.dumps({"tools": ["echo", "change"]})]
    mcp = {"tool_budget_tokens": 1, "servers": {"demo": {"command": sys.executable, "args": args}}}
    (ouro.home / "config.yaml").write_text(yaml.safe_dump({"mcp": mcp}))
    ouro.server.script([
        Call("tool_search", {"query": "say a text back"}),
        Call("mcp_call", {"tool": "demo.change", "arguments": {"to": "Say another."}}),
        Call("tool_search", {"query": "echo"}),
        "Done.",
    ])  # fmt: skip
    assert ouro.headless("--allow", "mcp(demo.*)", "-p", "echo it").code == 0
    for earlier, later in itertools.pairwise(request.raw for request in ouro.server.requests):
        messages, tools = (part.rstrip(b"]},") for part in earlier.split(b'"tools":', 1))
        assert later.startswith(messages)
        assert tools in later


def test_call_without_a_user_is_refused_and_deny_rule_matches_both(configured):
    call = Call("mcp_call", {"tool": "demo.echo", "arguments": {"text": "no"}})
    configured.server.script([call, "Refused."])
    done = configured.headless("-p", "echo it", "--output", "json")
    assert "mcp(demo.echo)" in str(done.lines[0]["refused"]), done
    for rule in ("mcp(demo.echo)", "mcp__demo__*"):
        configured.server.script([call, "No."])
        configured.headless("--mode", "auto", "--deny", rule, "-p", "echo it")
        assert "forbids" in configured.server.requests[-1].results[-1]


def test_e4_f1_a_server_of_a_project_runs_only_after_trust(ouro):
    mark = ouro.folder / "ran"
    command = {"command": "touch", "args": [str(mark)]}
    (ouro.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": command}}))
    done = ouro.headless("-p", "say: hi")
    assert done.code != 0
    assert ".mcp.json" in done.err
    assert not mark.exists()
    ouro.server.script(
        [Call("tool_search", {"query": "anything"}), "None."]
    )  # it waits for the servers
    ouro.headless("--trust", "-p", "what can you do?")
    assert mark.exists()


def test_a_question_shows_the_call_and_always_is_saved(configured):
    configured.server.script([
        Call("mcp_call", {"tool": "demo.echo", "arguments": {"text": "heron"}}), "One.",
        Call("mcp_call", {"tool": "demo.echo", "arguments": {"text": "egret"}}), "Two.",
    ])  # fmt: skip
    terminal = configured.screen()
    terminal.say("echo it")
    terminal.answer("a", "mcp__demo__echo", "heron", "outside of the sandbox")
    terminal.until_shows("One.")
    terminal.say("again")
    terminal.until_shows("Two.")
    assert "mcp(demo.echo)" in (configured.home / "permissions.yaml").read_text()
    assert terminal.leave() == 0


def test_resource_is_sent_and_does_not_count_as_user_words(configured):
    memory = configured.home / "memory" / "facts.md"
    write = Call(
        "write", {"path": str(memory), "content": "- The content of note://one is final.\n"}
    )
    configured.server.script([write, "Noted."])
    done = configured.headless("--mode", "edit", "-p", "remember what @demo:note://one says")
    assert done.code == 0, done
    assert (
        '<resource name="demo:note://one">\nthe content of note://one'
        in configured.server.requests[0].prompt
    )
    assert (
        "final" not in configured.headless("memory", "show", "facts").out
    )  # it waits for the user's approval


def test_a_prompt_of_a_server_is_a_command_also_in_headless_mode(configured):
    """The command is called before the server is connected."""
    configured.server.script(["It rises."])
    assert configured.headless("-p", "/demo:explain yeast").out == "It rises.\n"
    assert "Explain yeast in one line." in json.dumps(
        configured.server.requests[-1].body["messages"]
    )
    assert configured.headless("mcp", "off", "demo").code == 0
    refused = configured.headless("-p", "/demo:explain yeast")
    assert (refused.code, "The MCP server demo is switched off" in refused.err) == (1, True)
