"""Of which entry only the user knows whether a new text replaces it."""

import pytest
from fakes.knowledge import editor_of

from ouro.memory.long_term import all_entries, find_doubtful, remember_text


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
    doubtful = find_doubtful(editor, said)
    assert doubtful is not None
    assert doubtful.text == old.text
    done = remember_text(editor, said, "repo", replaces=doubtful.id)
    assert [entry.text for entry in done.replaced] == [before]
    assert before not in [entry.text for entry in all_entries(editor)]


def test_nothing_is_asked_about_another_subject_and_what_rules_replace(editor):
    remember_text(editor, "We use Redis for the job queue", "repo")
    assert find_doubtful(editor, "Invoices have seven digits") is None
    assert find_doubtful(editor, "RabbitMQ replaces Redis for the job queue") is None
