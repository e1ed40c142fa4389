from __future__ import annotations

import subprocess
from itertools import product

import pytest

from ouro.utils.git_process import (
    GitProfile,
    command_line,
    environment,
    finish_git,
    run_git,
    start_git,
)

PROTECTED = (GitProfile.USER, GitProfile.CHECKPOINTS, GitProfile.MEMORY)
"""Profiles that contact no other machine."""


@pytest.mark.parametrize("profile", GitProfile)
def test_no_profile_runs_hooks_asks_questions_or_fetches_missing_objects(profile):
    assert "core.hooksPath=/dev/null" in command_line(profile, ["status"])
    variables = environment(profile)
    assert variables["GIT_TERMINAL_PROMPT"] == "0"
    assert variables["GIT_NO_LAZY_FETCH"] == "1"


@pytest.mark.parametrize("profile", PROTECTED)
def test_a_profile_without_a_remote_allows_no_transport(profile, repository):
    done = run_git(profile, ["ls-remote", str(repository)], repository, timeout=60)
    assert done.returncode
    assert b"transport 'file' not allowed" in done.stderr


@pytest.mark.parametrize(
    ("profile", "name"),
    product(GitProfile, ["GIT_DIR", "GIT_INDEX_FILE", "GIT_EXEC_PATH", "GIT_CONFIG_COUNT"]),
)
def test_variables_of_another_git_do_not_reach_any_profile(profile, name, monkeypatch):
    monkeypatch.setenv(name, "/nowhere")
    assert name not in environment(profile)


@pytest.mark.parametrize("profile", [GitProfile.CHECKPOINTS, GitProfile.MEMORY])
def test_settings_of_the_user_do_not_reach_repositories_of_ouro(profile, home, repository):
    (home / ".gitconfig").write_text("[alias]\n\tplanted = !touch planted\n")
    done = run_git(profile, ["planted"], repository, timeout=60)
    assert done.returncode
    assert not (repository / "planted").exists()


def test_a_repository_of_the_user_is_read_with_the_settings_of_the_user(home, repository):
    (home / ".gitconfig").write_text("[user]\n\tname = Grace\n")
    done = run_git(GitProfile.USER, ["config", "user.name"], repository, timeout=60)
    assert done.stdout == b"Grace\n"


@pytest.mark.parametrize("profile", GitProfile)
def test_a_process_over_its_time_is_ended(profile, repository):
    process = start_git(profile, ["hash-object", "--stdin"], repository)
    with pytest.raises(subprocess.TimeoutExpired):
        # Its time is over before it has begun.
        finish_git(profile, process, b"", timeout=-1)
    assert process.returncode is not None
    assert process.stdout is not None
    assert process.stdout.closed


def test_an_interrupted_wait_ends_the_process_and_its_children(repository):
    line = ["-c", "alias.wait=!sleep 600", "wait"]
    process = start_git(GitProfile.REMOTE, line, repository)

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish_git(GitProfile.REMOTE, process, b"", timeout=60, on_wait=interrupt)
    assert process.returncode == -9
