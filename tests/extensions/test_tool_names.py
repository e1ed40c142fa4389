"""Names of tools in rules."""

import pytest

from ouro.errors import UsageError
from ouro.extensions.tool_names import demand_tools


def test_a_rule_that_names_no_tool_is_refused_with_what_was_meant():
    demand_tools(("shell(git *)", "write(src/**)", "edit", "net(*.org)", "mcp(github.*)", "we*", "run"))
    for rule, hint in (("foo", "There are: read,"), ("Bash(ls)", "mean shell?"), ("shel(ls)", "mean shell")):
        with pytest.raises(UsageError) as refused:
            demand_tools((rule,))
        assert f"in the rule `{rule}` is not a tool of ouro" in refused.value.message
        assert hint in refused.value.hint
