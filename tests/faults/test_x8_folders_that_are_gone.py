"""X8: the folder of a command is deleted, a file, without permission, or a link."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ouro.agent.environment import Environment
from ouro.errors import ToolError


async def test_x8_deleted_workspace_is_reported_and_works_once_it_is_back(bench):
    shutil.rmtree(bench.root)
    with pytest.raises(ToolError, match=f"{bench.root} does not exist"):
        await bench.run("pwd")
    bench.root.mkdir()
    assert (await bench.run("pwd")).text.startswith(str(bench.root))


async def test_x8_a_folder_that_deletes_itself_breaks_only_its_own_call(bench):
    result = await bench.run("rmdir ../workspace; pwd -P; ls")
    assert "[exit code" in result.text
    bench.root.mkdir(exist_ok=True)
    assert (await bench.run("pwd")).text.startswith(str(bench.root))


@pytest.mark.parametrize("background", [False, True])
async def test_x8_file_as_folder_is_refused(bench, background):
    (bench.root / "file").write_text("")
    with pytest.raises(ToolError, match="not a folder that commands can be run in"):
        await bench.run("pwd", cwd="file", background=background)


@pytest.mark.skipif(os.getuid() == 0, reason="root enters every folder")
async def test_x8_inaccessible_folder_is_reported(bench):
    (bench.root / "closed").mkdir(mode=0)
    with pytest.raises(ToolError, match="closed is not a folder that commands can be run in"):
        await bench.run("pwd", cwd="closed")


async def test_x8_link_is_resolved_once_and_the_real_path_reported(bench, tmp_path):
    (tmp_path / "real").mkdir()
    (bench.root / "link").symlink_to(tmp_path / "real")
    result = await bench.run("pwd -P", cwd="link")
    assert result.text.startswith(f"{tmp_path}/real\n[exit code 0")
    assert f" in {tmp_path}/real]" in result.text


@pytest.mark.parametrize(
    "words", [("-p", "hello"), ("sessions", "list"), ("memory", "list"), ("doctor",), ("--plain",)]
)
def test_x8_current_folder_that_was_deleted_is_named_at_start(tmp_path, words):
    folder = tmp_path / "gone"
    folder.mkdir()
    line = f"cd '{folder}' && rmdir '{folder}' && exec '{sys.executable}' -m ouro \"$@\""
    done = subprocess.run(
        ["bash", "-c", line, "bash", *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONSAFEPATH": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"The current folder {folder} was deleted or moved." in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


async def test_x8_folder_that_is_deleted_in_a_session_is_named(tmp_path):
    (tmp_path / "work").mkdir()
    environment = Environment(tmp_path / "work", lambda: "ask")
    assert environment.folder_problem() == ""
    before = await environment.changes()

    shutil.rmtree(tmp_path / "work")

    assert "deleted or moved" in environment.folder_problem()
    assert "deleted or moved" in await environment.changes()
    assert "deleted or moved" not in before


async def test_x8_repository_that_git_refuses_has_no_count_of_changes(repository):
    environment = Environment(repository, lambda: "ask")
    assert "changed file" in await environment.whole()
    config = repository / ".git" / "config"
    config.write_text(config.read_text().replace("version = 0", "version = 99"))

    text = await environment.whole()

    assert "git refuses: " in text
    assert "changed file" not in text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
async def test_x8_repository_of_another_user_is_named_as_one(repository):
    os.chown(repository, 12345, 12345)

    text = await Environment(repository, lambda: "ask").whole()

    assert "git refuses: dubious ownership" in text
    assert "changed file" not in text


def test_x8_permissions_use_the_target_of_a_linked_folder(tmp_path, bench):
    from ouro.safety import Ask, Effect, Permissions, Workspace
    from ouro.tools.shell import ShellArgs

    (tmp_path / "real").mkdir()
    (bench.root / "link").symlink_to(tmp_path / "real")
    targets = bench.shell.targets(ShellArgs("ls", cwd="link"))
    assert isinstance(
        Permissions(Workspace(bench.root), "ask").decide("shell", Effect.RUN, targets), Ask
    )
