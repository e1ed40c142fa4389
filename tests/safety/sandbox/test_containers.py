"""Commands in a container: with a program that poses as the engine and runs them on this machine."""

import asyncio
import os
import subprocess
import sys

import pytest
from fakes.tool_benches import FakeEngine, ShellBench, living, mount_options
from fakes.waiting import until

from ouro.errors import ToolError
from ouro.safety import ContainerConfinement, DevContainer, remove_left_containers
from ouro.settings import SandboxSettings
from ouro.tools.shell_process import is_any_running


@pytest.fixture
def engine(tmp_path, monkeypatch) -> FakeEngine:
    engine = FakeEngine(tmp_path)
    monkeypatch.setenv("PATH", f"{engine.bin}{os.pathsep}{os.environ['PATH']}")
    return engine


class ContainerBench(ShellBench):
    def __init__(self, folder, plan=None, unreadable=tuple, **settings) -> None:
        root, self.state = folder / "workspace", folder / "state"
        root.mkdir(exist_ok=True)
        settings = {"engine": "podman", "image": "box:1", **settings}
        self.confinement = ContainerConfinement(
            root,
            self.state,
            SandboxSettings(**settings),
            unreadable=unreadable,
            devcontainer=plan,
        )
        super().__init__(folder, self.confinement)


@pytest.fixture
async def bench(tmp_path, engine):
    bench = ContainerBench(tmp_path)
    yield bench
    await bench.jobs.close()
    bench.confinement.close()
    assert not engine.boxes()


class TestCommands:
    async def test_output_exit_code_and_folder_are_those_of_the_command(self, bench):
        (bench.root / "below").mkdir()
        result = await bench.run_as("workspace", "pwd; echo two >&2; exit 3", cwd="below")
        assert result.text.startswith(f"{bench.root}/below\ntwo\n[exit code 3, ")

    async def test_the_environment_of_the_machine_stays_outside(self, bench, monkeypatch, engine):
        monkeypatch.setenv("PROJECT_SETTING", "seen")
        await bench.run_as("workspace", "true")
        words = engine.runs()[0]
        assert not any("PROJECT_SETTING" in word for word in words)
        assert "GIT_TERMINAL_PROMPT=0" in words

    async def test_one_container_serves_all_commands_with_the_same_limits(self, bench, engine):
        for _ in range(3):
            await bench.run_as("workspace", "true")
        assert len(engine.runs()) == 1
        await bench.run_as("read", "true")
        assert len(engine.boxes()) == 2

    async def test_a_removed_container_is_not_used_again_if_its_successor_did_not_start(
        self, bench, engine
    ):
        await bench.run_as("workspace", "true")
        (bench.root / ".envrc").write_text("a new read-only file needs another container")
        engine.is_broken("refuses")
        with pytest.raises(ToolError):
            await bench.run_as("workspace", "true")
        await until(lambda: not engine.boxes())
        (bench.root / ".envrc").unlink()
        (engine.state / "refuses").unlink()
        assert (await bench.run_as("workspace", "echo again")).text.startswith("again")

    async def test_what_a_command_leaves_running_is_ended_and_counted(self, bench):
        result = await bench.run_as("workspace", "sleep 987.1 & sleep 987.2 & echo started")
        assert "2 processes were left running and were ended" in result.text
        assert not living("sleep\x00987.")

    async def test_the_time_limit_ends_all_processes(self, bench):
        line = "setsid sleep 987.3 & sleep 987.4"
        result = await bench.run_as("workspace", line, timeout_seconds=0.5)
        assert "[time limit, " in result.text
        await until(lambda: not living("sleep\x00987."))

    async def test_an_interrupt_ends_all_processes(self, bench):
        task = asyncio.create_task(bench.run_as("workspace", "echo on; sleep 987.5; echo off"))
        await until(lambda: "on" in "".join(bench.reported))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: not living("sleep\x00987."))
        assert not is_any_running()

    async def test_b8_a_killed_client_leaves_no_command_behind(self, bench, monkeypatch):
        # As where the container is in a virtual machine: its processes are not in this /proc.
        monkeypatch.setattr("ouro.tools.shell_process._HAS_PROC", False)
        task = asyncio.create_task(bench.run_as("workspace", "echo on; sleep 987.6"))
        await until(lambda: "on" in "".join(bench.reported))
        bench.shell.kill_all()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: not living("sleep\x00987."))

    async def test_a_background_job_goes_on_and_is_ended(self, bench):
        await bench.run_as("workspace", "echo ready; sleep 987.7", background=True)
        job = bench.jobs.find("job_1")
        await until(lambda: "ready" in job.tail)
        await bench.run_as("workspace", "true")
        assert job.running
        await job.end()
        assert not living("sleep\x00987.")

    async def test_a_program_in_a_terminal_is_typed_into(self, bench):
        result = await bench.run_as("workspace", "test -t 0 && read -r x && echo got:$x", pty=True)
        job = bench.jobs.find("job_1")
        assert "running" in result.text
        await job.pty.type("word\r")
        await until(lambda: "got:word" in job.tail)

    async def test_the_users_own_line_runs_on_the_machine(self, bench, engine):
        result = await bench.shell.run_line("echo own", lambda _text: None)
        assert result.text.startswith("own\n")
        assert not engine.calls

    async def test_a_folder_outside_the_workspace_is_refused(self, bench):
        with pytest.raises(ToolError, match="is not in the container"):
            await bench.run_as("off", "pwd", cwd="/etc")

    @pytest.mark.parametrize("wish", [{"engine": "docker"}, {"image": "x"}, {"devcontainer": True}])
    def test_no_sandbox_means_no_container(self, wish):
        assert SandboxSettings(**wish).in_container
        assert not SandboxSettings(enabled=False, **wish).in_container


