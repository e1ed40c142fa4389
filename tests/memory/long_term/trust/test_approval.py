"""Pending changes: none is lost, and the question shows the whole change."""

import pytest

from ouro.memory.long_term import FileEdit, Proposal
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.trust.change_effects import apply_edit
from ouro.memory.long_term.trust.proposals import Proposals, question_about


@pytest.fixture
def history(home) -> GitRepository:
    made = GitRepository(home / ".ouro" / "history.git" / "user.git")
    made.create()
    return made


def proposal(number: str, text: str, before: str | None = None) -> Proposal:
    return Proposal(
        number, "user", "agent", (FileEdit("facts.md", before, text),), "it was read somewhere"
    )


def kept(history: GitRepository) -> str:
    return "".join(
        path.read_text(errors="replace") for path in (history.git_dir / "ouro").glob("proposals*")
    )


@pytest.mark.parametrize(
    ("spoil", "left"),
    [
        (lambda text: text.replace('"origin":"agent"', '"origin":"of a newer ouro"', 1), ["b2"]),
        (lambda text: text.replace('"edits":', '"changes":', 1), ["b2"]),
        (lambda text: text[:-20], []),
        (lambda text: f"\0{text}", []),
        (lambda text: '{"one": ' + text + "}", []),
        (lambda text: f"\udcff{text}", []),
    ],
    ids=["newer value", "missing field", "cut off", "NUL", "no list", "no UTF-8"],
)
def test_unreadable_proposals_are_skipped_and_kept(history, spoil, left):
    waiting = Proposals(history)
    waiting.add(proposal("a1", "- precious\n"))
    waiting.add(proposal("b2", "- second\n"))
    path = history.git_dir / "ouro" / "proposals"
    path.write_text(spoil(path.read_text()), errors="surrogateescape")
    assert [each.id for each in waiting.list()] == left

    waiting.add(proposal("c3", "- third\n"))
    waiting.add(proposal("d4", "- fourth\n"))
    waiting.remove("c3")

    assert [each.id for each in waiting.list()] == [*left, "d4"]
    assert all(word in kept(history) for word in ("precious", "second", "fourth"))


def test_question_shows_a_moved_or_repeated_line():
    moved = question_about(proposal("a1", "- deny\n- allow\n- deny\n", "- allow\n- deny\n"))
    assert moved.details.splitlines()[1:] == ["+ - deny"]


@pytest.mark.parametrize(
    ("before", "after", "now", "expected"),
    [
        ("x\na\nb\n", "a\nb\nx\n", "x\na\nb\n", "a\nb\nx\n"),
        ("x\na\nb\n", "a\nb\nx\n", "x\na\nb\nc\n", "a\nb\nx\nc\n"),
        ("a\n", "a\na\n", "a\n", "a\na\n"),
        ("a\n", "a\nb\n", "a\nb\nc\n", "a\nb\nc\n"),
        ("a\n", "a\nb\n", "c\nb\n", "c\nb\n"),
        ("a\nb\nc\n", "a\nB\nc\n", "x\ny\nc\nd\n", "x\ny\nB\nc\nd\n"),
    ],
    ids=[
        "moved",
        "moved, and more since",
        "said twice",
        "written since",
        "written since, elsewhere",
        "only the line below is left",
    ],
)
def test_accepted_change_is_applied_completely_and_once(before, after, now, expected):
    assert apply_edit(FileEdit("facts.md", before, after), now) == expected
