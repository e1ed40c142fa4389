from pathlib import Path

import pytest

from ouro.extensions import CommandRegistry, CustomCommand, ExtensionFile, own_rule, prompt_of


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Bash(git add:*)", "shell(git add *)"),
        ("Bash(npm test)", "shell(npm test)"),
        ("Bash", "shell"),
        ("Bash(*)", "shell"),
        ("Edit", "write"),
        ("Write(src/**)", "write(src/**)"),
        ("WebFetch(domain:docs.example)", "web_fetch(docs.example)"),
        ("mcp__github__get_issue", "mcp(github.get_issue)"),
        ("mcp__github", "mcp(github.*)"),
        ("shell(git *)", "shell(git *)"),
        ("no rule", ""),
    ],
)
def test_claude_code_tool_maps_to_an_ouro_rule(theirs, ours):
    assert own_rule(theirs) == ours


@pytest.mark.parametrize(
    "written",
    ["Bash(git add:*), Read", "Bash(git add:*) Read", ["Bash(git add:*)", "Read"]],
)
@pytest.mark.parametrize("source", ["user", "project", "plugin"])
def test_r2_allowed_tools_apply_only_to_user_commands(tmp_path, written, source):
    file = ExtensionFile("x", tmp_path / "x.md", {"allowed-tools": written}, "Go.", source)
    assert prompt_of(file, "").allow == (("shell(git add *)", "read") if source == "user" else ())


def command(name, place):
    async def prompt(_arguments):
        raise AssertionError

    return CustomCommand(name, "", "", place, prompt)


def test_server_commands_are_dynamic_and_cannot_replace_others():
    servers = []
    registry = CommandRegistry(
        [lambda: [command("Ship", "a.md")], lambda: servers], lambda: ["compact"]
    )
    assert [found.name for found in registry.commands()] == ["Ship"]
    servers += [
        command("github:review", "MCP server github"),
        command("ship", "b"),
        command("Compact", "c"),
    ]
    assert [found.name for found in registry.commands()] == ["github:review", "Ship"]
    assert registry.find("SHIP").place == "a.md"
    assert registry.problems() == [
        "Two are named /ship: a.md is used, b is not. Rename one.",
        "c is not used: /Compact is a command of ouro. Rename it.",
    ]


def sent(body, typed, **meta):
    pieces = prompt_of(ExtensionFile("x", Path("x.md"), meta, body, "user"), typed).pieces
    return "".join(piece if isinstance(piece, str) else f"<{piece.what}>" for piece in pieces)


@pytest.mark.parametrize(
    ("body", "typed", "meta", "text"),
    [
        ("$1 to $2.", "a 'b c'", {}, "a to b c."),
        ("$0 to $1: $ARGUMENTS[1]", "a 'b c'", {}, "a to b c: b c"),
        ("Only $ARGUMENTS[0].", "a b", {}, "Only a."),
        ("Fix $issue on $branch.", "12", {"arguments": ["issue", "branch"]}, "Fix 12 on ."),
        ("Fix $issue.", "12", {"arguments": "issue branch"}, "Fix 12."),
        ("It costs $10, not $HOME.", "a", {}, "It costs $10, not $HOME.\n\nArguments: a"),
        ("Now:\n```!\ndate\nls $1\n```\nEnd.", "src", {}, "Now:\n<date\nls src>\nEnd."),
        ("!`log $ARGUMENTS`", "don't; rm x", {}, """<log 'don'"'"'t;' rm x>"""),
        ('!`log "$ARGUMENTS" $2`', "'$(a) b' c", {}, r'<log "\$(a) b c" c>'),
        ("!`f() { log $1; }; f a` $1", "", {}, "<f() { log $1; }; f a> "),
    ],
)
def test_arguments_are_substituted_as_in_claude_code(body, typed, meta, text):
    assert sent(body, typed, **meta) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("Now: !`date` and !`ls`.", "Now: <date> and <ls>."),
        ("```\n!`git diff`\n```\n", "```\n<git diff>\n```\n"),
        ("- Use `!` before it\n- See `x`", "- Use `!` before it\n- See `x`"),
        ("Add `!` after the type: `feat!:`", "Add `!` after the type: `feat!:`"),
        ("(`PR`, `ship !`) = long, `terse`", "(`PR`, `ship !`) = long, `terse`"),
        ("Write `` !`date` `` here.", "Write `` !`date` `` here."),
        ("KEY=!`date` Note!`date`", "KEY=!`date` Note!`date`"),
        ("`$1` `@a.md` @b.md", "`x` `@a.md` <b.md>"),
    ],
)
def test_inline_code_is_neither_run_nor_inserted(body, text):
    assert sent(body, "x").removesuffix("\n\nArguments: x") == text
