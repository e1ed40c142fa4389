"""`ouro --worktree NAME`: a branch of its own, and what becomes of it at the end."""

import subprocess

import pytest

from ouro.errors import UsageError
from ouro.own_worktree import describe_missing, enter_worktree, leave_worktree
from ouro.safety import TrustStore, acting_files
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import get_trust_path


def git(folder, *words):
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(repository):
    (repository / "src").mkdir(exist_ok=True)
    (repository / "src" / "a.py").write_text("one = 1\n")
    git(repository, "add", "--all")
    git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return repository


def answers(*given):
    rest = list(given)
    return lambda _question, keys: rest.pop(0) if rest else keys[0]


def test_a_worktree_without_changes_is_removed_at_the_end(project):
    own = enter_worktree(project, "idea")
    assert (own.cwd / "src" / "a.py").is_file()
    assert git(own.cwd, "branch", "--show-current") == "ouro/idea"
    assert "it is removed" in leave_worktree(own, answers())
    assert not own.cwd.exists()
    assert "ouro/idea" not in git(project, "branch", "--all")


@pytest.fixture
def with_submodule(project, tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    (library / "l.txt").write_text("one\n")
    git(library, "add", "--all")
    git(library, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    git(
        project,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(library),
        "lib",
    )
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "with a submodule")
    return project


def update_submodules(folder):
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")


def test_submodules_that_are_not_checked_out_are_named(with_submodule):
    own = enter_worktree(with_submodule, "idea")
    assert "the submodules lib. To clone them: `git -C " in describe_missing(own)
    update_submodules(own.cwd)
    assert describe_missing(own) == ""
    assert "it is removed" in leave_worktree(own, answers())
    assert not own.cwd.exists()


def test_a_worktree_with_work_in_a_submodule_is_not_removed(with_submodule):
    own = enter_worktree(with_submodule, "idea")
    update_submodules(own.cwd)
    (own.cwd / "lib" / "l.txt").write_text("two\n")
    assert "work in lib would be lost" in leave_worktree(own, answers())
    git(own.cwd / "lib", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "two")
    assert "work in lib would be lost" in leave_worktree(own, answers("m"))
    assert "work in lib would be lost" in leave_worktree(own, answers("r", "y"))
    assert (own.cwd / "lib" / "l.txt").read_text() == "two\n"


def test_ignored_files_that_worktreeinclude_names_are_copied_and_no_others(project):
    (project / ".gitignore").write_text(".env*\n*.log\nlocal/\n")
    (project / ".worktreeinclude").write_text(".env*\n!.env.old\nlocal/[a]*\nopen.txt\n")
    for name in (".env", ".env.old", "x.log", "open.txt", "local/[a].json", "local/b.json"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(name)
    (project / ".env.link").symlink_to("/etc/hostname")
    (project / "local" / "a.json").write_text("a")
    own = enter_worktree(project, "idea")
    there = sorted(
        str(path.relative_to(own.cwd))
        for path in own.cwd.rglob("*")
        if path.name.startswith(".env") or path.suffix in (".json", ".log", ".txt")
    )
    assert there == [".env", ".env.link", "local/a.json"]
    assert (own.cwd / ".env.link").is_symlink()
    (own.cwd / ".env").write_text("changed here")
    again = enter_worktree(project, "idea")
    assert (again.cwd / ".env").read_text() == "changed here"


def test_what_cannot_be_copied_does_not_prevent_the_worktree(project):
    (project / ".gitignore").write_text("local/\n")
    (project / ".worktreeinclude").write_text("local/\n")
    (project / "local").mkdir()
    (project / "local" / "a").write_text("a")
    (project / "local" / "a").chmod(0)
    own = enter_worktree(project, "idea")
    assert own.cwd.is_dir()


def test_it_begins_in_the_same_folder_of_the_repository(project):
    own = enter_worktree(project / "src", "idea")
    assert own.cwd == own.tree.folder / "src"


def test_merge_takes_over_what_is_committed_and_what_is_not(project):
    own = enter_worktree(project, "idea")
    (own.cwd / "b.py").write_text("two = 2\n")
    said = leave_worktree(own, answers("m"))
    assert "Merged into" in said
    assert (project / "b.py").read_text() == "two = 2\n"
    assert not own.cwd.exists()
    assert "ouro/idea" not in git(project, "branch", "--all")


def test_without_an_answer_it_stays_and_the_same_name_continues_in_it(project):
    own = enter_worktree(project, "idea")
    (own.cwd / "b.py").write_text("two = 2\n")
    assert "ouro --worktree idea" in leave_worktree(own, None)
    again = enter_worktree(project, "idea")
    assert again == own
    assert (again.cwd / "b.py").is_file()


def test_a_removed_folder_with_a_branch_is_checked_out_again(project):
    own = enter_worktree(project, "idea")
    (own.cwd / "b.py").write_text("two = 2\n")
    own.tree.commit("b")
    own.tree.remove(with_branch=False)
    again = enter_worktree(project, "idea")
    assert (again.cwd / "b.py").is_file()
    assert again.tree.changes().commits == 1


def test_a_folder_that_is_no_worktree_is_left_and_the_error_says_what_to_do(project):
    own = enter_worktree(project, "idea")
    (own.tree.folder / "kept.txt").write_text("work")
    (own.tree.folder / ".git").unlink()
    with pytest.raises(UsageError, match="is not a worktree of this repository"):
        enter_worktree(project, "idea")
    assert (own.tree.folder / "kept.txt").read_text() == "work"


def test_remove_asks_once_more(project):
    own = enter_worktree(project, "idea")
    (own.cwd / "b.py").write_text("two = 2\n")
    assert "It stays" in leave_worktree(own, answers("r", "n"))
    assert "are removed" in leave_worktree(own, answers("r", "y"))
    assert not own.cwd.exists()


def test_a_conflict_changes_nothing_and_keeps_the_work(project):
    own = enter_worktree(project, "idea")
    (own.cwd / "src" / "a.py").write_text("one = 'there'\n")
    (project / "src" / "a.py").write_text("one = 'here'\n")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "here")
    assert "stays in" in leave_worktree(own, answers("m"))
    assert (project / "src" / "a.py").read_text() == "one = 'here'\n"
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "show", "ouro/idea:src/a.py") == "one = 'there'"


