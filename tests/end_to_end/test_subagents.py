"""Subagents in the real program: three in parallel, one killed, one at its limit; a hook that
refuses; MCP tools.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path

import pytest
import yaml
from fakes.model_server import Call, Reply
from fakes.ouro_program import ANTHROPIC

from ouro.assemble_subagents import select_tools
from ouro.tools.subagent import AgentSpec

FAKE = str(Path(__file__).parent.parent / "fakes" / "mcp_stdio_server.py")
NAMES = ("one", "two", "three")


def start(name: str, agent: str = "explore") -> Call:
    return Call(
        "subagent", {"task": f"look at {name}", "prompt": f"Look into #{name}.", "agent": agent}
    )


def asked_of(request) -> str:
    return "\n".join(
        str(message["content"]) for message in request.body["messages"] if message["role"] == "user"
    )


def results_in(request) -> int:
    return sum(message["role"] == "tool" for message in request.body["messages"])


@pytest.mark.skipif(not shutil.which("jq"), reason="the hook uses jq")
def test_parallel_subagents_with_interrupt_limit_and_refusing_hook(ouro):
    held = threading.Event()
    refuses = (
        "jq -e '.tool_input.file_path | test(\"generated\")' > /dev/null && { echo 'made by make'"
        " >&2; exit 2; }; true"
    )
    config = {
        "subagents": {"max_cost": 0.001},
        "hooks": [{"event": "before-tool", "matcher": "write", "command": refuses}],
    }
    (ouro.home / "config.yaml").write_text(yaml.safe_dump(config))
    models = yaml.safe_load((ouro.home / "models.yaml").read_text())
    models["models"]["openai/test-model"]["prices"] = {"input": 2, "output": 10}
    (ouro.home / "models.yaml").write_text(yaml.safe_dump(models))

    def script(request):
        text = asked_of(request)
        if "#one" in text:
            return Call("glob", {"pattern": "*.py"}) if not results_in(request) else "One is found."
        if "#two" in text:
            return Reply("", [Call("glob", {"pattern": "*.py"})], hold=held)
        if "#three" in text:
            return Call("glob", {"pattern": f"*{results_in(request)}"})
        if "write it" in text:
            return (
                "I see why."
                if "made by make" in json.dumps(request.body["messages"])
                else Call("write", {"path": "generated/a.py", "content": "x"})
            )
        return (
            "All reported." if results_in(request) else Reply("", [start(name) for name in NAMES])
        )

    ouro.server.script(script)
    terminal = ouro.screen("--mode", "edit", size=(40, 120))
    terminal.send("explore it\r")
    terminal.until_shows("explore-1: look at one", "explore-2: look at two", "of $0.001")
    terminal.send("/tasks kill explore-2\r")
    terminal.until_shows("ended by the user", "Ended explore-2.", "All reported.")
    held.set()
    terminal.send("write it\r")
    terminal.until_shows("A hook refused this: made by make", "I see why.")
    assert not (ouro.folder / "generated").exists()
    terminal.send("/usage\r")
    terminal.until_shows("Of this session: 3 subagents")
    assert terminal.leave() == 0


def test_a_subagent_uses_the_tools_of_servers(ouro):
    server = {"command": sys.executable, "args": [FAKE, json.dumps({"tools": ["echo"]})]}
    (ouro.home / "config.yaml").write_text(yaml.safe_dump({"mcp": {"servers": {"demo": server}}}))

    def script(request):
        if "#echo" in asked_of(request):
            said = Call("mcp_call", {"tool": "demo.echo", "arguments": {"text": "heron"}})
            return said if not results_in(request) else f"It says {request.results[-1]}."
        return "Done." if results_in(request) else start("echo", "general")

    ouro.server.script(script)
    done = ouro.headless("--allow", "mcp(demo.*)", "-p", "go", "--output", "stream-json")
    assert done.code == 0, done
    assert "It says heron." in ouro.server.requests[-1].results[-1]
    progress = [line for line in done.lines if line["type"] == "subagent_progress"]
    assert (progress[-1]["id"], progress[-1]["state"], progress[-1]["calls"]) == (
        "general-1",
        "done",
        1,
    )
    assert {line["call_id"] for line in progress} != {""}


@pytest.mark.parametrize("excluded", ["mcp__demo__*", "mcp__demo", "mcp__demo__echo"])
def test_e6_a_subagent_never_has_the_excluded_tools_of_servers(ouro, excluded):
    server = {"command": sys.executable, "args": [FAKE, json.dumps({"tools": ["echo"]})]}
    (ouro.home / "config.yaml").write_text(yaml.safe_dump({"mcp": {"servers": {"demo": server}}}))
    (ouro.home / "agents").mkdir()
    text = f"---\ndescription: Finds.\ndisallowedTools: {excluded}\n---\nFind it.\n"
    (ouro.home / "agents" / "finder.md").write_text(text)

    def script(request):
        if "#echo" in asked_of(request):
            said = Call("mcp_call", {"tool": "demo.echo", "arguments": {"text": "heron"}})
            return said if not results_in(request) else f"It says {request.results[-1]}."
        return "Done." if results_in(request) else start("echo", "finder")

    ouro.server.script(script)
    done = ouro.headless("--allow", "mcp(demo.*)", "-p", "go")
    assert done.code == 0, done
    assert "The rule `deny mcp(demo." in ouro.server.requests[-1].results[-1]


def test_a_kind_gets_the_tools_of_servers_that_it_names_beyond_the_budget(ouro):
    server = {"command": sys.executable, "args": [FAKE, json.dumps({"tools": ["echo"]})]}
    settings = {"mcp": {"servers": {"demo": server}, "tool_budget_tokens": 1}}
    (ouro.home / "config.yaml").write_text(yaml.safe_dump(settings))
    (ouro.home / "agents").mkdir()
    for name, tools in (("finder", "mcp__demo"), ("lost", "mcp__other__find")):
        text = f"---\ndescription: Finds.\ntools: {tools}\n---\nFind it.\n"
        (ouro.home / "agents" / f"{name}.md").write_text(text)

    def script(request):
        if "#echo" in asked_of(request):
            said = Call("mcp__demo__echo", {"text": "heron"})
            return said if not results_in(request) else f"It says {request.results[-1]}."
        steps = [
            Call("tool_search", {"query": "echo"}),
            start("echo", "finder"),
            start("echo", "lost"),
            "Done.",
        ]
        return steps[results_in(request)]

    ouro.server.script(script)
    done = ouro.headless("--allow", "mcp(demo.*)", "-p", "go")
    assert done.code == 0, done
    _found, report, refusal = ouro.server.requests[-1].results
    assert "It says heron" in report
    assert "The agent `lost` has none of its tools: mcp__other__find." in refusal


def test_a_kind_of_subagent_names_tools_of_servers():
    names = ["read", "shell", "mcp__demo__echo", "mcp__demo__fail", "mcp__demo2__echo"]
    tools = dict.fromkeys(names)

    def selected(**fields) -> list[str]:
        spec = AgentSpec(name="x", description="", prompt="", **fields)
        return [*select_tools(spec, tools)]

    assert selected(tools=("read", "mcp__demo__*")) == [
        "read",
        "mcp__demo__echo",
        "mcp__demo__fail",
    ]
    assert selected(tools=("mcp__demo",)) == ["mcp__demo__echo", "mcp__demo__fail"]
    assert selected(without=("mcp__demo__*", "shell")) == ["read", "mcp__demo2__echo"]
    assert selected(without=("mcp__demo",)) == ["read", "shell", "mcp__demo2__echo"]


def test_a_subagent_that_only_reads_is_not_told_to_write_a_plan_for_the_user(ouro):
    def script(request):
        if "#one" in asked_of(request):
            return "One is found."
        return "Done." if results_in(request) else start("one")

    ouro.server.script(script)
    assert ouro.headless("-p", "go", "--mode", "plan").code == 0
    main, subagent = (asked_of(request) for request in ouro.server.requests[:2])
    assert "# Plan: TITLE" in main
    assert "Permission mode: plan (nothing may be changed: read and report)" in subagent


def test_the_usage_of_a_result_has_that_of_subagents(ouro):
    def script(request):
        if "#one" in asked_of(request):
            return "One is found."
        return "Done." if results_in(request) else start("one")

    ouro.server.script(script)
    [result] = ouro.headless("-p", "go", "--output", "json").lines
    assert (result["turns"], result["usage"]["input"], result["usage"]["output"]) == (2, 300, 60)


def test_a_subagent_whose_model_has_no_key_works_with_that_of_the_session(ouro):
    agents = ouro.home.parent / ".claude" / "agents"
    for name, model in (("finder", "haiku"), ("checker", "inherit")):
        agents.mkdir(parents=True, exist_ok=True)
        (agents / f"{name}.md").write_text(
            f"---\nname: {name}\ndescription: Finds things.\nmodel: {model}\n---\nFind it."
        )
    models = yaml.safe_load((ouro.home / "models.yaml").read_text())
    del models["models"][ANTHROPIC]
    (ouro.home / "models.yaml").write_text(yaml.safe_dump(models))
    steps = iter(
        [start("one", "finder"), start("two", "finder"), start("three", "checker"), "Done."]
    )
    ouro.server.script(
        lambda request: "Found." if "Look into #" in asked_of(request) else next(steps)
    )
    done = ouro.headless("-p", "--output", "stream-json", "Find it.")
    assert done.code == 0, done.err
    texts = [line["text"] for line in done.lines if line["type"] == "said"]
    [notice] = [text for text in texts if "subagent" in text]
    assert notice.startswith("The subagent finder has the model of the session, not `haiku`: ")
    bodies = [
        request.body for request in ouro.server.requests if "Look into #" in asked_of(request)
    ]
    assert {body["model"] for body in bodies} == {"test-model"}
    assert len(bodies) == 3
