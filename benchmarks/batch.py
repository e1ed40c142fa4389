"""Batches of many scripted tasks: what a task costs over `ouro -p`, and whether kills change a result.

    PYTHONPATH=tests python -m benchmarks.batch                    100 tasks; two minutes of two cores
    PYTHONPATH=tests python -m benchmarks.batch --tasks 1000       twenty minutes

Each task writes a file in one of ten repositories. First the same prompts by `ouro -p`, by four
processes and by four workers of Dask, without kills: CPU and time of one task. Then all tasks on
processes, the coordinator killed twice, and on workers, the coordinator killed once and two
workers killed. The results must be the same; the memory of the coordinator is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.timing import print_load
from ouro.batch.attempt import NICENESS
from ouro.batch.state import BatchState, TaskResult

REPOSITORIES = 10
AT_ONCE = 4
_POLL = 0.5
"""Seconds between two looks at the memory of a coordinator."""
_AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b.example")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Bench:
    """A folder with a home, repositories, and the address of a scripted model server."""

    root: Path
    log: Path
    """The requests that the server got, a line each."""
    repositories: list[Path] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        own = {"HOME": str(self.root), "OURO_HOME": str(self.root / "home")}
        own |= {"OURO_SESSIONS_TITLES": "false", "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1"}
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **own}

    def prepare(self, url: str) -> None:
        home = self.root / "home"
        home.mkdir(mode=0o700)
        models = {"openai/test-model": {"api_base": url, "api_key": "none", "window": 100_000}}
        (home / "models.yaml").write_text(yaml.safe_dump({"models": models}))
        for number in range(REPOSITORIES):
            self.repositories.append(_make_repository(self.root / f"shop{number}"))

    def tasks(self, name: str, count: int) -> Path:
        """A file of tasks, with the name of a batch."""
        tasks = [
            {"id": f"t{number}", "repo": str(self.repositories[number % REPOSITORIES]),
             "prompt": prompt_of(number)}
            for number in range(count)
        ]  # fmt: skip
        path = self.root / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "tasks": tasks}))
        return path

    def begun(self) -> Counter[str]:
        """How often each task was begun, by the requests with nothing but its prompt."""
        counts: Counter[str] = Counter()
        for line in self.log.read_text().splitlines():
            last = json.loads(line)["body"]["messages"][-1]
            if last["role"] == "user":
                counts[str(last["content"]).partition("task ")[2].partition(".")[0]] += 1
        return counts


@dataclass
class Coordinator:
    """One `ouro batch run`, its memory over time."""

    process: subprocess.Popen[bytes]
    state: Path
    memory: list[tuple[int, float]] = field(default_factory=list)
    """Tasks with a result, and megabytes of the process then."""

    def watch(self, until: Callable[[int], bool]) -> int:
        """Wait for the end of the process or a number of results; returns that number."""
        while True:
            ended = self.process.poll() is not None
            done = sum(1 for _ in self.state.glob("tasks/*/result.json"))
            if megabytes := _resident(self.process.pid):
                self.memory.append((done, megabytes))
            if ended or until(done):
                return done
            time.sleep(_POLL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=100, help="of the runs with kills")
    parser.add_argument("--measured", type=int, default=40, help="of the runs without kills")
    parser.add_argument("--rounds", type=int, default=2, help="of the runs without kills")
    parser.add_argument("--no-kills", action="store_true", help="measure only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ouro-many-") as folder, _server(Path(folder)) as url:
        bench = Bench(Path(folder), Path(folder) / "requests.jsonl")
        bench.prepare(url)
        _measure(bench, arguments.measured, arguments.rounds)
        failed = 0 if arguments.no_kills else _with_kills(bench, arguments.tasks)
    print_load()
    return failed


def _measure(bench: Bench, count: int, rounds: int) -> None:
    """Print what a task costs each way. They take turns, so that all see the same load."""
    ways: dict[str, Callable[[int], tuple[float, float]]] = {
        "ouro -p": lambda number: _plain(bench, count, number),
        "processes": lambda number: _batch_by_processes(bench, f"own{number}", count),
        "Dask workers": lambda number: _batch_by_workers(bench, f"dask{number}", count),
    }
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    _plain(bench, AT_ONCE, rounds)  # warms the disk
    for number in range(rounds):
        for name, run in ways.items():
            figures[name].append(run(number))
    print(f"{count} tasks, {AT_ONCE} at once, median of {rounds}: CPU and time of one task")
    plain_figures = [statistics.median(values) for values in zip(*figures["ouro -p"], strict=True)]
    for name, values in figures.items():
        cpu, clock = (statistics.median(column) for column in zip(*values, strict=True))
        print(
            f"  {name:13} {1000 * cpu / count:6.0f} ms CPU ({cpu / plain_figures[0] - 1:+.1%})"
            f"  {1000 * clock / count:6.0f} ms ({clock / plain_figures[1] - 1:+.1%})",
            flush=True,
        )


def _with_kills(bench: Bench, count: int) -> int:
    """Run all tasks on both engines with kills; print and compare. Returns the exit code."""
    quarter = max(count // 4, 1)
    own = _killed_processes(bench, count, (quarter, 2 * quarter))
    by_workers = _killed_workers(bench, count, quarter)
    differ = sorted(name for name in own if own[name] != by_workers.get(name))
    failed = [name for name, (outcome, *_) in own.items() if outcome != "done"]
    print(f"{len(own)} and {len(by_workers)} results, {len(differ)} differ, {len(failed)} not done")
    if differ:
        print(f"  {differ[0]}: {own[differ[0]]} and {by_workers.get(differ[0])}")
    return 1 if differ or failed or len(own) != count else 0


def _killed_processes(bench: Bench, count: int, kills: Sequence[int]) -> dict[str, tuple]:
    tasks = bench.tasks("killed-own", count)
    before, began = bench.begun(), time.monotonic()
    runs = []
    for kill in (*kills, count + 1):
        runs.append(_start(bench, tasks, "-j", str(AT_ONCE)))
        runs[-1].watch(lambda done, kill=kill: done >= kill)
        if kill <= count:
            runs[-1].kill()
    _print_run("processes, coordinator killed twice", bench, before, began, count, runs)
    return _results(runs[-1].state)


def _killed_workers(bench: Bench, count: int, quarter: int) -> dict[str, tuple]:
    tasks = bench.tasks("killed-dask", count)
    before, began = bench.begun(), time.monotonic()
    with _cluster(bench) as (address, workers):
        runs = [_start(bench, tasks, "--on", address, "-j", str(AT_ONCE))]
        for number in (1, 2):
            runs[0].watch(lambda done, number=number: done >= number * quarter)
            workers[number].send_signal(signal.SIGKILL)
        runs[0].watch(lambda done: done >= 3 * quarter)
        runs[0].kill()
        runs.append(_start(bench, tasks, "--on", address, "-j", str(AT_ONCE)))
        runs[-1].watch(lambda _: False)
    name = "Dask, two of four workers and the coordinator killed"
    _print_run(name, bench, before, began, count, runs)
    return _results(runs[-1].state)


def _print_run(
    name: str,
    bench: Bench,
    before: Counter[str],
    began: float,
    count: int,
    runs: Sequence[Coordinator],
) -> None:
    took = time.monotonic() - began
    again = sum((bench.begun() - before).values()) - count
    print(f"{name}: {count} tasks in {took:.0f} s, {again} begun again")
    for run in runs:
        shown = [f"{megabytes:.1f} MB at {done}" for done, megabytes in _spread(run.memory)]
        print(f"  memory of the coordinator: {', '.join(shown)}", flush=True)


def _spread(memory: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Five values: from the first with a result to the last."""
    with_result = [measurement for measurement in memory if measurement[0]] or list(memory[-1:])
    last = len(with_result) - 1
    return [with_result[last * part // 4] for part in range(5)] if last > 4 else with_result


def _plain(bench: Bench, count: int, number: int) -> tuple[float, float]:
    """CPU and seconds of `ouro -p` for these tasks, each in a worktree that is there already."""
    trees = [bench.root / f"plain{number}-{count}-{place}" for place in range(count)]
    for place, tree in enumerate(trees):
        repository = bench.repositories[place % REPOSITORIES]
        _git(repository, "worktree", "add", "--quiet", "--detach", str(tree))
    words = [sys.executable, "-m", "ouro", "--output", "json", "--mode", "auto"]
    words += ["--max-turns", "100", "--no-trust", "--no-memory"]

    def ask(place: int) -> None:
        line = ["nice", "-n", str(NICENESS), *words, f"--print={prompt_of(place)}"]
        subprocess.run(
            line, cwd=trees[place], env=bench.environment, check=True, capture_output=True
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return _timed(lambda: list(pool.map(ask, range(count))))


def _batch_by_processes(bench: Bench, name: str, count: int) -> tuple[float, float]:
    tasks = bench.tasks(name, count)
    return _timed(lambda: _run(bench, tasks, "-j", str(AT_ONCE)))


def _batch_by_workers(bench: Bench, name: str, count: int) -> tuple[float, float]:
    tasks = bench.tasks(name, count)
    with _cluster(bench) as (address, workers):
        used_before = sum(map(_used_cpu, (worker.pid for worker in workers)))
        words = ("--on", address, "-j", str(AT_ONCE))
        cpu, clock = _timed(lambda: _run(bench, tasks, *words))
        used_since = sum(map(_used_cpu, (worker.pid for worker in workers))) - used_before
    return cpu + used_since, clock


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    work()
    clock = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(after[:2]) - sum(before[:2]), clock


def _run(bench: Bench, tasks: Path, *words: str) -> None:
    _start(bench, tasks, *words).process.wait()


def _start(bench: Bench, tasks: Path, *words: str) -> Coordinator:
    line = [sys.executable, "-m", "ouro", "batch", "run", str(tasks), *words]
    log = tasks.with_suffix(".log").open("ab")
    process = subprocess.Popen(line, cwd=bench.root, env=bench.environment, stdout=log, stderr=log)
    return Coordinator(process, tasks.with_suffix(".batch"))


@contextmanager
def _cluster(bench: Bench) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers; yields its address and their processes, the scheduler first."""
    folder = Path(tempfile.mkdtemp(dir=bench.root))
    file = folder / "scheduler.json"
    flags = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    processes = [_start_dask(bench, folder, "scheduler", *flags, "--scheduler-file", str(file))]
    try:
        while not (file.exists() and file.stat().st_size):
            time.sleep(_POLL)
        address = json.loads(file.read_text())["address"]
        for number in range(AT_ONCE):
            own = ("--no-nanny", "--nthreads", "1", "--no-dashboard")
            place = ("--local-directory", str(folder / str(number)))
            processes.append(_start_dask(bench, folder, "worker", address, *own, *place))
        _wait_for_workers(address)
        yield address, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _start_dask(bench: Bench, folder: Path, program: str, *words: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", f"distributed.cli.dask_{program}", *words]
    log = (folder / f"{program}.log").open("ab")
    return subprocess.Popen(line, cwd=folder, env=bench.environment, stdout=log, stderr=log)


def _wait_for_workers(address: str) -> None:
    from distributed import Client  # an extra

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(AT_ONCE, timeout=120)


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """The scripted server of the tests as a process of its own; yields its address."""
    words = ("--mode", "agent", "--log", str(folder / "requests.jsonl"))
    (folder / "requests.jsonl").touch()
    line = [sys.executable, "-m", "fakes.model_server", "--port", "0", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "tests")}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[-1].rstrip("/")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield url if url.endswith("/v1") else f"{url}/v1"
    finally:
        process.kill()
        process.wait()


def prompt_of(number: int) -> str:
    call = json.dumps({"path": f"made/{number}.txt", "content": f"number {number}\n"})
    return f"task t{number}.\ncall: write {call}\nsay: wrote {number}"


def _results(state: Path) -> dict[str, tuple]:
    """What a task left, without what differs from run to run."""
    batch = BatchState(state)
    return {result.id: _essence(batch, result) for result in batch.results()}


def _essence(state: BatchState, result: TaskResult) -> tuple:
    answer = result.answer
    own = (result.outcome, result.detail, answer.text, answer.turns, answer.tokens, result.files)
    return (*own, state.patch(result.id))


def _make_repository(folder: Path) -> Path:
    folder.mkdir()
    for number in range(20):
        (folder / f"module{number}.py").write_text(f"number = {number}\n" * 50)
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "first")):
        _git(folder, *words)
    return folder


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *_AUTHOR, *words], cwd=folder, check=True, capture_output=True)


def _resident(pid: int) -> float:
    """Megabytes of memory of a process; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    kilobytes = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes[0]) / 1024 if kilobytes else 0.0


def _used_cpu(pid: int) -> float:
    """Seconds of CPU of a process, of its children that run, and of those that were waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    threads = Path(f"/proc/{pid}/task").iterdir()
    children = [child for thread in threads for child in (thread / "children").read_text().split()]
    return sum(map(int, fields[11:15])) / _TICKS + sum(map(_used_cpu, map(int, children)))


if __name__ == "__main__":
    sys.exit(main())
