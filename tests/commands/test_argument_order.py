"""Flags stand before, between and after the other words of a command."""

from argparse import ArgumentParser

import pytest

from ouro.commands.action import parse_in_any_order
from ouro.commands.all_actions import ACTIONS
from ouro.commands.slash import parse_line

KNOWN = {action.name: action for action in ACTIONS}


def parse(name, *words):
    parser = ArgumentParser()
    for argument in KNOWN[name].arguments:
        parser.add_argument(*argument.names, **argument.options)
    parser.add_argument("--json", action="store_true")
    return parse_in_any_order(parser, words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("batch inbox", ["tasks.batch", "accept", "1,3"]),
        ("batch accept", ["tasks.batch", "shop", "bank"]),
        ("memory inbox", ["accept", "1"]),
        ("memory search", ["optimistic", "locking", "--since", "2026-01-01"]),
        ("memory import", ["a.md", "b.md", "--scope", "user"]),
        ("memory show", ["facts"]),
    ],
)
def test_a_flag_means_the_same_at_every_place_between_words(name, words):
    expected = parse(name, "--json", *words)
    assert expected["json"] is True
    places = [place for place in range(len(words) + 1) if not words[place - 1].startswith("--")]
    assert len(places) >= 2
    for place in places:
        assert parse(name, *words[:place], "--json", *words[place:]) == expected


def test_words_after_two_dashes_are_no_flags():
    assert parse("memory search", "--json", "--", "--scope", "x")["words"] == "--scope x"
    assert parse("memory remember", "--", "-x is slow")["text"] == "-x is slow"


def test_a_slash_command_takes_its_flags_between_words():
    found = parse_line(KNOWN["memory list"], "repo -n 5 core")
    assert (found["what"], found["limit"]) == (["repo", "core"], 5)


def test_no_flag_has_the_name_of_another_word():
    """In any order, a word that is missing would replace the value of the flag."""
    for action in ACTIONS:
        parser = ArgumentParser()
        added = [parser.add_argument(*item.names, **item.options) for item in action.arguments]
        names = [item.dest for item in added]
        assert sorted(set(names)) == sorted(names), action.name
