"""B8: a container that is not there, goes away, does not confine, or of a project that wants more."""

import asyncio
import os
import shutil
import socket
from pathlib import Path

import pytest
from fakes.model_server import agent
from fakes.ouro_program import OuroProgram
from fakes.tool_benches import (
    OF_REAL_ENGINES,
    FakeEngine,
    ShellBench,
    decision,
    mount_options,
    real_image,
)
from fakes.waiting import until

from ouro.errors import ToolError, TrustNeeded
from ouro.extensions.trust_summary import describe_files
from ouro.safety import (
    Ask,
    Confinement,
    ContainerConfinement,
    Effect,
    Permissions,
    Workspace,
    devcontainer_files,
    read_devcontainer,
)
from ouro.settings import SandboxSettings

WRITES = "echo it ran > ran"


@pytest.fixture
def engine(tmp_path, monkeypatch) -> FakeEngine:
    engine = FakeEngine(tmp_path)
    monkeypatch.setenv("PATH", f"{engine.bin}{os.pathsep}{os.environ['PATH']}")
    return engine


def make_bench(folder, plan=None, unreadable=tuple, **settings) -> ShellBench:
    root = folder / "workspace"
    root.mkdir(exist_ok=True)
    settings = {"engine": "podman", "image": "box:1", **settings}
    confinement = ContainerConfinement(
        root,
        folder / "state",
        SandboxSettings(**settings),
        unreadable=unreadable,
        devcontainer=plan,
    )
    return ShellBench(folder, confinement)


@pytest.fixture
async def bench(tmp_path, engine):
    bench = make_bench(tmp_path)
    yield bench
    await bench.jobs.close()
    bench.shell.confinement.close()


async def demand_refusal(bench: ShellBench, words: str) -> None:
    """No command runs, with no limits, and the message says why."""
    for limits in ("read", "workspace", "repository", "off"):
        with pytest.raises(ToolError, match=words) as caught:
            await bench.run_as(limits, WRITES)
        assert "nothing runs on this machine instead" in str(caught.value).lower()
    assert not (bench.root / "ran").exists()


class TestFailsClosed:
    async def test_b8_without_the_engine_no_command_runs(self, tmp_path, monkeypatch):
        empty = tmp_path / "empty"
        empty.mkdir()
        monkeypatch.setenv("PATH", str(empty))
        await demand_refusal(make_bench(tmp_path), "podman is not installed")

    async def test_b8_an_engine_in_the_workspace_is_not_taken(self, tmp_path, engine, monkeypatch):
        bench = make_bench(tmp_path)
        shutil.move(engine.bin, bench.root / "bin")
        monkeypatch.setenv("PATH", str(bench.root / "bin"))
        await demand_refusal(bench, "podman is not installed")
        assert not engine.calls

    async def test_b8_an_engine_that_does_not_answer_runs_nothing(self, bench, engine):
        engine.is_broken("gone")
        await demand_refusal(bench, "Is it running")

    async def test_b8_a_missing_image_names_the_command_that_fetches_it(self, tmp_path, engine):
        await demand_refusal(make_bench(tmp_path, image="other:2"), "podman pull other:2")

    async def test_b8_a_container_that_cannot_be_started_leaves_nothing(self, bench, engine):
        engine.is_broken("refuses")
        await demand_refusal(bench, "no space left on device")
        assert not [*(bench.root.parent / "state" / "containers").iterdir()]

    async def test_b8_a_container_that_does_not_confine_is_removed(self, bench, engine):
        engine.is_broken("wrong", "it has a network (eth0)")
        await demand_refusal(bench, r"does not confine commands: it has a network \(eth0\)")
        assert not engine.boxes()

    async def test_b8_a_container_removed_in_between_is_named_and_replaced(self, bench, engine):
        await bench.run_as("workspace", "true")
        engine.remove_boxes()
        lost = await bench.run_as("workspace", WRITES)
        assert "was stopped or removed. Nothing ran on this machine instead." in lost.text
        assert not (bench.root / "ran").exists()
        await bench.run_as("workspace", WRITES)
        assert (bench.root / "ran").exists()

    async def test_b8_a_container_removed_while_a_command_runs_is_named(self, bench, engine):
        task = asyncio.create_task(bench.run_as("workspace", "echo on; sleep 987.9"))
        await until(lambda: "on" in "".join(bench.reported))
        await asyncio.to_thread(engine.remove_boxes)
        result = await task
        assert result.failed
        assert "was stopped or removed" in result.text

    def test_b8_the_sandbox_of_the_machine_runs_no_command_in_its_place(self, tmp_path):
        confinement = Confinement(tmp_path, tmp_path / "state", SandboxSettings(engine="podman"))
        with pytest.raises(ToolError, match="The settings want a container"):
            confinement.wrap_command(["true"], "workspace", "call", tmp_path)

    async def test_b8_a_name_of_an_image_is_no_option(self, tmp_path, engine):
        bench = make_bench(tmp_path, image="--privileged")
        with pytest.raises(ToolError, match="is not the name of an image"):
            await bench.run_as("workspace", "true")
        assert not engine.runs()


