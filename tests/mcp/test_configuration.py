"""The definitions of servers: an error affects one server only, and is reported with its file."""

import json

import pytest

from ouro.errors import ConfigError
from ouro.mcp import find_servers
from ouro.mcp.configuration import approval_key
from ouro.settings import McpServerSettings

GOOD = McpServerSettings(command="good")


def project(root, servers):
    (root / ".mcp.json").write_text(
        servers if isinstance(servers, str) else json.dumps({"mcpServers": servers})
    )
    return root


@pytest.mark.parametrize(("entry", "why"), [
    ({"command": 5}, "`bad`: Expected `str`"),
    ("x", "`bad` must be an object with `command` or `url`"),
    ({"command": "x", "url": "http://y"}, "bad needs `command` or `url`, and not both"),
    ({"command": "x", "timeout_seconds": 0}, "`timeout_seconds` of bad must be more than 0, not 0"),
    ({"url": "file:///etc"}, "begins with http:// or https://"),
    ({"url": "http://[host]/mcp"}, "The `url` of bad is not valid"),
])  # fmt: skip
def test_invalid_entry_is_left_out_alone(home, tmp_path, entry, why):
    found = find_servers(
        {"own": GOOD}, project(tmp_path, {"bad": entry, "there": {"command": "x"}})
    )
    assert [*found.servers] == ["own", "there"]
    [notice] = found.notices
    assert notice.startswith(f"An MCP server in {tmp_path}/.mcp.json is left out. ")
    assert why in notice


def test_numbers_and_truth_values_of_variables_are_texts(home, tmp_path):
    entry = {"command": "x", "env": {"PORT": 3000, "DEBUG": True, "NAME": "a"}}
    found = find_servers({}, project(tmp_path, {"api": entry}))
    assert found.servers["api"].env == {"PORT": "3000", "DEBUG": "true", "NAME": "a"}


def test_the_settings_may_name_transport_and_state_as_other_programs(home, tmp_path):
    old = McpServerSettings(url="http://x", type="sse")
    stopped = McpServerSettings(command="x", type="stdio", disabled=True)
    found = find_servers({"old": old, "stopped": stopped}, None, from_project={"old": old})
    assert found.servers == {
        "old": McpServerSettings(url="http://x", transport="sse"),
        "stopped": McpServerSettings(command="x", enabled=False),
    }
    assert found.projects == {"old"}


def test_an_argument_may_be_longer_than_a_path(tmp_path):
    script = McpServerSettings(command="sh", args=("-c", f"exec server # {'x' * 5000}"))
    assert approval_key("long", script, tmp_path).startswith("long-")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("a b", "a_b"),
        ("aws.docs-server", "aws_docs-server"),
        ("../up", "up"),
        ("a__b", "a_b"),
        ("awslabs.aws-documentation-mcp-server", "awslabs_aws-documentation_c94c58"),
        ("日本", "server_cf2abf"),
    ],
)
def test_a_name_that_tools_cannot_have_is_changed(home, tmp_path, name, short):
    found = find_servers({}, project(tmp_path, {name: {"command": "x"}}))
    [used] = found.servers
    assert used == short
    assert found.projects == {used}


def test_of_two_servers_with_the_same_short_name_one_is_left_out(home, tmp_path):
    found = find_servers({}, project(tmp_path, {"a.b": {"command": "x"}, "a b": {"command": "y"}}))
    assert found.servers == {"a_b": McpServerSettings(command="x")}
    assert found.notices[0].endswith("Two are named a_b.")


@pytest.mark.parametrize(("text", "why"), [("{", "is not JSON"), ("[]", "an object is expected"),
                                           ('{"mcpServers": []}', "must be an object")])  # fmt: skip
def test_broken_project_file_affects_only_its_own_servers(home, tmp_path, text, why):
    found = find_servers({"own": GOOD}, project(tmp_path, text))
    assert [*found.servers] == ["own"]
    [notice] = found.notices
    assert f"{tmp_path}/.mcp.json" in notice
    assert why in notice
    assert notice.endswith("None of its MCP servers is used.")


@pytest.mark.parametrize(
    "table", [{"good": {"command": "x"}}, {"servers": {"good": {"command": "x"}}}]
)
def test_a_file_without_the_key_of_servers_is_reported(home, tmp_path, table):
    found = find_servers({"own": GOOD}, project(tmp_path, json.dumps(table)))
    assert [*found.servers] == ["own"]
    [notice] = found.notices
    assert f"{tmp_path}/.mcp.json has no `mcpServers`. Write its servers as " in notice


def test_an_entry_that_other_programs_disable_is_not_enabled(home, tmp_path):
    entries = {"a": {"command": "x", "disabled": True}, "b": {"command": "x", "disabled": False}}
    found = find_servers({}, project(tmp_path, entries))
    assert [server.enabled for server in found.servers.values()] == [False, True]


def test_user_definition_wins_and_the_other_is_reported(home, tmp_path):
    found = find_servers(
        {"own": GOOD},
        project(tmp_path, {"own": {"command": "evil"}}),
        {"tools": {"own": {"url": "x"}}},
    )
    assert found.servers == {"own": GOOD}
    assert "another definition is used, not that in " in found.notices[-1]


def test_switches_that_cannot_be_read_start_no_server(home, tmp_path):
    (home / ".ouro").mkdir()
    (home / ".ouro" / "mcp.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        find_servers({"own": GOOD}, project(tmp_path, {"there": {"command": "x"}}))
