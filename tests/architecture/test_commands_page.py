"""docs/commands.md names every command, memory action, flag and key, and nothing that does not
exist.
"""

import argparse
import re
from pathlib import Path

import pytest

from ouro.command_line import whole_parser
from ouro.commands.all_actions import COMMANDS
from ouro.commands.command_lookup import actions_of, find_command
from ouro.frontends.tui.keymap import ACTIONS, Keymap, format_key

MEMORY = "ouro memory "
PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text().replace("\\|", "|")


def subcommands(parser=None, before="ouro"):
    """Each command line without its arguments, such as `ouro memory list`, with its parser; no
    aliases.
    """
    for action in (parser or whole_parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name in [choice.dest for choice in action._choices_actions]:
                yield f"{before} {name}", action.choices[name]
                yield from subcommands(action.choices[name], f"{before} {name}")


def command_lines():
    return [line for line, _parser in subcommands()]


def missing(rows):
    """The names with which no line of the page begins."""
    return [row for row in rows if f"\n{row}" not in PAGE]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_is_on_the_page(command):
    [row] = [row for row in PAGE.splitlines() if row.startswith(f"| `{command.usage}` |")]
    assert [name for name in command.aliases if f"`/{name}`" not in row] == []


def test_each_memory_action_is_on_the_page():
    section = PAGE.partition("\n## Memory actions\n")[2].partition("\n## ")[0]
    shell_actions = {
        line.removeprefix(MEMORY) for line in command_lines() if line.startswith(MEMORY)
    }
    actions = actions_of(find_command("memory"))
    assert (
        set(re.findall(r"^\| `([\w-]+)` \| ", section, re.MULTILINE))
        == shell_actions | actions.keys()
    )


def test_each_subcommand_is_on_the_page():
    on_page = {row.split("`")[1] for row in PAGE.splitlines() if row.startswith("| `ouro ")}
    assert on_page == {line for line in command_lines() if not line.startswith(MEMORY)}


def test_each_flag_is_on_the_page():
    flags = [action.option_strings for action in whole_parser()._actions if action.option_strings]
    assert missing(f"| {', '.join(f'`{flag}`' for flag in names)} | " for names in flags) == []


def test_each_key_is_on_the_page():
    keymap = Keymap()
    keys = [
        (each.name, ", ".join(f"`{format_key(key)}`" for key in keymap.keys(each.name)))
        for each in ACTIONS
    ]
    rows = [row for row in PAGE.splitlines() if row.startswith("| `")]
    assert [
        name
        for name, shown_keys in keys
        if not any(
            row.startswith(f"| {shown_keys} | ") and row.endswith(f" | `{name}` |") for row in rows
        )
    ] == []


def test_page_lists_no_removed_key():
    keys = PAGE.partition("\n## Keys\n")[2].partition("\n## ")[0]
    names = {
        row.split(" | ")[-1].strip("` |") for row in keys.splitlines() if row.startswith("| `")
    }
    assert names == {each.name for each in ACTIONS}


def test_each_subcommand_has_an_example_in_its_help():
    assert [line for line, parser in subcommands() if "example" not in (parser.epilog or "")] == []
