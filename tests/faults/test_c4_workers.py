"""C4: `ouro batch run --on`: a real scheduler and workers on loopback that are killed, full or lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from fakes.files import git, make_repository, touch, write_tasks
from fakes.waiting import PATIENCE

if not find_spec("distributed"):
    pytest.skip("Dask is not installed", allow_module_level=True)


class Machines:
    """A scheduler, and workers that are processes without a nanny: a killed one stays dead."""

    def __init__(self, folder, environment):
        self.folder, self.environment = folder, environment
        self.processes = []
        self.scheduler = self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0",
                                    "--no-dashboard", "--scheduler-file", str(folder / "s.json"))  # fmt: skip
        self.wait(lambda: (folder / "s.json").exists() and (folder / "s.json").stat().st_size)
        self.address = json.loads((folder / "s.json").read_text())["address"]

    def start(self, program, *words, before=()):
        log = (self.folder / f"{program}-{len(self.processes)}.log").open("wb")
        line = [*before, sys.executable, "-m", f"distributed.cli.{program}", *words]
        process = subprocess.Popen(line, env=self.environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def workers(self, count, before=(), **more):
        """Start workers, and wait until the scheduler has them.

        Args:
            before: words before the command of each.
            more: environment variables of each.
        """
        environment, self.environment = self.environment, {**self.environment, **more}
        flags = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60")
        found = []
        for _ in range(count):
            place = ("--local-directory", str(self.folder / str(len(self.processes))))
            found.append(self.start("dask_worker", self.address, *flags, *place, before=before))
        self.environment = environment
        alive = sum(process.poll() is None for process in self.processes[1:])
        from distributed import Client  # half a second, in each process that collects tests

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(alive, timeout=PATIENCE)
        return found

    def wait(self, done, needed=None):
        """Wait for a state, as long as the process that makes it runs."""
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end
            assert needed is None or needed.poll() is None
            time.sleep(0.05)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def machines(ouro, tmp_path):
    (tmp_path / "machines").mkdir()
    found = Machines(tmp_path / "machines", ouro.environment)
    yield found
    found.close()


def run(ouro, machines, *words):
    words = ("batch", "run", "tasks.yaml", "--json", "--on", machines.address, *words)
    batch = ouro.begin(*words)
    out, errors = batch.communicate(timeout=PATIENCE * 4)
    return errors.decode(), json.loads(out)["results"]


def first_prompts(ouro):
    prompts = [request.body["messages"][-1] for request in ouro.server.requests]
    return [prompt for prompt in prompts if prompt["role"] == "user"]


@pytest.mark.timeout(300)
def test_c4_two_of_four_workers_are_killed_and_each_task_is_done_once(ouro, machines, tmp_path):
    shop = make_repository(tmp_path / "shop")
    tasks = [
        {"id": f"t{n}", "repo": str(shop), "prompt": f"run: sleep 1\n{touch(f'a{n}')}"}
        for n in range(8)
    ]
    write_tasks(ouro.folder, tasks)
    workers = machines.workers(4)
    batch = ouro.begin("batch", "run", "tasks.yaml", "--json", "--on", machines.address, "-j", "4")
    machines.wait(lambda: len(first_prompts(ouro)) >= 4, batch)
    for worker in workers[:2]:
        worker.send_signal(signal.SIGKILL)
    out = batch.communicate(timeout=PATIENCE * 4)[0]
    assert batch.returncode == 0
    results = json.loads(out)["results"]
    assert [result["files"] for result in results] == [[f"a{n}"] for n in range(8)]
    assert git(shop, "show", "ouro/licences/t7:a7") == "new"
    assert len(first_prompts(ouro)) <= 8 + 2  # only what the killed ones had begun
    assert _left_over(ouro.home, machines) == []
    sessions = {session["id"] for session in ouro.sessions_of_all()}
    assert {result["session_id"] for result in results} <= sessions


def _left_over(home, machines):
    """Sessions of this home that still run, and servers that fork them whose worker is gone."""
    machine_pids = {str(process.pid) for process in machines.processes}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            own = (process / "environ").read_bytes()
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        is_server = parent in machine_pids
        if b"ouro.warm_start" in words and f"OURO_HOME={home}".encode() in own and not is_server:
            found.append(process.name)
    return found


@pytest.mark.timeout(300)
def test_c4_a_killed_run_goes_on_an_address_is_cloned_and_a_worker_without_a_key_is_named(
    ouro, machines, tmp_path
):
    shop = make_repository(tmp_path / "shop")
    tasks = [{"id": "far", "repo": f"file://{shop}", "prompt": touch("a")}]
    tasks.append({"id": "lost", "repo": str(tmp_path / "nowhere"), "prompt": "say: x"})
    tasks.append({"id": "slow", "repo": str(shop), "prompt": f"run: sleep 2\n{touch('b')}"})
    write_tasks(ouro.folder, tasks)
    machines.workers(2)
    refused = ouro.headless("batch", "run", "tasks.yaml", "--on", machines.address, "--env", "K=v")
    assert (refused.code, "only the name" in refused.err) == (2, True)
    batch = ouro.begin("batch", "run", "tasks.yaml", "--on", machines.address)
    machines.wait(lambda: any("sleep 2" in str(prompt) for prompt in first_prompts(ouro)), batch)
    batch.send_signal(signal.SIGKILL)
    batch.wait()
    errors, results = run(ouro, machines)
    found = {result["id"]: result for result in results}
    assert (found["far"]["outcome"], found["slow"]["outcome"]) == ("done", "done"), errors
    assert found["lost"]["outcome"] == "fault"
    assert "nowhere" in found["lost"]["detail"]
    tree = ouro.folder / "tasks.batch" / "tasks" / "far" / "tree"
    assert not tree.exists()
    os.environ["PATH"], old = str(_pushing_gh(tmp_path)), os.environ["PATH"]
    try:
        pushed = ouro.headless("batch", "pr", "tasks.batch", "far")
    finally:
        os.environ["PATH"] = old
    assert pushed.code == 0, pushed.err
    assert git(shop, "show", "ouro/licences/far:a") == "new"
    again = ouro.headless(
        "batch", "run", "tasks.yaml", "--state", "s", "--on", machines.address, "--env", "NO_KEY"
    )
    assert "lacks the variable NO_KEY" in again.err


def _pushing_gh(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text("#!/bin/sh\necho pushed\n")
    (tmp_path / "bin" / "gh").chmod(0o755)
    return f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"


def test_c4_what_a_session_on_a_worker_learned_is_asked_here(ouro, machines, tmp_path):
    shop = make_repository(tmp_path / "shop")
    there = tmp_path / "home of the worker"
    there.mkdir(mode=0o700)
    shutil.copy(ouro.home / "models.yaml", there)
    path = there / "memory" / "preferences.md"
    call = f"call: write {json.dumps({'path': str(path), 'content': '- Prefer MIT.'})}"
    task = {"id": "a", "repo": str(shop), "memory": "read", "prompt": f"{call}\nsay: done"}
    write_tasks(ouro.folder, [task])
    machines.workers(1, OURO_HOME=str(there))
    _, (result,) = run(ouro, machines)
    assert result["outcome"] == "done"
    assert "Prefer MIT." in ouro.headless("batch", "inbox", "tasks.batch").out
    assert ouro.headless("batch", "inbox", "tasks.batch", "accept", "all").code == 0
    assert (ouro.home / "memory" / "preferences.md").read_text() == "- Prefer MIT."
    ouro.more["OURO_HOME"] = str(there)
    assert "The inbox is empty." in ouro.headless("memory", "inbox").out


def test_c4_a_scheduler_that_is_not_there_and_an_unknown_place_are_named(ouro, tmp_path):
    write_tasks(
        ouro.folder, [{"repo": str(make_repository(tmp_path / "shop")), "prompt": "say: x"}]
    )
    done = ouro.headless("batch", "run", "tasks.yaml", "--on", "lsf")
    assert (done.code, "`--on lsf` is not known" in done.err) == (2, True)
    done = ouro.headless("batch", "run", "tasks.yaml", "--on", "slurm")
    assert (done.code, "needs the number of workers" in done.err) == (2, True)
    done = ouro.headless("batch", "run", "tasks.yaml", "--on", "slurm", "-j", "2")
    assert (done.code, "pip install dask-jobqueue" in done.err) == (2, True)


@pytest.mark.timeout(300)
def test_c4_a_worker_with_a_full_disk_gets_no_more_tasks_and_the_batch_is_done(
    ouro, machines, tmp_path
):
    full = tmp_path / "full"
    full.mkdir()
    small = (
        "unshare",
        "-rm",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=1m none {full}; exec "$@"',
        "sh",
    )
    if subprocess.run([*small[:4], f"mount -t tmpfs none {full}"], check=False).returncode:
        pytest.skip("no mounts are allowed here")
    shop = make_repository(tmp_path / "shop")
    tasks = [{"id": f"t{n}", "repo": str(shop), "prompt": touch(f"a{n}")} for n in range(6)]
    write_tasks(ouro.folder, tasks)
    machines.workers(1, before=small, TMPDIR=str(full))
    _, results = run(ouro, machines, "-j", "1", "--state", "alone")
    assert {result["outcome"] for result in results} == {"fault"}
    assert all("of free disk" in result["detail"] for result in results)
    machines.workers(1)
    _, results = run(ouro, machines, "-j", "2", "--state", "both")
    assert {result["outcome"] for result in results} == {"done"}
    refused = [result for result in results if result["attempts"] > 1]
    assert len(refused) <= 2  # what began before its fault was known


@pytest.mark.timeout(300)
def test_c4_a_run_whose_scheduler_dies_ends_and_continues_on_another(ouro, machines, tmp_path):
    shop = make_repository(tmp_path / "shop")
    tasks = [{"id": "quick", "repo": str(shop), "prompt": touch("a")}]
    tasks.append({"id": "slow", "repo": str(shop), "prompt": f"run: sleep 3\n{touch('b')}"})
    write_tasks(ouro.folder, tasks)
    machines.workers(1)
    batch = ouro.begin("batch", "run", "tasks.yaml", "--on", machines.address, "-j", "1")
    machines.wait(lambda: any("sleep 3" in str(prompt) for prompt in first_prompts(ouro)), batch)
    machines.scheduler.send_signal(signal.SIGKILL)
    errors = batch.communicate(timeout=PATIENCE * 4)[1].decode()
    assert batch.returncode == 1
    assert "The scheduler does not answer" in errors
    assert "Traceback" not in errors
    machines.wait(lambda: _left_over(ouro.home, machines) == [])
    (tmp_path / "others").mkdir()
    others = Machines(tmp_path / "others", ouro.environment)
    try:
        again = ouro.begin("batch", "run", "tasks.yaml", "--json", "--on", others.address)
        assert b"No worker is connected yet" in again.stderr.readline()
        others.workers(1)
        results = json.loads(again.communicate(timeout=PATIENCE * 4)[0])["results"]
    finally:
        others.close()
    assert [result["outcome"] for result in results] == ["done", "done"]
    begun = [prompt for prompt in first_prompts(ouro) if "sleep" not in str(prompt)]
    assert len(begun) == 1  # what had a result was not repeated


@pytest.mark.timeout(300)
def test_c4_the_process_of_a_killed_worker_ends_with_it(ouro, machines, tmp_path):
    shop = make_repository(tmp_path / "shop")
    # The command runs longer than this test waits: its own time limit must not end the session.
    (ouro.home / "config.yaml").write_text("shell: {timeout_seconds: 3600}\n")
    write_tasks(ouro.folder, [{"repo": str(shop), "prompt": "run: sleep 3000\nsay: x"}])
    (worker,) = machines.workers(1)
    batch = ouro.begin("batch", "run", "tasks.yaml", "--on", machines.address, "-j", "1")
    machines.wait(lambda: first_prompts(ouro) and _left_over(ouro.home, machines), batch)
    worker.send_signal(signal.SIGKILL)
    machines.wait(lambda: _left_over(ouro.home, machines) == [])
