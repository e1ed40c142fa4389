"""Tool names in rules and in definitions of subagents."""

import pytest

from ouro.errors import UsageError
from ouro.extensions import demand_tools, load_agents


def test_rule_with_an_unknown_tool_is_refused_with_a_hint():
    demand_tools(
        ("shell(git *)", "write(src/**)", "edit", "net(*.org)", "mcp(github.*)", "we*", "run")
    )
    demand_tools(("stamp(x)",), ["stamp"])
    hints = (
        ("foo", "There are: read,"),
        ("Bash(ls:*)", "mean `shell(ls *)`?"),
        ("Edit(src/**)", "mean `write(src/**)`?"),
        ("Read(/keys/**)", "mean `read(./keys/**)`?"),
        ("Read(//etc/**)", "mean `read(/etc/**)`?"),
    )
    for rule, hint in (*hints, ("shel(ls)", "mean shell"), ("stamp(x)", "There are")):
        with pytest.raises(UsageError) as refused:
            demand_tools((rule,))
        assert f"in the rule `{rule}` is not a tool of ouro" in refused.value.message
        assert hint in refused.value.hint


def test_builtin_agents_name_only_existing_tools():
    kinds, problems = load_agents([])
    assert problems == ()
    assert {kind.name: kind.tools for kind in kinds}["plan"] == (
        "read",
        "glob",
        "grep",
        "shell",
        "memory_search",
    )
