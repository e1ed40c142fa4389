"""`ouro batch`: many repositories, kills in between, budgets, and what becomes of branches."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from fakes.files import git, make_repositories, make_repository, touch, write_tasks
from fakes.waiting import PATIENCE


@pytest.fixture
def shops(tmp_path):
    return make_repositories(tmp_path, "shop", "bank", "farm")


def run(ouro, *words):
    done = ouro.headless("batch", "run", "tasks.yaml", "-j", "2", "--json", *words)
    return done, json.loads(done.out)["results"] if done.out else []


def test_each_repository_gets_a_branch_and_its_own_files_stay(ouro, shops):
    tasks = [{"repo": str(shop), "prompt": touch("LICENCE")} for shop in shops]
    write_tasks(ouro.folder, tasks, defaults={"checks": ["test -f LICENCE"]})
    done, results = run(ouro)
    assert done.code == 0, done.err
    for shop, result in zip(shops, results, strict=True):
        assert (result["id"], result["outcome"], result["files"]) == (
            shop.name,
            "done",
            ["LICENCE"],
        )
        assert git(shop, "show", f"ouro/licences/{shop.name}:LICENCE") == "new"
        assert git(shop, "status", "--porcelain") == ""
        assert len(git(shop, "worktree", "list").splitlines()) == 1
    assert {session["id"] for session in ouro.sessions_of_all()} == {
        result["session_id"] for result in results
    }


def test_names_and_bytes_of_any_kind_are_in_the_patch_as_they_are(ouro, shops):
    shop = shops[0]
    (shop / "old.txt").write_bytes(b"caf\xe9\n" * 20)
    git(shop, "add", ".")
    git(shop, "commit", "-qm", "latin")
    git(shop, "config", "diff.noprefix", "true")
    moves = "run: mv old.txt new.txt; printf 'th\\351\\n' >> new.txt; printf '\\0\\1' > 'ü \"q'"
    write_tasks(ouro.folder, [{"repo": str(shop), "prompt": f"{moves}\nsay: moved"}])
    _, (result,) = run(ouro)
    assert result["files"] == ["new.txt", 'ü "q']
    git(shop, "apply", ouro.folder / "tasks.batch" / "tasks" / "shop" / "changes.patch")
    assert (shop / "new.txt").read_bytes() == b"caf\xe9\n" * 20 + b"th\xe9\n"
    assert (shop / 'ü "q').read_bytes() == b"\0\1"


def test_a_second_run_repeats_nothing_that_is_done(ouro, shops):
    write_tasks(ouro.folder, [{"repo": str(shop), "prompt": "say: well"} for shop in shops])
    run(ouro)
    asked = len(ouro.server.requests)
    done, results = run(ouro)
    assert (done.code, len(ouro.server.requests)) == (0, asked)
    assert [result["answer"]["text"] for result in results] == ["well"] * 3


def test_a_failed_check_is_named_with_what_it_printed(ouro, shops):
    task = {"repo": str(shops[0]), "prompt": touch("a"), "checks": ["echo no; exit 3"]}
    write_tasks(ouro.folder, [task])
    done, (result,) = run(ouro)
    assert (done.code, result["outcome"]) == (1, "checks failed")
    assert result["checks"][0]["exit_code"] == 3
    assert "no" in result["checks"][0]["output"]


def test_ctrl_c_ends_the_tasks_and_the_next_run_does_them(ouro, shops):
    tasks = [{"repo": str(shop), "prompt": "run: sleep 30\nsay: x"} for shop in shops]
    write_tasks(ouro.folder, tasks)
    process = ouro.begin("batch", "run", "tasks.yaml", "-j", "2")
    end = time.monotonic() + PATIENCE
    while len(ouro.server.requests) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    report = json.loads(ouro.headless("batch", "report", "tasks.batch", "--json").out)
    assert report["results"] == []
    assert [git(shop, "branch", "--list", "ouro/*") for shop in shops] == [""] * 3


def test_a_line_that_is_not_json_is_refused_with_its_number(ouro, shops):
    lines = [json.dumps({"id": "a", "prompt": "x"}), "nonsense"]
    (ouro.folder / "tasks.jsonl").write_text("\n".join(lines))
    done = ouro.headless("batch", "run", "tasks.jsonl")
    assert (done.code, "tasks.jsonl:2: not a JSON object" in done.err) == (2, True)
    assert ouro.server.requests == []


def test_branches_are_accepted_and_rejected(ouro, shops):
    tasks = [{"repo": str(shop), "prompt": touch("a")} for shop in shops[:2]]
    write_tasks(ouro.folder, tasks)
    run(ouro)
    accepted = ouro.headless("batch", "accept", "tasks.batch", "shop")
    rejected = ouro.headless("batch", "reject", "tasks.batch", "bank")
    assert (accepted.code, rejected.code) == (0, 0), accepted.err + rejected.err
    assert (shops[0] / "a").read_text() == "new\n"
    assert git(shops[1], "branch", "--list", "ouro/*") == ""
    assert "+new" in ouro.headless("batch", "show", "tasks.batch", "bank").out
    again = ouro.headless("batch", "accept", "tasks.batch", "bank")
    assert (again.code, "rejected already" in again.err) == (1, True)


def test_a_dirty_repository_is_not_merged_into(ouro, shops):
    write_tasks(ouro.folder, [{"repo": str(shops[0]), "prompt": touch("a")}])
    run(ouro)
    (shops[0] / "api.py").write_text("mine")
    done = ouro.headless("batch", "accept", "tasks.batch", "--all")
    assert (done.code, "has changes" in done.err) == (1, True)
    assert not (shops[0] / "a").exists()


def test_an_address_is_cloned_and_its_session_can_be_resumed(ouro, shops):
    address = f"file://{shops[0]}"
    (ouro.folder / "repos.txt").write_text(f"# all\n{address}\n")
    words = ("batch", "run", "--prompt", touch("a"), "--repos", "repos.txt", "--json")
    done = ouro.headless(*words)
    (result,) = json.loads(done.out)["results"]
    assert (done.code, result["id"], result["files"]) == (0, "shop", ["a"]), done.err
    tree = ouro.folder / "repos.batch" / "tasks" / "shop" / "tree"
    assert git(tree, "show", "ouro/repos/shop:a") == "new"
    more = ouro.headless("-p", "say: again", "--resume", result["session_id"], "--no-trust")
    assert more.out.startswith("again"), more.err


def test_the_page_of_a_report_loads_nothing_and_escapes_what_models_wrote(ouro, shops):
    write_tasks(ouro.folder, [{"repo": str(shops[0]), "prompt": "say: <script>alert(1)</script>"}])
    run(ouro)
    done = ouro.headless("batch", "report", "tasks.batch", "--html", "report.html")
    page = (ouro.folder / "report.html").read_text()
    assert done.code == 0
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page


def instance(shop, prompt, **more):
    base = git(shop, "rev-parse", "HEAD")
    known = {
        "instance_id": f"acme__{shop.name}-1",
        "repo": f"acme/{shop.name}",
        "base_commit": base,
    }
    return {**known, "problem_statement": prompt, "patch": "+gold_patch", "version": "1.0", **more}


def test_instances_of_swe_bench_are_tasks_and_their_patches_predictions(ouro, tmp_path):
    (tmp_path / "mirrors" / "acme").mkdir(parents=True)
    shop = make_repository(tmp_path / "mirrors" / "acme" / "shop")
    bank = make_repository(tmp_path / "mirrors" / "acme" / "bank")
    git(bank, "config", "core.bare", "true")
    (bank / ".git").rename(tmp_path / "mirrors" / "acme" / "bank.git")
    (bank / "api.py").unlink()
    bank.rmdir()
    lines = [instance(shop, touch("a"))]
    lines.append({**lines[0], "instance_id": "acme__bank-1", "repo": "acme/bank"})
    lines[1]["base_commit"] = "main"
    (ouro.folder / "swe.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ("batch", "run", "swe.jsonl", "--mirror", str(tmp_path / "mirrors"), "--json")
    done = ouro.headless(*words)
    assert done.code == 0, done.err
    assert "gold_patch" not in str([request.body for request in ouro.server.requests])
    made = ouro.headless("batch", "predictions", "swe.batch", "--name", "m").lines
    assert [(line["instance_id"], line["model_name_or_path"]) for line in made] == [
        ("acme__shop-1", "m"),
        ("acme__bank-1", "m"),
    ]
    assert "+new" in made[0]["model_patch"]
    git(shop, "checkout", "-q", "-b", "graded")
    (shop / "p.patch").write_text(made[0]["model_patch"])
    git(shop, "apply", "p.patch")
    assert (shop / "a").read_text() == "new\n"


@pytest.mark.parametrize(
    ("more", "words", "said"),
    [
        ({}, (), "swe.jsonl:1: pass --mirror"),
        ({"repo": "../../etc"}, ("--mirror", "m"), "is not OWNER/NAME"),
        ({"base_commit": None}, ("--mirror", "m"), "base_commit is missing"),
        ({"instance_id": "a/b"}, ("--mirror", "m"), "this id cannot name a file"),
    ],
)
def test_a_wrong_instance_is_refused_with_its_line(ouro, shops, more, words, said):
    (ouro.folder / "swe.jsonl").write_text(json.dumps(instance(shops[0], "x", **more)))
    done = ouro.headless("batch", "run", "swe.jsonl", *words)
    assert done.code == 2
    assert said in done.err


def fake_gh(folder, code=0):
    """`gh` that notes its words and prints an address, or fails."""
    folder.mkdir()
    script = f'#!/bin/sh\nprintf "%s\\n" "$@" >> {folder}/words\n'
    last = "echo https://git.example.com/pull/7" if code == 0 else f"echo no login >&2; exit {code}"
    (folder / "gh").write_text(f"{script}{last}\n")
    (folder / "gh").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_branches_become_pull_requests_by_gh(ouro, shops, tmp_path, monkeypatch):
    remote = tmp_path / "remote.git"
    git(tmp_path, "clone", "-q", "--bare", str(shops[0]), str(remote))
    git(shops[0], "remote", "add", "origin", str(remote))
    write_tasks(ouro.folder, [{"repo": str(shops[0]), "prompt": touch("a")}])
    run(ouro)
    monkeypatch.setenv("PATH", fake_gh(tmp_path / "failing", code=4))
    done = ouro.headless("batch", "pr", "tasks.batch", "shop")
    assert (done.code, "no login" in done.err) == (1, True)
    monkeypatch.setenv("PATH", fake_gh(tmp_path / "working"))
    done = ouro.headless("batch", "pr", "tasks.batch", "--all", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)[0]["state"] == "https://git.example.com/pull/7"
    assert git(remote, "show", "ouro/licences/shop:a") == "new"
    assert "ouro/licences/shop" in (tmp_path / "working" / "words").read_text()


def test_the_example_of_the_documentation_runs(ouro, shops):
    page = (Path(__file__).parents[2] / "docs" / "batch.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    place = "https://git.example.com/acme/bank.git"
    example = example.replace(place, f"file://{shops[1]}").replace("develop", "main")
    example = example.replace("../shop", str(shops[0]))
    prompt = "prompt: Add the MIT licence as LICENCE."
    assert prompt in example
    lines = json.dumps(touch("LICENCE"))
    (ouro.folder / "tasks.yaml").write_text(example.replace(prompt, f"prompt: {lines}"))
    done, results = run(ouro)
    assert [result["outcome"] for result in results] == ["done", "done"], done.err
