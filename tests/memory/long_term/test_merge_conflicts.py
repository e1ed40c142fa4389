"""A merge conflict that `git pull` left in a memory file: its marks are no memory."""

import subprocess

import pytest
from fakes.files import git
from fakes.knowledge import editor_of

from ouro.memory.long_term import all_entries, diagnose, remember_text
from ouro.memory.long_term.git.files import without_conflict_marks


@pytest.fixture
def memory(home):
    """The user's memory with a conflict in `facts.md`, as `git merge` writes it."""
    ouro = home / ".ouro"
    folder = ouro / "memory"
    remember_text(editor_of(ouro), "user: The api runs on port 8417")
    git(folder, "checkout", "-q", "-b", "other")
    (folder / "facts.md").write_text("- The api runs on port 9000\n")
    git(folder, "commit", "-q", "-a", "-m", "Other")
    git(folder, "checkout", "-q", "main")
    remember_text(editor_of(ouro), "user: The api runs on port 7000 now")
    with pytest.raises(subprocess.CalledProcessError):
        git(folder, "merge", "-q", "other")
    assert "<<<<<<<" in (folder / "facts.md").read_text()
    return ouro


def test_lines_of_both_sides_are_entries_and_marks_are_not(memory):
    texts = [entry.text for entry in all_entries(editor_of(memory))]
    assert sorted(texts) == ["The api runs on port 7000 now", "The api runs on port 9000"]


def test_conflict_is_reported_until_it_is_resolved(memory):
    def problems():
        return [each.what for each in diagnose(editor_of(memory)) if "conflict" in each.what]

    assert len(problems()) == 1
    assert problems()[0].startswith("facts.md: the marks of a merge conflict")
    (memory / "memory" / "facts.md").write_text("- The api runs on port 9000\n")
    assert problems() == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<<<<<<< HEAD\n- a\n=======\n- b\n>>>>>>> other\n- c\n", "- a\n- b\n- c\n"),
        ("<<<<<<< a\n- a\n||||||| base\n- z\n=======\n- b\n>>>>>>> b", "- a\n- b\n"),
        ("<<<<<<< HEAD\r\n- a\r\n=======\r\n- b\r\n>>>>>>> b\r\n", "- a\r\n- b\r\n"),
        ("Title\n=======\n- a\n", "Title\n=======\n- a\n"),
        ("<<<<<<< HEAD\n- a\n", "<<<<<<< HEAD\n- a\n"),
    ],
)
def test_only_whole_conflicts_lose_their_marks(text, read):
    assert without_conflict_marks(text) == read
