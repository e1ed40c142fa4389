"""The scope and category of a text to remember."""

import pytest

from ouro.memory.long_term import place

BOTH = ("user", "repo")


@pytest.mark.parametrize(
    ("text", "scope", "category", "is_note"),
    [
        ("Always answer in German", "user", "preferences", False),
        ("I prefer pytest over unittest", "user", "preferences", False),
        ("My name is Ada", "user", "facts", False),
        ("i prefer tabs", "user", "preferences", False),
        ("dont use emojis", "user", "preferences", False),
        ("im a backend developer", "user", "facts", False),
        ("Die Tests laufen im Container", "repo", "facts", False),
        ("The user prefers dark mode", "user", "preferences", False),
        ("User sessions are stored in Redis", "repo", "facts", False),
        ("USER: sessions", "user", "facts", False),
        ("i'm on the platform team", "user", "facts", False),
        ("the loop for i in rows is slow", "repo", "facts", False),
        ("We decided on optimistic locking", "repo", "decisions", False),
        ("The staging database is the heron", "repo", "facts", False),
        ("We never deploy on Fridays", "repo", "facts", False),
        ("Run the tests with `pytest -q`", "repo", "facts", False),
        ("No, that is wrong: the basket must never hold a negative price", "repo", "facts", False),
        ("Dates are always stored in UTC", "repo", "facts", False),
        ("Commit messages are in the present tense", "repo", "facts", False),
        ("Services talk gRPC to each other", "repo", "facts", False),
        ("The server replies within 200 ms", "repo", "facts", False),
        ("In this project I prefer tabs", "repo", "preferences", False),
        ("Likes early returns", "user", "preferences", False),
        ("The answers should be short", "user", "preferences", False),
        ("We changed our mind: RabbitMQ runs the jobs", "repo", "facts", False),
        ("api.py must not import os", "repo", "corrections", True),
        ("Every failure in this crate is a CliError of src/error.rs", "repo", "facts", False),
        ("We chose flask because api.py is small", "repo", "architectural-decisions", True),
        ("repo: answer in French", "repo", "preferences", False),
        ("user The heron bites", "user", "facts", False),
        ("a\nb", "repo", "project-conventions", True),
        ("x " * 150, "repo", "project-conventions", True),
    ],
)
def test_rules_choose_scope_and_category(text, scope, category, is_note):
    found = place(text, BOTH)
    assert (found.scope, found.category, found.is_note) == (scope, category, is_note)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("No, that is wrong: the basket must never be empty", "The basket must never be empty"),
        ("We changed our mind: RabbitMQ replaces Redis", "RabbitMQ replaces Redis"),
        ("Actually, that's not right. Deploys need two reviews", "Deploys need two reviews"),
        ("Please remember that staging is the heron", "Staging is the heron"),
        ("repo: no, use tabs", "Use tabs"),
        ("No deploys on Fridays", "No deploys on Fridays"),
        ("Stop using tox", "Stop using tox"),
        ("No, never", "No, never"),
    ],
)
def test_correction_is_reduced_to_its_rule(said, rule):
    assert place(said, BOTH).text == rule


def test_without_a_repository_text_goes_to_the_user_scope():
    assert place("We decided on tabs", ("user",)).scope == "user"
    assert (
        place("repo: we decided on tabs", ("user",)).scope == "repo"
    )  # the writer reports the error


def test_explicit_scope_overrides_the_words():
    assert place("I like tea", BOTH, "repo").scope == "repo"


@pytest.mark.parametrize(
    ("text", "is_sure"),
    [
        ("Run the migrations before the server starts", False),
        ("Never edit generated files", False),
        ("Use tabs", False),
        ("I prefer tabs", True),
        ("Answer in German", True),
        ("Keep explanations short", True),
        ("Run the tests with `pytest -q`", True),
        ("The staging database is the heron", True),
        ("user: use tabs", True),
    ],
)
def test_placement_certainty_depends_on_the_words(text, is_sure):
    assert place(text, BOTH).is_sure is is_sure
    assert place(text, ("user",)).is_sure
