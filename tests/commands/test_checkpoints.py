"""`ouro checkpoints`: list and delete the files that undo needs."""

import errno
import json
import os
import time
from pathlib import Path

import pytest

from ouro.cli import main
from ouro.safety import Checkpoints
from ouro.utils.ouro_paths import get_checkpoints_dir


@pytest.fixture
def stored_checkpoints(home, repository) -> Checkpoints:
    checkpoints = Checkpoints(repository, get_checkpoints_dir(), "s1")
    checkpoints.take_before(1)
    return checkpoints


def run(capsys, *words: str):
    assert main(["checkpoints", *words]) == 0
    return capsys.readouterr().out


def test_nothing_to_list_or_delete_without_sessions(home, capsys):
    assert run(capsys, "list") == "No checkpoints are stored.\n"
    assert json.loads(run(capsys, "list", "--json")) == []
    assert run(capsys, "clean").startswith("No checkpoints to delete: those older than 14 days")
    assert json.loads(run(capsys, "clean", "--days", "3", "--json")) == {"days": 3, "freed": 0}
    assert main(["checkpoints", "clean", "--days", "-1"]) == 2


def test_folder_that_cannot_be_deleted_is_not_counted(stored_checkpoints, capsys, monkeypatch):
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("ouro.safety.checkpoints.cleaning.shutil.rmtree", refuse)
    assert main(["checkpoints", "clean", "--days", "0"]) == 1
    told = capsys.readouterr()
    assert (told.out, f"{stored_checkpoints.folder}: Read-only file system." in told.err) == (
        "",
        True,
    )


def test_folders_are_listed_and_the_old_ones_deleted(stored_checkpoints, repository, capsys):
    (listed,) = json.loads(run(capsys, "list", "--json"))
    assert (listed["workspace"], listed["bytes"] > 0) == (str(repository), True)
    assert run(capsys, "list").rstrip().endswith(str(repository))
    run(capsys, "clean", "--days", "3")
    assert len(stored_checkpoints.turns()) == 1
    past = time.time() - 4 * 86_400
    os.utime(stored_checkpoints.folder / "index", (past, past))
    assert "of checkpoints: those older than 3 days, and the oldest above 2,000 MB." in run(
        capsys, "clean", "--days", "3"
    )
    assert stored_checkpoints.turns() == ()
    assert run(capsys, "list") == "No checkpoints are stored.\n"
    stored_checkpoints.take_before(2)
    assert [turn.number for turn in stored_checkpoints.turns()] == [2], (
        "a session that runs goes on"
    )
