import argparse
import errno
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.fake_front_end import FakeFrontEnd
from msgspec.structs import replace

from ouro.commands.all_actions import ACTIONS, COMMAND_NAMES, COMMANDS
from ouro.commands.command_lookup import find_command, listed_commands
from ouro.commands.render import CodeSpan, as_markdown, table
from ouro.commands.slash import dispatch
from ouro.errors import UsageError
from ouro.extensions import CommandRegistry, CustomCommand
from ouro.extensions.commands import _NAMES_ELSEWHERE


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "/usr/bin is full",
        "/tmp",
        "/tmp is full",
        " /help",
        "//",
        "/",
        "/etc/passwd",
        "a /help",
        "/?",
    ],
)
async def test_messages_and_paths_are_no_commands(text):
    front_end = FakeFrontEnd()
    assert await dispatch(front_end, text) is False
    assert (front_end.lines, front_end.shown) == ([], [])


@pytest.mark.parametrize(("text", "hint"), [
    ("ouro update", "There is no command `ouro update`.\nUpdate ouro as it was installed"),
    ("ouro login", "There is no command `ouro login`.\n`ouro models --setup`"),
    ("ouro doctor", "`ouro doctor` is a command for the terminal.\nRun it there, or from here with `!ouro doctor`."),
    ("ouro memory list", "`ouro memory list` is a command for the terminal."),
])  # fmt: skip
async def test_a_shell_command_of_ouro_is_not_sent_to_the_model(text, hint):
    front_end = FakeFrontEnd()
    assert await dispatch(front_end, text)
    [(_level, said)] = front_end.lines
    assert said.startswith(hint)


@pytest.mark.parametrize("text", ["ouro is slow", "ouro memory list is empty, why?", "ouro"])
async def test_a_message_about_ouro_is_sent(text):
    assert await dispatch(FakeFrontEnd(), text) is False


async def test_a_command_runs_with_its_argument():
    front_end = FakeFrontEnd()
    assert await dispatch(front_end, "/rename  Mend the\nparser ")
    assert front_end.session.title == "Mend the parser"


async def test_case_and_aliases_do_not_matter():
    front_end = FakeFrontEnd()
    assert await dispatch(front_end, "/QUIT")
    assert front_end.left


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("/modle", "/model"),
        ("/fast", "/model uses a faster model"),
        ("/resum", "/resume"),
        ("/conf", "/config"),
        ("/zzzzzz", "/help lists them all"),
    ],
)
async def test_unknown_command_error_suggests_the_nearest(text, near):
    front_end = FakeFrontEnd()
    assert await dispatch(front_end, text)
    [(level, told)] = front_end.lines
    assert level == "error"
    assert near in told


async def test_clear_is_refused_during_a_turn():
    front_end = FakeFrontEnd()
    front_end.session.running = True
    assert await dispatch(front_end, "/clear")
    assert front_end.opened == []
    assert "cannot run while the agent works" in front_end.lines[0][1]


async def test_table_row_without_first_cell_continues_the_row_above():
    rows = table(
        [("1.2", "a hit"), ("", "its place"), ("", CodeSpan("/resume 1")), ("1.1", "another")]
    )
    assert as_markdown(rows) == "- 1.2 · a hit\\\n  its place\\\n  `/resume 1`\n- 1.1 · another"


async def test_s2_command_on_a_full_disk_says_what_to_do(monkeypatch):
    def full(title):
        raise OSError(errno.ENOSPC, "No space left on device", "/disk/index")

    front_end = FakeFrontEnd()
    monkeypatch.setattr(front_end.session, "rename", full)
    assert await dispatch(front_end, "/rename Mend the parser")
    [(level, said)] = front_end.lines
    assert (level, said.startswith("/disk/index: No space left on device.\nFree some space")) == (
        "error",
        True,
    )


async def test_missing_or_unexpected_argument_is_reported():
    front_end = FakeFrontEnd()
    await dispatch(front_end, "/check")
    assert front_end.lines.pop()[1].startswith("/check needs an argument: TEXT.\n")
    await dispatch(front_end, "/exit now")
    assert (front_end.left, front_end.lines) == (False, [("error", "/exit takes no argument.")])
    await dispatch(front_end, "/usage now")
    assert front_end.lines[-1][1].endswith(
        "See `/usage` or `/usage --by day`."
    )  # `--json` exists only in a shell


def test_action_functions_take_their_declared_arguments():
    actions = {action.target: action for action in (*COMMANDS, *ACTIONS)}.values()
    assert [action.name for action in actions if not takes_its_declared_arguments(action)] == []


def takes_its_declared_arguments(action):
    parameters = list(inspect.signature(action.function).parameters.values())[1:]
    parser = argparse.ArgumentParser()
    names = {parser.add_argument(*each.names, **each.options).dest for each in action.arguments}
    named = {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
    return named == names or (named < names and len(named) < len(parameters))


def test_command_names_are_unique_and_have_help():
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    for command in COMMANDS:
        assert command.help
        assert find_command(command.name) is command


def test_every_command_is_in_the_documentation():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    for command in COMMANDS:
        assert f"`{command.usage}`" in page.replace("\\|", "|"), command.usage


def test_hints_help_and_docs_name_no_tool_that_is_not_there():
    from ouro.safety import rules
    from ouro.tools import builtin

    root = Path(builtin.__file__).parents[2]
    texts = [rules._RULE_HINT, *(path.read_text() for path in (root / "docs").glob("*.md"))]
    has_tool = "web_fetch" in Path(builtin.__file__).read_text()
    assert has_tool or [text for text in texts if "web_fetch" in text] == []


async def test_a_custom_command_is_sent_listed_and_explained():
    async def prompt(_arguments):
        return None

    front_end = FakeFrontEnd()
    ship = CustomCommand(
        "git:ship", "Ship it", "[version]", "~/.claude/commands/git/ship.md", prompt
    )
    session = front_end.session

    async def refuse(_arguments):
        raise UsageError("The skill pdf is switched off.")

    pdf = CustomCommand("pdf", "Reads PDF", "", "~/.ouro/skills/pdf/SKILL.md", refuse, is_off=True)
    session.extensions = replace(
        session.extensions, commands=CommandRegistry([lambda: [ship, pdf]], lambda: COMMAND_NAMES)
    )
    assert not await dispatch(front_end, "/git:ship v2")
    assert front_end.lines == []
    assert await dispatch(front_end, "/pdf a.pdf")
    assert front_end.lines.pop() == ("error", "The skill pdf is switched off.")
    assert await dispatch(front_end, "/git:sip")
    assert front_end.lines == [("error", "There is no command /git:sip. Did you mean /git:ship?")]
    session.extensions.servers.by_name["git"] = SimpleNamespace(state="starting")
    assert not await dispatch(front_end, "/git:sip")
    assert await dispatch(front_end, "/help /git:ship")
    assert front_end.shown == [
        "`/git:ship [version]` Ship it\n\nFrom `~/.claude/commands/git/ship.md`"
    ]
    assert listed_commands(front_end.session)[-1].usage == "/git:ship [version]"


async def test_a_command_of_another_agent_names_what_does_the_same_here():
    front_end = FakeFrontEnd()
    known = {word for name in COMMAND_NAMES for word in (name, f"/{name}")}
    for word, hint in _NAMES_ELSEWHERE.items():
        assert word not in COMMAND_NAMES
        assert await dispatch(front_end, f"/{word}")
        assert front_end.lines.pop() == ("error", f"There is no command /{word}. {hint}")
        assert set(re.findall(r"/[a-z-]+", hint)) <= known
