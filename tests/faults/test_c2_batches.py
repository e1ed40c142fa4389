"""C2: a batch that is killed at any moment or started twice: no task is lost, repeated or at work
twice; a budget that is spent.
"""

import json
import os
import shutil
import signal
import time

import pytest
import yaml
from fakes.files import git, make_repositories, touch, write_tasks
from fakes.waiting import PATIENCE


@pytest.fixture
def shops(tmp_path):
    return make_repositories(tmp_path, "shop", "bank", "farm")


def run(ouro, *words):
    done = ouro.headless("batch", "run", "tasks.yaml", "-j", "2", "--json", *words)
    return done, json.loads(done.out)["results"] if done.out else []


def wait_until(done):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def first_prompts(ouro):
    prompts = [request.body["messages"][-1] for request in ouro.server.requests]
    return [prompt for prompt in prompts if prompt["role"] == "user"]


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_c2_a_run_that_is_killed_goes_on_and_asks_no_model_twice(ouro, shops):
    tasks = [{"repo": str(shop), "prompt": f"run: sleep 1\n{touch('a')}"} for shop in shops]
    write_tasks(ouro.folder, tasks)
    process = ouro.begin("batch", "run", "tasks.yaml", "-j", "2")
    wait_until(lambda: len(ouro.server.requests) >= 2)
    kill(process)
    done, results = run(ouro)
    assert done.code == 0, done.err
    assert [result["files"] for result in results] == [["a"]] * 3
    assert len(first_prompts(ouro)) == 3  # what had begun ended, and its answer was used


@pytest.mark.parametrize(
    ("step", "is_done"),
    [
        ("--patch-with-raw", ""),  # before its commit
        (" commit ", ""),
        (" commit ", '{git} "$@"; '),  # after it, before its patch is saved
    ],
)
def test_c2_a_kill_between_an_answer_and_its_end_repeats_nothing(
    ouro, shops, tmp_path, monkeypatch, step, is_done
):
    """git stops at a step after the answer; there the run is killed."""
    place = tmp_path / "bin"
    place.mkdir()
    answer = ouro.folder / "tasks.batch" / "tasks" / "shop" / "answer.json"
    real = shutil.which("git")
    (place / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *"{step}"*) if [ -s {answer} ] && mkdir {place}/begun'
        f" 2>/dev/null; then {is_done.format(git=real)}mkdir {place}/reached; exec sleep 60; fi;;"
        f' esac\nexec {real} "$@"\n'
    )
    (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    write_tasks(ouro.folder, [{"repo": str(shops[0]), "prompt": touch("a")}])
    process = ouro.begin("batch", "run", "tasks.yaml", "-j", "1")
    wait_until((place / "reached").exists)
    kill(process)
    done, (result,) = run(ouro)
    assert (done.code, result["files"]) == (0, ["a"]), done.err
    assert git(shops[0], "show", "ouro/licences/shop:a") == "new"
    assert len(git(shops[0], "worktree", "list").splitlines()) == 1
    assert not answer.exists()
    assert len(first_prompts(ouro)) == 1


def test_c2_what_a_kill_after_a_result_left_is_removed_by_the_next_run(ouro, shops):
    write_tasks(ouro.folder, [{"repo": str(shops[0]), "prompt": touch("a")}])
    run(ouro)
    place = ouro.folder / "tasks.batch" / "tasks" / "shop"
    git(shops[0], "worktree", "add", "-q", place / "tree", "ouro/licences/shop")
    (place / "answer.json").write_text('{"outcome": "answered"}\n')
    done, (result,) = run(ouro)
    assert (done.code, result["files"]) == (0, ["a"]), done.err
    assert len(git(shops[0], "worktree", "list").splitlines()) == 1
    assert not (place / "tree").exists()
    assert not (place / "answer.json").exists()
    assert git(shops[0], "show", "ouro/licences/shop:a") == "new"


def test_c2_a_git_file_that_names_the_worktree_of_another_task_removes_only_its_own(ouro, shops):
    other = ouro.folder / "other"
    git(shops[0], "worktree", "add", "-q", other)
    named = (other / ".git").read_text()
    write_tasks(ouro.folder, [{"repo": str(shops[0]), "prompt": touch("a")}])
    run(ouro)
    place = ouro.folder / "tasks.batch" / "tasks" / "shop"
    git(shops[0], "worktree", "add", "-q", place / "tree", "ouro/licences/shop")
    (place / "tree" / ".git").write_text(named)
    (place / "answer.json").write_text('{"outcome": "answered"}\n')
    run(ouro)
    assert not (place / "tree").exists()
    assert len(git(shops[0], "worktree", "list").splitlines()) == 2
    assert git(other, "status", "--porcelain") == ""


def test_c2_tasks_keep_no_checkpoints_that_would_push_out_those_of_the_user(ouro, shops):
    tasks = [{"repo": str(shops[0]), "prompt": f"run: touch b\n{touch('a')}"}]
    write_tasks(ouro.folder, tasks)
    _, (result,) = run(ouro)
    assert result["files"] == ["a", "b"]
    assert not list((ouro.home / "checkpoints").glob("*"))


def test_c2_two_runs_of_one_batch_do_each_task_once(ouro, shops):
    tasks = [
        {"id": f"t{number}", "repo": str(shop), "prompt": f"run: sleep 0.5\n{touch('a')}"}
        for number, shop in enumerate(shops * 2)
    ]
    write_tasks(ouro.folder, tasks)
    both = [ouro.begin("batch", "run", "tasks.yaml", "-j", "2", "--json") for _ in range(2)]
    found = [json.loads(process.communicate(timeout=PATIENCE * 4)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert found[0]["results"] == found[1]["results"]
    assert len(first_prompts(ouro)) == len(tasks)


def test_c2_the_budget_of_the_whole_run_stops_new_tasks_also_after_a_restart(ouro, shops):
    models = yaml.safe_load((ouro.home / "models.yaml").read_text())
    models["models"]["openai/test-model"]["prices"] = {"input": 1000, "output": 1000}
    (ouro.home / "models.yaml").write_text(yaml.safe_dump(models))
    write_tasks(ouro.folder, [{"repo": str(shop), "prompt": "say: x"} for shop in shops])
    words = ("batch", "run", "tasks.yaml", "-j", "1", "--max-cost", "0.2", "--json")
    done = ouro.headless(*words)
    ended = len(json.loads(done.out)["results"])
    assert done.code == 1
    assert 0 < ended < 3
    assert len(json.loads(ouro.headless(*words).out)["results"]) == ended
