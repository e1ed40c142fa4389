"""Of which entry only the user knows whether a new text replaces it."""

import pytest
from fakes.knowledge import editor_of

from ouro.memory.long_term import all_entries, find_possibly_replaced, remember_text


@pytest.fixture
def editor(home, repository):
    return editor_of(home / ".ouro", repository)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("The deploy host is heron", "Deploys go to crane"),
        ("Die Bilder liegen auf S3", "Die Bilder liegen auf R2"),
        ("数据库用的是 MySQL 5.7", "数据库已经升级到 MySQL 8.0 了。"),
    ],
)
def test_entry_on_the_subject_is_asked_about_and_replaced_if_the_user_says_so(editor, before, said):
    old = remember_text(editor, before, "repo").entry
    remember_text(editor, "Black formats the code", "repo")
    doubtful = find_possibly_replaced(editor, said)
    assert doubtful is not None
    assert doubtful.text == old.text
    done = remember_text(editor, said, "repo", replaces=doubtful.id)
    assert [entry.text for entry in done.replaced] == [before]
    assert before not in [entry.text for entry in all_entries(editor)]


def test_nothing_is_asked_about_another_subject_and_what_rules_replace(editor):
    remember_text(editor, "We use Redis for the job queue", "repo")
    assert find_possibly_replaced(editor, "Invoices have seven digits") is None
    assert find_possibly_replaced(editor, "RabbitMQ replaces Redis for the job queue") is None


PROJECT = (
    "The staging database is wiped on Sundays",
    "The mobile team releases on Tuesdays",
    "The public API is versioned by a header",
    "Customer emails go through the outbox table",
    "Staging runs on the machine heron of the Bonn rack",
)


def test_one_word_in_common_with_a_long_entry_asks_nothing(editor):
    for known in PROJECT:
        remember_text(editor, known, "repo")
    # `staging` is in two entries, `customer` is one of six words of the only one that has it.
    assert find_possibly_replaced(editor, "Fixtures of staging are made by the seed script") is None
    said = "Python 3.9 stays because a big customer has old RHEL machines"
    assert find_possibly_replaced(editor, said) is None


def test_entry_with_most_of_the_words_is_asked_about_not_the_first_one(editor):
    for known in PROJECT:
        remember_text(editor, known, "repo")
    doubtful = find_possibly_replaced(
        editor, "Staging stands on pelican since May, no machine is left over in the old hall"
    )
    assert doubtful is not None
    assert doubtful.text == PROJECT[-1]
