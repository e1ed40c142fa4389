"""The notice about a newer version: off until asked for, once a day, by the user's pip."""

import sys

import pytest

from ouro import __version__
from ouro.session import update_notice
from ouro.session.update_notice import is_in_ci, is_newer, newest_in, notify_update
from ouro.settings import Settings
from ouro.utils.ouro_paths import get_home


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [
        ("0.10.0", "0.9.1", True), ("1.0", "1.0.0", False), ("0.1.0", "0.1.0", False), ("", "0.1", False),
        ("0.2.0rc1", "0.1.9", True), ("2024.1.1", "1.0", True), ("0.1.1.post1", "0.1.1", False),
    ],
)  # fmt: skip
def test_versions_are_compared_by_their_numbers(version, than, newer):
    assert is_newer(version, than) is newer


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("ouro (1.2.3)\nAvailable versions: 1.2.3\n", "1.2.3"),
        ("ouro-other (9.9)\n", ""),
        ("ERROR: No matching distribution found for ouro\n", ""),
        ("ouro (\x1b[31m9)", ""),
        ("", ""),
    ],
)
def test_only_the_first_line_of_pip_counts(output, version):
    assert newest_in(output) == version


def test_it_is_off_by_default_and_ci_is_recognized():
    assert Settings().updates == "off"
    assert is_in_ci({"CI": "true"})
    assert is_in_ci({"JENKINS_URL": "http://x"})
    assert not is_in_ci({"CI": "false", "PATH": "/bin"})


@pytest.fixture
def pip(home, tmp_path, monkeypatch):
    """A `python -m pip` that answers, and counts its calls."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho "ouro (99.1)"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(update_notice, "is_from_index", lambda: True)
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    get_home().mkdir(exist_ok=True)
    return tmp_path / "calls"


async def test_the_index_is_asked_once_a_day_and_the_notice_names_both_versions(pip):
    shown = []
    await notify_update(shown.append)
    await notify_update(shown.append)
    assert len(pip.read_text().splitlines()) == 1
    assert pip.read_text().startswith("-m pip index versions ouro")
    assert len(shown) == 2
    assert "99.1" in shown[0]
    assert __version__ in shown[0]


async def test_nothing_is_asked_in_ci_or_for_another_installation(pip, monkeypatch):
    monkeypatch.setattr(update_notice, "is_from_index", lambda: False)
    await notify_update(lambda _text: None)
    monkeypatch.setattr(update_notice, "is_from_index", lambda: True)
    monkeypatch.setenv("CI", "1")
    await notify_update(lambda _text: None)
    assert not pip.exists()
