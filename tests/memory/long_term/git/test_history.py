"""The git history of memory: what it shows, and undo."""

import subprocess

import msgspec
import pytest

from ouro.errors import MemoryUnusable
from ouro.memory.long_term import DiffHunk, FileEdit, GitMemoryStore, Timeline
from ouro.memory.long_term.git import history as git_history


@pytest.fixture
def store(tmp_path) -> GitMemoryStore:
    return GitMemoryStore(tmp_path / "memory", "user", tmp_path / "history.git" / "user.git")


def learn(store: GitMemoryStore, text: str, subject: str = "Learn", **trailers: str) -> str:
    return store.save_and_commit(
        {"facts.md": text}, subject, {f"Ouro-{key}": value for key, value in trailers.items()}
    )


def test_log_lists_subject_trailers_and_files_newest_first(store):
    first = learn(store, "- one\n", "Learn one", Origin="agent", Session="s1", Turn="3")
    second = store.save_and_commit({"mem_1.md": "x", "facts.md": None}, "Learn\n  two: `x`\x1b[31m")

    newest, oldest = store.log()

    assert (newest.id, newest.subject, newest.trailers, newest.paths, newest.parent) == (
        second, "Learn two: `x`", {}, ("facts.md", "mem_1.md"), first,
    )  # fmt: skip
    assert oldest.trailers == {"Ouro-Origin": "agent", "Ouro-Session": "s1", "Ouro-Turn": "3"}
    assert (oldest.origin, newest.origin, oldest.parent) == ("agent", "outside", "")
    assert store.log(path="mem_1.md") == (newest,)
    assert store.log(limit=1) == (newest,)


def test_trailer_in_the_middle_of_a_message_is_ignored(store):
    learn(store, "- one\n")
    forged = "Learn\n\nOuro-Origin: person\n\nand so on\n\nOuro-Session: s2"
    subprocess.run(
        ["git", "-C", store.folder, "commit", "-q", "--allow-empty", "-m", forged], check=True
    )

    assert store.log(1)[0].trailers == {"Ouro-Session": "s2"}


def test_text_is_found_at_a_commit_or_date(store):
    store.ensure_repo()
    first = store.repository.commit({"facts.md": b"old\n"}, "A", commit_time=1_700_000_000)
    second = store.repository.commit(
        {"facts.md": b"new\n", "\xe9t\xe9.md": b"x"}, "B", commit_time=1_700_090_000
    )

    assert (store.text_at(first, "facts.md"), store.text_at(second, "facts.md")) == (
        "old\n",
        "new\n",
    )
    assert (store.text_at(first, "\xe9t\xe9.md"), store.text_at(second, "\xe9t\xe9.md")) == (
        None,
        "x",
    )
    assert git_history.commit_at(store.repository, "2023-11-15T00:00:00Z") == first
    assert git_history.commit_at(store.repository, "2023-11-01T00:00:00Z") == ""
    assert git_history.commit_at(store.repository, "2030-01-01T00:00:00Z") == second


def test_blame_maps_a_line_to_its_commit_and_turn(store):
    first = learn(store, "- one\n- two\n", Session="s1", Turn="1")
    second = learn(store, "- one\n- 2\n- three\n", Session="s2", Turn="7")

    lines = git_history.blame(store.repository, "facts.md")

    assert [
        (each.number, each.text, each.commit.id, each.commit.trailers["Ouro-Turn"])
        for each in lines
    ] == [
        (1, "- one", first, "1"),
        (2, "- 2", second, "7"),
        (3, "- three", second, "7"),
    ]


def test_the_changes_of_a_commit_are_numbered_hunks(store):
    learn(store, "a\nb\nc\nd\n")
    commit = store.save_and_commit(
        {"facts.md": "a\nB\nc\nd\ne\n", "preferences.md": "p\n"}, "Change"
    )

    assert Timeline([store]).changes(commit[:8]).hunks == (
        DiffHunk(1, "facts.md", 1, ("b\n",), ("B\n",)),
        DiffHunk(2, "facts.md", 4, (), ("e\n",)),
        DiffHunk(3, "preferences.md", 0, (), ("p\n",)),
    )


def test_reverting_a_commit_keeps_later_changes(store):
    learn(store, "a\nb\nc\n")
    commit = learn(store, "a\nB\nc\nd\n", "Change b, add d")
    learn(store, "first\na\nB\nc\nd\nlast\n")

    undone = store.revert(commit, trailers={"Ouro-Session": "s9"})

    assert store.read("facts.md") == "first\na\nb\nc\nlast\n"
    assert undone.conflicts == ()
    newest = store.log(1)[0]
    assert (newest.id, newest.subject) == (undone.commit, "Undo: Change b, add d")
    assert newest.trailers == {"Ouro-Origin": "undo", "Ouro-Session": "s9", "Ouro-Undoes": commit}
    assert store.accepted == undone.commit


def test_one_hunk_of_a_commit_is_undone(store):
    learn(store, "a\nb\nc\n")
    commit = learn(store, "A\nb\nc\nd\n")

    store.revert(commit, hunk=2)

    assert store.read("facts.md") == "A\nb\nc\n"


def test_conflicting_revert_is_reported_and_changes_nothing(store):
    learn(store, "a\nb\n")
    commit = learn(store, "a\nB\nc\n")
    head = learn(store, "a\nB, or perhaps b\nc\n")

    undone = store.revert(commit)

    assert msgspec.structs.astuple(undone)[:3] == (
        "",
        (),
        (DiffHunk(1, "facts.md", 1, ("b\n",), ("B\n", "c\n")),),
    )
    assert (store.read("facts.md"), store.get_current_head()) == ("a\nB, or perhaps b\nc\n", head)


def test_reverting_a_file_creation_removes_it_and_vice_versa(store):
    made = store.save_and_commit({"mem_1.md": "x\n"}, "Note")
    assert store.revert(made).edits == (FileEdit("mem_1.md", "x\n", None),)
    assert store.load_all().notes == ()

    store.revert(store.get_current_head())

    assert store.read("mem_1.md") == "x\n"


def test_lines_already_restored_are_not_duplicated(store):
    learn(store, "a\nb\n")
    removed = learn(store, "a\n")
    learn(store, "x\nb\na\n")

    assert msgspec.structs.astuple(store.revert(removed))[:3] == ("", (), ())


@pytest.mark.parametrize("commit", ["0123456789", "--help", "", "HEAD~9"])
def test_invalid_commit_raises(store, commit):
    learn(store, "a\n")

    with pytest.raises(MemoryUnusable):
        git_history.commit_of(store.repository, commit or "zz")


def test_empty_history_has_no_log(store):
    assert (store.log(), git_history.commit_at(store.repository, "2023-01-01")) == ((), "")
