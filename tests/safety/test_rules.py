"""Permission rules."""

from pathlib import Path

import pytest

from ouro.errors import ConfigError
from ouro.extensions import demand_tools
from ouro.safety import Effect, parse_rule, parse_rules

ROOT = Path("/srv/app")


@pytest.mark.parametrize(
    ("rule", "text", "matches"),
    [
        ("shell(git status*)", "git status --short", True),
        ("shell(git status*)", "git stash", False),
        ("shell(git push *)", "git push", True),
        ("shell(git push *)", "git push origin main", True),
        ("shell(git push *)", "git pushx", False),
        ("shell(git push:*)", "git push -q", True),
        ("shell(pytest)", "pytest -q", False),
        ("shell(make test?)", "make test1", True),
        ("shell(echo a.b)", "echo axb", False),
        ("shell", "anything at all", True),
    ],
)
def test_a_rule_matches_whole_commands(rule, text, matches):
    assert parse_rule(rule).matches_line(text) is matches


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("write(src/**)", "/srv/app/src/a/b.py", True),
        ("write(src/**)", "/srv/app/src", True),
        ("write(src/)", "/srv/app/src/a.py", True),
        ("write(src/*)", "/srv/app/src/a.py", True),
        ("write(src/*.py)", "/srv/app/src/a/b.py", False),
        ("write(src/**/*.py)", "/srv/app/src/a/b.py", True),
        ("write(src/**/*.py)", "/srv/app/src/b.py", True),
        ("write(src/**)", "/srv/app/srcs/a.py", False),
        ("write(src/**)", "/srv/other/src/a.py", False),
        ("read(.env)", "/srv/app/deep/.env", True),
        ("read(*.pem)", "/srv/app/keys/x.pem", True),
        ("write(./a.py)", "/srv/app/deep/a.py", False),
        ("write(./a.py)", "/srv/app/a.py", True),
        ("read(/etc/**)", "/etc/hosts", True),
        ("read", "/anywhere", True),
    ],
)
def test_a_rule_matches_paths(rule, path, matches):
    assert parse_rule(rule).matches_path(Path(path), ROOT) is matches


def test_tilde_in_a_rule_means_the_home_folder(home):
    assert parse_rule("read(~/notes/**)").matches_path(home / "notes" / "a.md", ROOT)
    assert not parse_rule("read(~/notes/**)").matches_path(home / "a.md", ROOT)


@pytest.mark.parametrize(
    ("rule", "url", "matches"),
    [
        ("web_fetch(docs.python.org)", "https://docs.python.org/3/", True),
        ("web_fetch(docs.python.org)", "https://docs.python.org.evil.example/", False),
        ("web_fetch(docs.python.org)", "https://docs.python.org@evil.example/", False),
        ("web_fetch(*.python.org)", "https://docs.PYTHON.org:443/x", True),
        ("web_fetch(https://a.example/x/*)", "https://a.example/x/y/z", True),
        ("web_fetch(https://a.example/x/*)", "http://a.example/x/y", False),
        ("web_fetch(https://a.example/x/*)", "https://a.example/x/%2E./y", False),
        ("web_fetch(https://a.example/x/*)", "https://a.example/y/../x/z", True),
        ("web_fetch(https://a.example/x/*)", "https://u@A.example:443/x/y#z", True),
        ("web_fetch(https://a.example/x/*)", "https://a.example:8443/x/y", False),
        ("web_fetch(https://*.a.example/*)", "https://b.a.example/x", True),
        ("web_fetch(https://*.a.example/*)", "https://evil.example/x.a.example/", False),
        ("web_fetch(https://*.a.example/*)", "https://evil.example?x.a.example/", False),
        ("web_fetch(https://**.a.example/*)", "https://evil.example/x.a.example/", False),
        ("web_fetch(https://a.example*)", "https://a.example/x", True),
        ("web_fetch(https://a.example*)", "https://a.example@evil.example/x", False),
        ("web_fetch(https://a.example)", "https://a.example", True),
        ("web_fetch(https://a.example)", "https://a.example/x", False),
        ("web_fetch(*)", "https://[", True),
        ("web_fetch(https://*)", "https://[", False),
        ("web_fetch(https://[::1]:8000/*)", "https://[::1]:8000/x", True),
    ],
)
def test_x10_a_rule_matches_urls_by_their_host(rule, url, matches):
    assert parse_rule(rule).matches_url(url) is matches


@pytest.mark.parametrize(
    ("rule", "tool", "effect", "covers"),
    [
        ("write(x/**)", "apply_patch", Effect.WRITE, True),
        ("edit", "edit", Effect.WRITE, True),
        ("edit", "write", Effect.WRITE, False),
        ("read", "grep", Effect.READ, True),
        ("shell(ls)", "shell", Effect.RUN, True),
        ("shell(ls)", "write", Effect.WRITE, False),
        ("mcp__jira__*", "mcp__jira__search", Effect.NET, True),
    ],
)
def test_rule_covers_tools_or_effects(rule, tool, effect, covers):
    assert parse_rule(rule).covers(tool, effect) is covers


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("mcp__github__get_issue", "mcp(github.get_issue)"),
        ("mcp__docs-server__a__b", "mcp(docs-server.a__b)"),
        ("mcp__github", "mcp(github.*)"),
        ("mcp__github__*", "mcp__github__*"),
    ],
)
def test_the_name_of_an_mcp_tool_elsewhere_is_a_rule(name, rule):
    assert str(parse_rule(name)) == rule
    demand_tools([name])  # does not raise


def test_several_rules_are_parsed_from_one_text():
    texts = [
        str(rule)
        for rule in parse_rules("shell(git add *), shell(git commit -m a, b), write(src/**)")
    ]
    assert texts == ["shell(git add *)", "shell(git commit -m a, b)", "write(src/**)"]


@pytest.mark.parametrize(
    "text", ["", "shell(", "shell()", "shell)x(", "two words", "(x)", "shell( )"]
)
def test_invalid_rule_is_refused_with_a_hint(text):
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)
    assert "shell(git status *)" in caught.value.hint