class TestWhatIsShared:
    async def test_b8_lines_that_only_read_can_change_nothing(self, bench, engine):
        await bench.run_as("read", "true")
        mounts = mount_options(engine.runs()[0])
        assert mounts[str(bench.root)].endswith("readonly")
        assert mounts["/tmp"] == "type=tmpfs"

    async def test_b8_the_workspace_is_writable_without_files_that_programs_obey(
        self, bench, engine
    ):
        (bench.root / ".git").mkdir()
        (bench.root / ".envrc").touch()
        await bench.run_as("workspace", "true")
        mounts = mount_options(engine.runs()[0])
        assert not mounts[str(bench.root)].endswith("readonly")
        assert mounts[str(bench.root / ".git")].endswith("readonly")
        assert mounts[str(bench.root / ".envrc")].endswith("readonly")

    async def test_b8_new_files_that_programs_obey_are_moved_out(self, bench):
        task = asyncio.create_task(bench.run_as("workspace", "mkdir .vscode; echo > .vscode/x"))
        with pytest.raises(AssertionError, match="the shell asked"):
            await task
        assert not (bench.root / ".vscode").exists()

    async def test_b8_what_the_user_allows_gets_the_workspace_and_the_network(self, bench, engine):
        (bench.root / ".git").mkdir()
        await bench.run_as("workspace", "true")
        await bench.run_as("off", "true")
        first, second = engine.runs()
        assert "--network=none" in first
        assert "--network=host" in second
        assert str(bench.root / ".git") not in mount_options(second)

    async def test_b8_files_that_a_rule_denies_are_covered(self, tmp_path, engine):
        secret = tmp_path / "workspace" / ".env"
        bench = ContainerBench(tmp_path, unreadable=lambda: [secret])
        secret.touch()
        await bench.run_as("workspace", "true")
        assert "source=/dev/null" in mount_options(engine.runs()[0])[str(secret)]
        bench.confinement.close()

    async def test_b8_a_replaced_folder_gets_a_new_container(self, bench, engine):
        git = bench.root / ".git"
        git.mkdir()
        await bench.run_as("workspace", "true")
        git.rename(bench.root / "old")
        git.mkdir()
        await bench.run_as("workspace", "true")
        assert len(engine.runs()) == 2
        await until(lambda: len(engine.boxes()) == 1)

    async def test_b8_an_outdated_container_stays_until_its_jobs_have_ended(self, tmp_path, engine):
        denied = []
        bench = ContainerBench(tmp_path, unreadable=lambda: denied)
        await bench.run_as("workspace", "echo ready; sleep 987.8", background=True)
        job = bench.jobs.find("job_1")
        await until(lambda: "ready" in job.tail)
        (bench.root / "key").touch()
        denied.append(bench.root / "key")
        await bench.run_as("workspace", "true")
        assert len(engine.boxes()) == 2
        assert job.running
        await job.end()
        await until(lambda: len(engine.boxes()) == 1)
        bench.confinement.close()

    async def test_b8_a_worktree_sees_its_repository(self, tmp_path, engine):
        repository = tmp_path / "repository"
        for words in (
            ("init", "-q", str(repository)),
            ("-C", str(repository), "commit", "-q", "--allow-empty", "-m", "x"),
            ("-C", str(repository), "worktree", "add", "-q", str(tmp_path / "workspace")),
        ):
            subprocess.run(["git", *words], check=True, capture_output=True)
        bench = ContainerBench(tmp_path)
        await bench.run_as("workspace", "true")
        mounts = mount_options(engine.runs()[0])
        assert mounts[str(repository / ".git")].endswith("readonly")
        bench.confinement.close()


