"""What the model learns about the repository."""

from fakes.waiting import until

from ouro.agent import environment


async def test_git_counts_changes_ahead_for_a_message_that_comes_soon(repository, monkeypatch):
    counted = []

    def count(cwd):
        counted.append(cwd)
        return f"\nGit status: {len(counted)}"

    monkeypatch.setattr(environment, "_count_git_changes", count)
    changes = environment.GitChanges(repository, is_needed_soon=True)
    await until(lambda: counted)
    texts = [await changes.describe(), await changes.describe()]
    assert (texts, len(counted)) == (["\nGit status: 1", "\nGit status: 2"], 2)


async def test_changes_that_git_counted_long_ago_are_counted_again(repository, monkeypatch):
    monkeypatch.setattr(environment, "_MAX_COUNT_AGE", 0.0)
    changes = environment.GitChanges(repository, is_needed_soon=True)
    (repository / "new.py").touch()
    assert await changes.describe() == "\nGit status: 1 changed file"


async def test_an_unfinished_operation_and_missing_submodules_are_described(repository):
    (repository / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n')
    (repository / ".git" / "rebase-merge").mkdir()
    text = await environment.GitChanges(repository).describe()
    assert text == (
        "\nGit status: 1 changed file, a rebase is in progress"
        "\nGit submodules: 1 is not checked out (`git submodule status` names them)"
    )
    (repository / ".git" / "rebase-merge").rmdir()
    (repository / "lib").mkdir()
    (repository / "lib" / ".git").write_text("gitdir: ../.git/modules/lib\n")
    assert "rebase" not in (text := await environment.GitChanges(repository).describe())
    assert "submodules" not in text
