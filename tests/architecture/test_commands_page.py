"""docs/commands.md tells of every command, word and key there is, in the words of the program itself."""

import argparse
from pathlib import Path

import pytest

from ouro.cli import whole_parser
from ouro.commands.builtin import COMMANDS, MEMORY_WORDS
from ouro.frontends.tui.keymap import ACTIONS, Keymap, shown

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "commands.md").read_text().replace("\\|", "|")


def actions(parser):
    """The subcommands of a parser, with their help."""
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in each._choices_actions}
            for name, child in each.choices.items():
                if name in helps:  # and no alias
                    yield name, helps[name], child


def typed(parser=None, before="ouro"):
    """Each line of words that can be typed behind `ouro`, with its help."""
    for name, help_text, child in actions(parser or whole_parser()):
        yield f"{before} {name}", help_text, child
        yield from typed(child, f"{before} {name}")


def missing(rows):
    """Those that no line of the page begins with."""
    return [row for row in rows if f"\n{row}" not in PAGE]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_each_command_is_on_the_page(command):
    [row] = [row for row in PAGE.splitlines() if row.startswith(f"| `{command.usage}` |")]
    assert [name for name in command.aliases if f"`/{name}`" not in row] == []


def test_each_word_behind_memory_is_on_the_page():
    assert missing(f"| `/{action.name}` | " for action in MEMORY_WORDS.values()) == []


def test_each_subcommand_is_on_the_page():
    assert missing(f"| `{line}` | " for line, _help, _parser in typed()) == []


def test_each_flag_is_on_the_page():
    flags = [each.option_strings for each in whole_parser()._actions if each.option_strings]
    assert missing(f"| {', '.join(f'`{flag}`' for flag in names)} | " for names in flags) == []


def test_each_key_is_on_the_page():
    keymap = Keymap()
    keys = [(each.name, ", ".join(f"`{shown(key)}`" for key in keymap.keys(each.name))) for each in ACTIONS]
    rows = [row for row in PAGE.splitlines() if row.startswith("| `")]
    assert [
        name
        for name, shown_keys in keys
        if not any(row.startswith(f"| {shown_keys} | ") and row.endswith(f" | `{name}` |") for row in rows)
    ] == []


def test_nothing_on_the_page_is_gone():
    keys = PAGE.partition("\n## Keys\n")[2].partition("\n## ")[0]
    names = {row.split(" | ")[-1].strip("` |") for row in keys.splitlines() if row.startswith("| `")}
    lines = {row.split("`")[1] for row in PAGE.splitlines() if row.startswith("| `ouro ")}
    assert names == {each.name for each in ACTIONS}
    assert lines == {line for line, _help, _parser in typed()}


def test_each_subcommand_has_an_example_in_its_help():
    assert [line for line, _help, parser in typed() if "example" not in (parser.epilog or "")] == []