class TestEnds:
    async def test_the_session_ends_its_containers(self, tmp_path, engine):
        bench = ContainerBench(tmp_path)
        await bench.run_as("workspace", "true")
        assert engine.boxes()
        bench.confinement.close()
        assert not engine.boxes()
        assert not [*(bench.state / "containers").iterdir()]

    async def test_the_next_start_removes_the_container_of_a_killed_ouro(self, tmp_path, engine):
        state, root = tmp_path / "state", tmp_path / "workspace"
        root.mkdir()
        code = (
            "import os, sys; from pathlib import Path\n"
            "from ouro.safety import ContainerConfinement\n"
            "from ouro.settings import SandboxSettings\n"
            "root, state = map(Path, sys.argv[1:])\n"
            "settings = SandboxSettings(engine='podman', image='box:1')\n"
            "words = ['/bin/sh', '-c', '', 'sh', '1', 'true']\n"
            "ContainerConfinement(root, state, settings).wrap_command(words, 'workspace', 'call', root)\n"
            "os._exit(9)\n"
        )
        subprocess.run([sys.executable, "-c", code, str(root), str(state)], check=False)
        assert engine.boxes()
        assert remove_left_containers(state) == 1
        assert not engine.boxes()
        assert remove_left_containers(state) == 0

    async def test_the_container_of_a_living_ouro_stays(self, bench, engine):
        await bench.run_as("workspace", "true")
        assert remove_left_containers(bench.state) == 0
        assert engine.boxes()


class TestDevcontainers:
    async def test_the_setup_runs_once_before_the_first_command(self, tmp_path, engine):
        plan = DevContainer(image="box:1", root=tmp_path, setup="echo x >> set_up")
        bench = ContainerBench(tmp_path, lambda: plan, image="", devcontainer=True)
        await asyncio.gather(*(bench.run_as("workspace", "cat set_up") for _ in range(3)))
        assert (bench.root / "set_up").read_text() == "x\n"
        assert "--network=host" in engine.runs()[0]
        bench.confinement.close()

    async def test_a_failed_setup_is_a_warning(self, tmp_path, engine):
        plan = DevContainer(image="box:1", root=tmp_path, setup="echo no such package; exit 1")
        bench = ContainerBench(tmp_path, lambda: plan, image="", devcontainer=True)
        result = await bench.run_as("workspace", "echo on")
        assert result.text.startswith("on\n")
        assert any("no such package" in event.text for event in bench.events)
        bench.confinement.close()

    async def test_variables_and_the_second_path_are_used(self, tmp_path, engine):
        root = tmp_path / "workspace"
        plan = DevContainer(
            image="box:1", root=root, workspace_folder="/workspaces/it", environment={"A": "1"}
        )
        bench = ContainerBench(tmp_path, lambda: plan, image="", devcontainer=True)
        (root / ".git").mkdir()
        await bench.run_as("workspace", "true")
        mounts = mount_options(engine.runs()[0])
        assert mounts["/workspaces/it"] == mounts[str(root)]
        assert mounts["/workspaces/it/.git"].endswith("readonly")
        assert "A=1" in engine.runs()[0]
        bench.confinement.close()