def test_changes_that_are_not_committed_here_are_not_merged_into(project):
    own = enter_worktree(project, "idea")
    (own.cwd / "b.py").write_text("two = 2\n")
    (project / "src" / "a.py").write_text("one = 'here'\n")
    assert "not committed" in leave_worktree(own, answers("m"))
    assert own.cwd.exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a.lock", "a b", "ü" * 80, "a..b"])
def test_a_name_that_git_or_a_file_system_may_not_take_is_refused(project, name):
    with pytest.raises(UsageError):
        enter_worktree(project, name)


def test_a_folder_without_a_commit_is_refused(tmp_path):
    with pytest.raises(UsageError, match="needs a git repository with a commit"):
        enter_worktree(tmp_path, "idea")


def test_trusted_files_are_trusted_there_and_changed_ones_are_not(project):
    (project / "AGENTS.md").write_text("Use tabs.\n")
    git(project, "add", "AGENTS.md")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "agents")
    before = enter_worktree(project, "one")

    def is_trusted(own):
        root = find_root(own.cwd)
        files = acting_files(root, own.cwd)
        return bool(files) and TrustStore(get_trust_path()).is_trusted(root, files)

    assert not is_trusted(before)
    TrustStore(get_trust_path()).trust(project, acting_files(project, project))
    assert is_trusted(enter_worktree(project, "two"))
    (project / "AGENTS.md").write_text("Use spaces.\n")
    TrustStore(get_trust_path()).trust(project, acting_files(project, project))
    assert not is_trusted(enter_worktree(project, "three"))
