import subprocess

from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_session import FakeSession

from ouro.commands import init_review_diff as commands
from ouro.commands.slash import dispatch


async def test_init_and_review_append_the_user_text_to_their_prompts(repository):
    init, special = (
        await commands.init(repository, ""),
        await commands.init(repository, "the release steps"),
    )
    review, named = (
        await commands.review(repository, ""),
        await commands.review(repository, "the last commit"),
    )
    assert "AGENTS.md" in init
    assert special == f"{init}\n\nMind in particular: the release steps"
    assert review.startswith("Have the changes in this working tree")
    assert "`git diff HEAD`" in review
    assert named.startswith("Have the last commit reviewed")


async def test_init_with_an_existing_file_asks_for_line_edits(repository):
    new = await commands.init(repository, "")
    (repository / "AGENTS.md").write_text("# Mine\nUse tabs.\n")
    again = await commands.init(repository, "")
    assert ("then write `AGENTS.md`" in new, "with `edit`" in new) == (True, False)
    assert "then improve `AGENTS.md`" in again
    assert "The file has 2 lines already." in again
    assert "with `edit`, only the lines that have to" in again


async def test_review_names_the_diff_command_for_a_branch_and_pull_request(repository):
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "x"], cwd=repository, check=True)
    base, pull = await commands.review(repository, "HEAD"), await commands.review(repository, "#12")
    assert "`git diff HEAD...HEAD`" in base
    assert "`gh pr diff 12`" in pull


async def test_diff_shows_changed_and_new_files(repository):
    (repository / "api.py").write_text("import sys\n")
    (repository / "new file.py").write_text("x = 1\n")
    front_end = FakeFrontEnd(FakeSession(cwd=repository))
    await dispatch(front_end, "/diff")
    [shown] = front_end.shown
    assert shown.startswith("```diff\n")
    assert "-import os\n" in shown
    assert "+import sys\n" in shown
    assert "+++ b/new file.py" in shown
    assert "+x = 1\n" in shown


async def test_diff_without_changes_without_commits_and_without_git(repository, tmp_path):
    front_end = FakeFrontEnd(FakeSession(cwd=repository))
    await dispatch(front_end, "/diff")
    [line] = front_end.shown
    assert line.startswith("No changes since the last commit. `/diff session`")

    fresh = tmp_path / "fresh"
    fresh.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=fresh, check=True)
    (fresh / "a.txt").write_text("a\n")
    subprocess.run(["git", "add", "."], cwd=fresh, check=True)
    front_end = FakeFrontEnd(FakeSession(cwd=fresh))
    await dispatch(front_end, "/diff")
    assert "+a" in front_end.shown[0]

    front_end = FakeFrontEnd(FakeSession(cwd=tmp_path))
    await dispatch(front_end, "/diff")
    assert "not in a git repository" in front_end.lines[0][1]


async def test_diff_runs_no_program_configured_by_the_repository(repository):
    ran = repository / "ran"
    for key in ("core.fsmonitor", "diff.external", "diff.x.textconv"):
        subprocess.run(["git", "config", key, f"touch {ran};"], cwd=repository, check=True)
    (repository / ".gitattributes").write_text("*.py diff=x\n")
    (repository / "api.py").write_text("changed\n")
    front_end = FakeFrontEnd(FakeSession(cwd=repository))
    await dispatch(front_end, "/diff")
    assert "+changed" in front_end.shown[0]
    assert not ran.exists()


async def test_diff_since_a_branch_shows_what_this_one_changed(repository):
    def git(*words):
        subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True)

    git("branch", "base")
    git("checkout", "-q", "-b", "work")
    (repository / "api.py").write_text("committed\n")
    git("commit", "-qam", "work")
    git("checkout", "-q", "base")
    git("commit", "-q", "--allow-empty", "-m", "later")
    git("checkout", "-q", "work")
    front_end = FakeFrontEnd(FakeSession(cwd=repository))
    await dispatch(front_end, "/diff")
    await dispatch(front_end, "/diff base")
    await dispatch(front_end, "/diff no-such-branch")
    await dispatch(front_end, "/diff --output=x")
    assert front_end.shown[0].startswith("No changes since the last commit.")
    assert "+committed" in front_end.shown[1]
    assert ["no such commit" in line for _, line in front_end.lines] == [True, True]
    assert not (repository / "x").exists()
