"""The git store of one scope: reading, writing, commits, and changes by other programs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.files import git
from fakes.knowledge import unapproved

from ouro.memory.long_term import FileEdit, GitMemoryStore, memory_stores, repo_folder
from ouro.memory.long_term.git import process as git_process
from ouro.memory.long_term.git import repository as history
from ouro.memory.long_term.git.approved_files import contents_of
from ouro.memory.long_term.git.memory_folders import find_state_dir
from ouro.memory.long_term.git.turn_records import UncommittedSave, read_saves, record_save
from ouro.memory.long_term.git.values import ORIGIN, SESSION, LoadedScope, SkippedFile
from ouro.memory.long_term.scope import ScopeMemory, is_switched_off, switch
from ouro.memory.long_term.store import repo_store, user_store
from ouro.settings import MemorySettings


@pytest.fixture
def histories(home) -> Path:
    return home / ".ouro" / "history.git"


@pytest.fixture
def store(home, histories) -> GitMemoryStore:
    return user_store(home / ".ouro" / "memory", histories, lambda _text: "")


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "Begin")
    return folder


def repo(project: Path, histories: Path, *, is_shared: bool = False) -> GitMemoryStore:
    return repo_store(project, histories, lambda _text: "", is_shared=is_shared)


# -- reading


def test_empty_memory_loads_nothing_and_creates_nothing(store, home):
    loaded = store.load_all()
    assert loaded == LoadedScope(
        "", {}, listed_at=loaded.listed_at, folder_state=loaded.folder_state
    )
    assert (store.get_current_head(), store.accepted, unapproved(store), store.log()) == (
        "",
        "",
        (),
        (),
    )
    assert not (home / ".ouro").exists()


def test_core_and_notes_are_loaded_and_other_files_reported(store):
    commit = store.save_and_commit(
        {
            "facts.md": "- one\n",
            "decisions.md": " \n",
            "mem_00000001.md": "x",
            "archive/mem_00000000.md": "x",
            "ideas.md": "x",
            "mem_1.md": "x",
        },
        "Learn",
    )
    (store.folder / "sub").mkdir()
    (store.folder / "data.json").write_text("{}")

    loaded = store.load_all()

    assert (loaded.head, loaded.core) == (commit, {"facts": "- one\n"})
    assert loaded.notes == ("archive/mem_00000000.md", "mem_00000001.md")
    assert loaded.skipped == (
        SkippedFile("data.json", "not a name of a memory file"),
        SkippedFile("ideas.md", "neither a core file nor a note"),
        SkippedFile("mem_1.md", "neither a core file nor a note"),
        SkippedFile("sub", "not a name of a memory file"),
    )


def test_loading_and_change_detection_start_no_process(store, home, monkeypatch):
    store.save_and_commit({"facts.md": "- one\n", "mem_1.md": "x"}, "Learn")
    before = {path: path.lstat().st_mtime_ns for path in (home / ".ouro").rglob("*")}

    def no_process(*_arguments: object, **_more: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(git_process, "_execute", no_process)
    again = user_store(store.folder, store.repository.state_dir.parent, lambda _text: "")
    loaded = again.load_all()

    assert loaded.core == {"facts": "- one\n"}
    assert not again.has_changed_since_load(loaded)
    assert again.accepted == loaded.head
    assert {path: path.lstat().st_mtime_ns for path in (home / ".ouro").rglob("*")} == before


def test_changed_files_or_history_are_detected(store):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    loaded = store.load_all()
    assert not store.has_changed_since_load(loaded)

    git(store.folder, "commit", "-q", "--allow-empty", "-m", "x")
    assert store.has_changed_since_load(loaded)

    loaded = store.load_all()
    (store.folder / "mem_1.md").write_text("x")
    assert store.has_changed_since_load(loaded)


def test_edits_are_computed_against_any_commit(store):
    first = store.save_and_commit({"facts.md": "- one\n", "mem_1.md": "x"}, "Learn")
    store.save_and_commit({"facts.md": "- two\n"}, "Learn")
    (store.folder / "mem_1.md").unlink()

    assert store.edits_since(first) == (
        FileEdit("facts.md", "- one\n", "- two\n"),
        FileEdit("mem_1.md", "x", None),
    )
    assert store.edits_since("") == (FileEdit("facts.md", None, "- two\n"),)


# -- writing


def test_memory_files_are_private(store, home):
    store.save_and_commit({"facts.md": "- one\n", "archive/mem_1.md": "x"}, "Learn")

    folders = [
        home / ".ouro",
        store.folder,
        store.folder / "archive",
        store.repository.state_dir,
        store.repository.git_dir,
    ]
    assert [oct(each.stat().st_mode & 0o777) for each in folders] == ["0o700"] * 5
    files = [
        store.folder / "facts.md",
        store.folder / "archive" / "mem_1.md",
        store.folder / ".git" / "config",
    ]
    assert [oct(each.stat().st_mode & 0o777) for each in files] == ["0o600"] * 3


def test_a_save_commits_its_own_files_and_no_others(store):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    (store.folder / "preferences.md").write_text("- by hand\n")

    store.save_and_commit({"facts.md": "- two\n"}, "Learn")

    assert store.log(1)[0].paths == ("facts.md",)
    assert git(store.folder, "status", "--porcelain") == "?? preferences.md"


def test_files_of_others_in_the_history_are_kept(store):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    (store.folder / "sub").mkdir()
    (store.folder / "sub" / "data.json").write_text("{}")
    (store.folder / "run.sh").write_text("true\n")
    (store.folder / "run.sh").chmod(0o755)
    git(store.folder, "add", "-A")
    git(store.folder, "commit", "-q", "-m", "Mine")

    store.save_and_commit({"facts.md": "- two\n"}, "Learn")

    assert git(store.folder, "ls-tree", "-r", "--name-only", "HEAD").split() == [
        "facts.md",
        "run.sh",
        "sub/data.json",
    ]
    assert git(store.folder, "status", "--porcelain") == ""


def test_work_tree_is_committed_whole_or_in_part(store):
    store.save_and_commit({"facts.md": "- one\n", "mem_1.md": "x"}, "Learn")
    (store.folder / "facts.md").write_text("- two\n")
    (store.folder / "mem_1.md").unlink()
    (store.folder / "mem_2.md").write_text("y")

    store.commit_changes("In part", names=["mem_2.md"])
    store.commit_changes("The rest", {"Ouro-Turn": "3"})

    rest, part = store.log(2)
    assert (part.paths, rest.paths, rest.trailers) == (
        ("mem_2.md",),
        ("facts.md", "mem_1.md"),
        {"Ouro-Turn": "3"},
    )
    assert git(store.folder, "status", "--porcelain") == ""


def test_manually_staged_files_stay_staged(store):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    (store.folder / "preferences.md").write_text("- by hand\n")
    git(store.folder, "add", "preferences.md")

    store.save_and_commit({"facts.md": "- two\n"}, "Learn")

    assert git(store.folder, "status", "--porcelain") == "A  preferences.md"
    git(store.folder, "commit", "-q", "-m", "By hand")
    assert store.text_at(store.get_current_head(), "facts.md") == "- two\n"


def test_git_index_left_by_a_kill_is_rebuilt_by_the_next_commit(store, monkeypatch):
    store.save_and_commit({"facts.md": "- one\n", "preferences.md": "- two\n"}, "Learn")
    with monkeypatch.context() as killed:
        killed.setattr(history.GitRepository, "_update_index", lambda *_: None)
        store.save_and_commit({"preferences.md": None}, "Killed behind the commit")
    assert git(store.folder, "status", "--porcelain") == "AD preferences.md"

    store.save_and_commit({"facts.md": "- one\n- three\n"}, "Learn")

    assert git(store.folder, "status", "--porcelain") == ""


def test_locked_git_index_is_rebuilt_by_the_next_commit(store):
    store.save_and_commit({"facts.md": "- one\n", "mem_1.md": "x"}, "Learn")
    lock = store.repository.git_dir / "index.lock"
    lock.touch()
    store.save_and_commit(
        {"facts.md": "- two\n", "mem_1.md": None}, "Learn while a person's git is at work"
    )
    assert git(store.folder, "status", "--porcelain") != ""

    lock.unlink()
    store.save_and_commit({"preferences.md": "- tabs\n"}, "Learn")

    assert git(store.folder, "status", "--porcelain") == ""


def test_names_with_special_characters_are_kept(store):
    names = {
        'say "hi".md': "a",
        "back\\slash.md": "b",
        "d\xe9j\xe0 vu.md": "c",
        "-rf.md": "d",
        ":(top).md": "e",
    }

    commit = store.save_and_commit(names, "Learn")

    assert {name: store.text_at(commit, name) for name in names} == names
    assert git(store.folder, "status", "--porcelain") == ""


def test_long_history_is_packed_without_loss(store):
    for number in range(8):
        store.save_and_commit({"facts.md": f"- {number}\n"}, f"Learn {number}")
    objects = git(store.folder, "cat-file", "--batch-all-objects", "--batch-check")
    assert not store.repository.pack(max_loose=2_000)

    assert store.repository.pack()

    assert git(store.folder, "cat-file", "--batch-all-objects", "--batch-check") == objects
    assert git(store.folder, "count-objects") == "0 objects, 0 kilobytes"
    store.save_and_commit({"facts.md": "- more\n"}, "Learn more")
    assert (len(store.log()), git(store.folder, "fsck", "--strict")) == (9, "")


def test_commit_that_exceeds_the_object_limit_packs(store, monkeypatch):
    monkeypatch.setattr(history, "MAX_LOOSE_OBJECTS", 1)
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    crowded = store.repository.git_dir / "objects" / "17"
    crowded.mkdir(exist_ok=True)
    (crowded / ("0" * 38)).touch()

    commit = store.save_and_commit({"facts.md": "- two\n"}, "Learn")

    assert commit == store.get_current_head()
    assert list((store.repository.git_dir / "objects" / "pack").glob("*.pack")) != []


def test_user_can_use_plain_git_in_the_folder(store, home):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    (home / ".gitconfig").unlink()
    (store.folder / "facts.md").write_text("- two\n")

    git(store.folder, "commit", "-q", "-a", "-m", "By hand")
    git(store.folder, "revert", "--no-edit", "HEAD")

    assert [each.subject for each in store.log()] == ['Revert "By hand"', "By hand", "Learn"]
    assert store.load_all().core == {"facts": "- one\n"}


# -- location


def test_worktrees_of_a_repository_share_one_memory(tmp_path, histories):
    main = repository(tmp_path / "app")
    git(main, "worktree", "add", "-q", str(tmp_path / "feature"))

    repo(tmp_path / "feature", histories).save_and_commit({"facts.md": "- one\n"}, "Learn")

    assert repo(main, histories).load_all().core == {"facts": "- one\n"}
    assert repo_folder(tmp_path / "feature") == main / ".ouro" / "memory"
    assert git(main, "status", "--porcelain") == ""
    assert git(tmp_path / "feature", "status", "--porcelain") == ""


def test_worktrees_of_a_bare_repository_share_one_memory_too(tmp_path, histories):
    bare = tmp_path / "app.git"
    git(repository(tmp_path / "app"), "clone", "-q", "--bare", ".", str(bare))
    for name in ("one", "two"):
        git(bare, "worktree", "add", "-q", str(tmp_path / name), "-b", name)

    repo(tmp_path / "one", histories).save_and_commit({"facts.md": "- one\n"}, "Learn")

    assert repo(tmp_path / "two", histories).load_all().core == {"facts": "- one\n"}


def test_a_submodule_has_a_memory_of_its_own(tmp_path, histories):
    inner, outer = repository(tmp_path / "inner"), repository(tmp_path / "outer")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "lib")

    repo(outer / "lib", histories).save_and_commit({"facts.md": "- one\n"}, "Learn")

    assert repo_folder(outer / "lib") == outer / "lib" / ".ouro" / "memory"
    assert repo(outer, histories).load_all().core == {}
    assert git(outer / "lib", "status", "--porcelain") == ""


def test_folder_without_git_has_a_memory(tmp_path, histories):
    store = repo(tmp_path, histories)
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")

    assert store.folder == tmp_path / ".ouro" / "memory"
    assert git(store.folder, "log", "--format=%s") == "Learn"


def test_question_about_files_written_by_hand_names_those_that_are_not_used(store):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    for name in ("facts.md", "mem_1234abcd.md", "printing.md"):
        (store.folder / name).write_text("The plotter is off at night.\n")
    scope = ScopeMemory(store)
    scope.open()

    [proposal] = scope.proposals()

    assert proposal.reason.endswith("; printing.md is not used: neither a core file nor a note")


def test_home_folder_has_only_the_memory_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("OURO_HOME", str(tmp_path / "ann/.ouro"))
    scopes_of = {
        folder: [store.scope for store in memory_stores(MemorySettings(), folder, str)]
        for folder in (tmp_path / "ann", tmp_path / "ann/project")
    }
    assert [*scopes_of.values()] == [["user"], ["user", "repo"]]


def test_the_folder_is_excluded_once_and_in_no_tracked_file(tmp_path, histories):
    project = repository(tmp_path / "app")
    exclude = project / ".git" / "info" / "exclude"
    exclude.write_text("*.log")

    for number in range(3):
        repo(project, histories).save_and_commit({"facts.md": f"- {number}\n"}, "Learn")

    assert exclude.read_text() == "*.log\n.ouro/\n"
    assert git(project, "status", "--porcelain", "--ignored") == "!! .ouro/"


def test_linked_exclude_file_is_not_written(tmp_path, histories):
    project = repository(tmp_path / "app")
    exclude, other = project / ".git" / "info" / "exclude", tmp_path / "other"
    other.write_text("mine\n")
    exclude.unlink()
    exclude.symlink_to(other)

    store = repo(project, histories)
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")

    assert (other.read_text(), store.load_all().core) == ("mine\n", {"facts": "- one\n"})


def test_a_project_that_was_moved_finds_its_history(tmp_path, histories):
    project = repository(tmp_path / "app")
    repo(project, histories).save_and_commit({"facts.md": "- one\n"}, "Learn one")

    project.rename(tmp_path / "moved")
    store = repo(tmp_path / "moved", histories)
    store.save_and_commit({"facts.md": "- two\n"}, "Learn two")

    assert [each.subject for each in store.log()] == ["Learn two", "Learn one"]
    assert git(store.folder, "log", "--format=%s").split("\n") == ["Learn two", "Learn one"]


def test_other_project_at_the_old_path_starts_a_new_history(tmp_path, histories):
    repo(repository(tmp_path / "app"), histories).save_and_commit(
        {"facts.md": "- one\n"}, "Learn one"
    )
    (tmp_path / "app").rename(tmp_path / "moved")

    new = repo(repository(tmp_path / "app"), histories)
    new.save_and_commit({"facts.md": "- other\n"}, "Other")
    moved = repo(tmp_path / "moved", histories)

    assert [each.subject for each in moved.log()] == ["Learn one"]
    assert [each.subject for each in new.log()] == ["Other"]
    assert (
        find_state_dir(new.folder, histories)
        == new.repository.state_dir
        != moved.repository.state_dir
    )


def test_copied_project_keeps_the_history_but_not_the_approvals(tmp_path, histories):
    project = repository(tmp_path / "app")
    original = repo(project, histories)
    original.save_and_commit({"facts.md": "- one\n"}, "Learn one")
    subprocess.run(["cp", "-a", project, tmp_path / "copy"], check=True)

    copy = repo(tmp_path / "copy", histories)
    assert [each.name for each in unapproved(copy)] == ["facts.md"]
    copy.save_and_commit({"facts.md": "- two\n"}, "Learn two")

    assert [commit.subject for commit in copy.log()] == ["Learn two", "Learn one"]
    assert [commit.subject for commit in original.log()] == ["Learn one"]
    assert git(copy.folder, "log", "--format=%s").split("\n") == ["Learn two", "Learn one"]
    assert git(original.folder, "log", "--format=%s") == "Learn one"


def test_moved_home_keeps_its_histories(tmp_path, home, store):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn one")
    project = repository(tmp_path / "app")
    repo(project, store.repository.state_dir.parent).save_and_commit(
        {"facts.md": "- of app\n"}, "Learn of app"
    )

    (home / ".ouro").rename(home / "elsewhere")
    user = user_store(
        home / "elsewhere" / "memory", home / "elsewhere" / "history.git", lambda _text: ""
    )
    app = repo(project, home / "elsewhere" / "history.git")

    assert git(user.folder, "log", "--format=%s") == "Learn one"  # before ouro writes anything
    app.save_and_commit({"facts.md": "- more of app\n"}, "More")
    assert git(app.folder, "log", "--format=%s").split("\n") == ["More", "Learn of app"]


def test_deleted_folder_starts_a_new_history(tmp_path, histories):
    store = repo(tmp_path, histories)
    store.save_and_commit({"facts.md": "- one\n"}, "Learn one")
    shutil.rmtree(store.folder)
    (tmp_path / "in between").mkdir()  # otherwise the new folder might get the same inode

    new = repo(tmp_path, histories)
    new.save_and_commit({"facts.md": "- two\n"}, "Learn two")

    assert [commit.subject for commit in repo(tmp_path, histories).log()] == ["Learn two"]
    assert unapproved(new) == ()


def test_shared_memory_is_committed_in_the_host_repository(tmp_path, histories):
    project = repository(tmp_path / "app")
    store = repo(project, histories, is_shared=True)
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")

    assert [each.name for each in store.folder.iterdir()] == ["facts.md"]
    assert git(project, "status", "--porcelain", "-uall") == "?? .ouro/memory/facts.md"
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "Share")
    store.save_and_commit({"facts.md": "- two\n"}, "Learn two")
    assert git(project, "log", "--format=%s").split("\n") == ["Share", "Begin"]
    assert [each.subject for each in store.log()] == ["Learn two", "Learn"]
    shutil.rmtree(store.folder)
    git(project, "checkout", "-q", "--", ".ouro")
    assert [each.subject for each in repo(project, histories, is_shared=True).log()] == [
        "Learn two",
        "Learn",
    ]


@pytest.mark.parametrize("flags", [(), git_process.DURABLE_PACKS, git_process.FAST_COMMIT])
def test_git_knows_all_options_that_it_is_started_with(store, flags):
    """git only warns, and then flushes what it need not. A git whose ouro was killed ends at the
    warning.
    """
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    done = store.repository.run(*flags, "rev-parse", "HEAD")
    assert (done.returncode, done.stderr) == (0, b"")


def test_lock_of_a_dead_process_does_not_block(store):
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    code = (
        "import sys, os; from pathlib import Path; from ouro.memory.long_term.git.repository import"
        " GitRepository\nwith GitRepository(Path(sys.argv[1])).hold_lock(): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, store.repository.state_dir], check=False)

    assert store.save_and_commit({"facts.md": "- two\n"}, "Learn")


@pytest.mark.parametrize("survived", range(2))
def test_kill_during_creation_leaves_no_half_repository(store, monkeypatch, survived):
    store.folder.mkdir(parents=True)
    written = []

    def dies(path, text):
        if len(written) == survived:
            raise KeyboardInterrupt
        written.append(path)
        path.write_text(text)

    with monkeypatch.context() as patch:
        patch.setattr(history, "write_private", dies)
        with pytest.raises(KeyboardInterrupt):
            store.repository.create()
    assert not (store.folder / ".git").exists()
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    assert git(store.folder, "fsck") == ""
    assert git(store.folder, "show", "HEAD:facts.md") == "- one"
    assert [path.name for path in store.folder.iterdir() if path.name.startswith(".git")] == [
        ".git"
    ]


def test_records_alone_create_nothing_in_the_folder(tmp_path):
    """A session records when maintenance ran; the folder of a project stays as it was."""
    store = GitMemoryStore(tmp_path / "project" / ".ouro" / "memory", "repo", tmp_path / "state")
    store.repository.save_state("run", LoadedScope("a commit", {}))
    switch(store, on=False)
    assert not (tmp_path / "project").exists()
    assert not store.repository.exists
    assert is_switched_off(store)
    assert store.repository.load_state("run", dict)["head"] == "a commit"
    switch(store, on=True)
    store.save_and_commit({"facts.md": "- Eggs are sold by the dozen.\n"}, "Add a fact")
    assert (store.folder / ".git" / "HEAD").exists()
    assert [commit.subject for commit in store.log()] == ["Add a fact"]


def test_save_whose_commit_is_missing_keeps_its_source_when_another_is_committed(store):
    store.ensure_repo()
    for name, session in (("facts.md", "s-1"), ("preferences.md", "s-2")):
        data = f"- {name}\n".encode()
        trailers = {ORIGIN: "person", SESSION: session}
        record_save(store.repository, UncommittedSave(contents_of({name: data}), trailers))
        (store.folder / name).write_bytes(data)
    store.commit_changes("Keep", names=["facts.md"])
    store.commit_changes("Keep")
    assert [(commit.trailers.get(SESSION), commit.paths) for commit in store.log()] == [
        ("s-2", ("preferences.md",)),
        ("s-1", ("facts.md",)),
    ]
    assert not read_saves(store.repository)