class TestHowItIsStarted:
    async def test_b8_it_gets_no_rights_no_network_and_limits(self, bench, engine):
        await bench.run_as("workspace", "true")
        words = engine.runs()[0]
        assert {
            "--read-only",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--network=none",
            "--pull=never",
            "--pids-limit=4112",
        } <= {*words}
        assert words[words.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
        assert not any("privileged=" in word or "docker.sock" in word for word in words)

    async def test_b8_the_limits_of_the_settings_hold_for_each_process(self, tmp_path, engine):
        bench = make_bench(tmp_path, max_memory_mb=300, max_open_files=99)
        result = await bench.run_as("workspace", "ulimit -d; ulimit -n")
        assert result.text.startswith("307200\n99\n")
        bench.shell.confinement.close()

    async def test_b8_places_of_keys_in_a_shared_home_are_covered(
        self, tmp_path, engine, monkeypatch
    ):
        bench = make_bench(tmp_path)
        monkeypatch.setenv("HOME", str(bench.root))
        (bench.root / ".ssh").mkdir()
        (bench.root / ".npmrc").touch()
        await bench.run_as("off", "true")
        mounts = mount_options(engine.runs()[0])
        assert mounts[str(bench.root / ".ssh")] == "type=tmpfs"
        assert "source=/dev/null" in mounts[str(bench.root / ".npmrc")]
        bench.shell.confinement.close()

    async def test_b8_the_home_of_the_user_is_not_shared(self, bench, engine, monkeypatch):
        home = bench.root.parent / "home"
        (home / ".ssh").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        await bench.run_as("off", "true")
        mounts = mount_options(engine.runs()[0])
        assert f"source={home} " not in f"{mounts[str(home)]} "
        assert not any(".ssh" in target for target in mounts)

    async def test_b8_sockets_in_the_workspace_are_covered(self, bench, engine, monkeypatch):
        path = bench.root / "agent.sock"
        with socket.socket(socket.AF_UNIX) as server:
            monkeypatch.chdir(bench.root)
            server.bind(str(path))
            server.listen()
            await bench.run_as("workspace", "true")
        assert "source=/dev/null" in mount_options(engine.runs()[0])[str(path)]

    async def test_b8_a_git_file_cannot_share_another_folder(self, bench, engine, tmp_path):
        keys = tmp_path / "keys"
        keys.mkdir()
        (bench.root / ".git").write_text(f"gitdir: {keys}\n")
        await bench.run_as("workspace", "true")
        assert not any(str(keys) in target for target in mount_options(engine.runs()[0]))


class TestPermissions:
    def test_b8_leaving_the_sandbox_is_asked_and_stays_in_the_container(self, tmp_path):
        workspace = Workspace(tmp_path, in_container=True)
        permissions = Permissions(workspace, "auto")
        asked = permissions.decide("shell", Effect.RUN, ["npm install"], outside=True)
        assert isinstance(asked, Ask)
        assert "in the container" in asked.reason

    def test_b8_lines_that_cannot_be_undone_are_asked_as_without_it(self, tmp_path):
        assert isinstance(decision(tmp_path, "git push --force", mode="auto"), Ask)

    async def test_b8_the_state_is_known_only_after_the_test(self, bench):
        assert not bench.shell.confinement.known_tier
        await bench.run_as("workspace", "true")
        assert bench.shell.confinement.known_tier == "podman"


@pytest.fixture
def project(tmp_path) -> Path:
    root = tmp_path / "workspace"
    (root / ".devcontainer").mkdir(parents=True)
    (root / ".devcontainer" / "Dockerfile").write_text("FROM scratch\n")
    return root


def write_devcontainer(root: Path, text: str) -> None:
    (root / ".devcontainer" / "devcontainer.json").write_text(text)


class TestDevcontainers:
    def test_b8_what_would_open_the_machine_is_not_used_and_named(self, project, monkeypatch):
        monkeypatch.setenv("GITHUB_TOKEN", "ghp_" + "x" * 36)
        write_devcontainer(
            project,
            """{ // with comments
            "image": "box:1", "privileged": true, "runArgs": ["--network=host"],
            "initializeCommand": "touch /ran", "capAdd": ["SYS_PTRACE"],
            "containerEnv": {"T": "${localEnv:GITHUB_TOKEN}", "P": "${containerEnv:PATH}:/x"},
            "mounts": ["source=${localEnv:HOME}/.ssh,target=/keys,type=bind",
                       "source=/var/run/docker.sock,target=/var/run/docker.sock,type=bind",
                       "source=data,target=/data,type=volume"],
            }""",
        )
        plan = read_devcontainer(project)
        assert plan.environment == {"T": ""}
        assert [mount.target for mount in plan.mounts] == ["/data"]
        assert plan.mounts[0].volume not in ("", "data")
        for name in ("privileged", "runArgs", "initializeCommand", "capAdd", "docker.sock", "P"):
            assert any(name in item for item in plan.unused), name

    def test_b8_an_image_is_not_built_from_files_outside_the_project(self, project):
        for build in ('"../../Dockerfile"', '"Dockerfile", "context": "../.."'):
            write_devcontainer(project, f'{{"build": {{"dockerfile": {build}}}}}')
            with pytest.raises(ToolError, match="outside of the project"):
                read_devcontainer(project)

    def test_b8_the_question_of_trust_shows_what_runs(self, project):
        write_devcontainer(
            project,
            '{"build": {"dockerfile": "Dockerfile"}, "runArgs": ["-x"], "postCreateCommand": "make it"}',
        )
        lines = describe_files(project, devcontainer_files(project))
        assert "devcontainer: .devcontainer/devcontainer.json, .devcontainer/Dockerfile" in lines
        assert "devcontainer: runs once in a session: make it" in lines
        assert any("not used: runArgs" in line for line in lines)

    @pytest.mark.parametrize("text", ["{", "[]", '{"image": 3}', '{"dockerComposeFile": "x"}'])
    async def test_b8_an_odd_file_runs_nothing(self, tmp_path, engine, project, text):
        write_devcontainer(project, text)
        bench = make_bench(tmp_path, image="", devcontainer=True)
        with pytest.raises(ToolError):
            await bench.run_as("workspace", WRITES)
        assert not (project / "ran").exists()
        assert not engine.runs()

    async def test_b8_a_build_is_left_to_the_user(self, tmp_path, engine, project):
        write_devcontainer(project, '{"build": {"dockerfile": "Dockerfile"}}')
        bench = make_bench(tmp_path, image="", devcontainer=True)
        with pytest.raises(ToolError, match="podman build -t localhost/ouro-devcontainer-"):
            await bench.run_as("workspace", WRITES)
        assert not any(words[0] == "build" for words in engine.calls)


@pytest.fixture
def program(engine, model_server, repository):
    """The real program in a project with a devcontainer that is wanted."""
    (repository / ".devcontainer").mkdir()
    write_devcontainer(repository, '{"image": "box:1", "postCreateCommand": "echo x >> set_up"}')
    model_server.script(agent)
    wanted = {"OURO_SANDBOX_ENABLED": "true", "OURO_SANDBOX_DEVCONTAINER": "true"}
    program = OuroProgram(model_server, repository, wanted)
    yield program
    program.close()


class TestProgram:
    def run(self, program: OuroProgram, *words: str):
        return program.headless("-p", f"run: {WRITES}", "--mode", "auto", *words)

    def test_b8_a_devcontainer_is_asked_about_and_not_used_before(self, program, engine):
        done = self.run(program)
        assert done.code == TrustNeeded.exit_code
        assert ".devcontainer/devcontainer.json" in done.err
        assert not engine.calls

    def test_b8_without_trust_no_command_runs(self, program, engine):
        self.run(program, "--no-trust")
        assert not engine.runs()
        assert not (program.folder / "ran").exists()

    def test_b8_a_trusted_one_is_used_until_it_changes(self, program, engine):
        assert self.run(program, "--trust").code == 0
        assert (program.folder / "ran").exists()
        assert (program.folder / "set_up").exists()
        assert not engine.boxes()
        write_devcontainer(program.folder, '{"image": "box:1", "containerEnv": {"A": "1"}}')
        assert self.run(program).code == TrustNeeded.exit_code

    def test_b8_no_sandbox_runs_on_the_machine(self, program, engine):
        assert self.run(program, "--no-trust", "--no-sandbox", "--allow", "shell").code == 0
        assert (program.folder / "ran").exists()
        assert not engine.calls


@pytest.fixture(scope="session", params=["podman", "docker"])
def real(request):
    """An engine that works here, and an image."""
    with real_image(request.param) as image:
        if not image:
            pytest.skip(f"{request.param} does not work here")
        yield request.param, image


@pytest.fixture
async def real_bench(tmp_path, real, monkeypatch):
    name, image = real
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    for variable, value in OF_REAL_ENGINES.items():
        monkeypatch.setenv(variable, value)
    root = tmp_path / "workspace"
    (root / ".git" / "hooks").mkdir(parents=True)
    bench = make_bench(tmp_path, engine=name, image=image)
    yield bench
    await bench.jobs.close()
    bench.shell.confinement.close()


class TestRealEngine:
    """What the options achieve. On hosts without an engine these tests are skipped."""

    async def test_b8_files_belong_to_the_user_and_only_the_workspace_changes(self, real_bench):
        tries = "echo x > a; for f in .git/x .git/hooks/x /etc/x /bin/x /x; do echo x > $f; done"
        result = await real_bench.run_as("workspace", f"{tries}; id -u; cat a")
        assert (real_bench.root / "a").stat().st_uid == os.getuid()
        assert result.text.count("Read-only file system") == 5
        result = await real_bench.run_as("read", "echo x > b")
        assert "Read-only file system" in result.text
        assert not (real_bench.root / "b").exists()

    @pytest.mark.parametrize("limits", ["read", "workspace", "off"])
    async def test_b8_nothing_opens_the_machine(self, real_bench, limits):
        tries = (
            "mount -t tmpfs none /mnt; mount -o remount,rw /; mknod /tmp/d b 8 0; chroot / true;"
            " unshare -Ur true; cat ~/.ssh/id;"
            " nsenter -t 1 -m true; echo 1 > /proc/sys/kernel/panic; ls /var/run/docker.sock"
        )
        for line in tries.split("; "):
            assert (await real_bench.run_as(limits, line)).failed, line

    async def test_b8_there_is_no_network_but_its_own(self, real_bench):
        result = await real_bench.run_as("workspace", "cat /proc/net/route; ls /sys/class/net")
        assert "eth0" not in result.text
        assert "lo" in result.text

    async def test_b8_a_time_limit_ends_what_has_left_its_session(self, real_bench):
        line = "setsid sh -c 'sleep 986.1' & sleep 986.2"
        await real_bench.run_as("workspace", line, timeout_seconds=1)
        counted = "ps -o args | grep -c '[s]leep 986'"
        assert (await real_bench.run_as("workspace", counted)).text.startswith("0\n")

    async def test_b8_left_processes_are_ended_and_counted(self, real_bench):
        result = await real_bench.run_as("workspace", "sleep 986.3 & sleep 986.4 & true")
        assert "2 processes were left running and were ended" in result.text

    async def test_b8_exit_codes_and_signals_come_out(self, real_bench):
        assert "[exit code 7, " in (await real_bench.run_as("workspace", "exit 7")).text
        assert "[exit code 137, " in (await real_bench.run_as("workspace", "kill -9 $$")).text

    async def test_b8_a_background_job_in_a_terminal_is_typed_into_and_ended(self, real_bench):
        await real_bench.run_as("workspace", "read x; echo got:$x; sleep 986.5", pty=True)
        job = real_bench.jobs.find("job_1")
        await job.pty.type("word\r")
        await until(lambda: "got:word" in job.tail)
        await job.end()
        counted = "ps -o args | grep -c '[s]leep 986'"
        assert (await real_bench.run_as("workspace", counted)).text.startswith("0\n")

    async def test_b8_a_removed_container_is_named_and_replaced(self, real_bench, real):
        await real_bench.run_as("workspace", "true")
        containers = real_bench.shell.confinement.containers
        name = containers.running["workspace"].name
        await asyncio.to_thread(containers.engine.remove_container, name)
        lost = await real_bench.run_as("workspace", WRITES)
        assert "was stopped or removed" in lost.text
        assert not (real_bench.root / "ran").exists()
        assert not (await real_bench.run_as("workspace", WRITES)).failed
