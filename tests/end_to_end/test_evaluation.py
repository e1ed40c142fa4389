"""`ouro eval`: models side by side, with and without memory, repeats, and runs that continue."""

import json
import re
from pathlib import Path

import pytest

RIGHT = 'call: write {"path": "a.txt", "content": "right\\n"}\nsay: done'
WRONG = 'call: write {"path": "a.txt", "content": "wrong\\n"}\nsay: done'


def write_task(folder, name, prompt, check="grep -q right a.txt", **fields):
    place = folder / "evals" / name
    (place / "files").mkdir(parents=True)
    (place / "files" / "api.py").write_text("x = 1\n")
    (place / "tests").mkdir()
    (place / "tests" / "test.sh").write_text(check)
    (place / "instruction.md").write_text(prompt)
    if fields:
        (place / "task.yaml").write_text(json.dumps(fields))
    return place


def evaluate(ouro, *words):
    done = ouro.headless("eval", "evals", "-j", "2", "--json", *words)
    return done, json.loads(done.out) if done.out else {}


def test_arms_are_counted_apart_and_a_failed_check_is_no_pass(ouro):
    write_task(ouro.folder, "good", RIGHT)
    write_task(ouro.folder, "bad", WRONG)
    done, value = evaluate(ouro, "--memory", "both", "-m", "test-model", "-m", "other-model")
    assert done.code == 0, done.err
    arms = {(arm["model"], arm["memory"]): arm for arm in value["arms"]}
    assert len(arms) == 4
    assert {(arm["passed"], arm["counted"]) for arm in arms.values()} == {(1, 2)}
    assert all(0.05 < arm["low"] < 0.5 < arm["high"] < 0.95 for arm in arms.values())
    used = {request.body["model"] for request in ouro.server.requests}
    assert used == {"test-model", "other-model"}


def test_a_row_in_which_too_few_passed_is_an_error_only_if_the_user_asks_for_it(ouro):
    write_task(ouro.folder, "good", RIGHT)
    write_task(ouro.folder, "bad", WRONG)
    assert [evaluate(ouro, *words)[0].code for words in ((), ("--fail-under", "50"))] == [0, 0]
    done = ouro.headless("eval", "evals", "--fail-under", "51%")
    assert (done.code, "default model: fewer than 51 % passed" in done.out) == (1, True)
    assert ouro.headless("eval", "evals", "--fail-under", "120").code == 2


def test_a_second_call_starts_nothing_and_prints_the_same(ouro):
    write_task(ouro.folder, "good", RIGHT)
    first = evaluate(ouro, "--repeats", "2")[1]
    asked = len(ouro.server.requests)
    assert evaluate(ouro, "--repeats", "2")[1] == first
    assert len(ouro.server.requests) == asked
    table = ouro.headless("eval", "evals", "--repeats", "2").out
    assert "default model" in table
    assert "2/2" in table
    assert "34%–100%" in table


def test_the_agent_sees_no_test_and_cannot_replace_it(ouro):
    cheat = 'call: write {"path": "tests/test.sh", "content": "exit 0\\n"}\nrun: ls tests\nsay: x'
    write_task(ouro.folder, "cheat", cheat)
    done, value = evaluate(ouro)
    assert (done.code, value["arms"][0]["passed"]) == (0, 0), done.err
    (run,) = value["runs"]
    assert run["outcome"] == "checks failed"
    seen = str([request.body for request in ouro.server.requests])
    assert "grep -q right" not in seen


def test_what_the_checks_write_is_not_in_the_branch(ouro):
    write_task(ouro.folder, "good", RIGHT, check="touch made-by-check; grep -q right a.txt")
    value = evaluate(ouro)[1]
    assert value["runs"][0]["files"] == ["a.txt"]
    patch = json.loads(
        ouro.headless("batch", "show", "evals.eval", value["runs"][0]["id"], "--json").out
    )["patch"]
    assert "made-by-check" not in patch
    assert "test.sh" not in patch


def test_a_fault_of_the_world_does_not_count(ouro):
    write_task(ouro.folder, "good", RIGHT)
    place = write_task(ouro.folder, "lost", RIGHT, repo="nowhere")
    for file in (place / "files").iterdir():
        file.unlink()
    (place / "files").rmdir()
    done, value = evaluate(ouro)
    (arm,) = value["arms"]
    assert done.code == 1
    assert (arm["passed"], arm["counted"], arm["faults"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda folder: None, "evals is not a folder"),
        (lambda folder: (folder / "evals").mkdir(), "holds no tasks"),
        (lambda folder: write_task(folder, "a b", "x"), "cannot be part of a branch"),
        (lambda folder: write_task(folder, "a", " "), "its prompt is empty"),
        (
            lambda folder: write_task(folder, "a", "x", budget=3),
            "task.yaml:1: unknown key `budget`",
        ),
        (lambda folder: write_task(folder, "a", "x", memory="read"), "memory cannot be set"),
        (lambda folder: _without_check(folder), "nothing says whether it succeeded"),
        (lambda folder: _with_settings(folder, "repeats: many"), "eval.yaml:1: `repeats` must be"),
        (
            lambda folder: _with_settings(folder, "repeats: 1\ndefaults:\n  check: [a]"),
            "eval.yaml:3: unknown key `defaults.check`. Did you mean `defaults.checks`?",
        ),
        (lambda folder: _with_settings(folder, "repeats: 0"), "one repeat at least"),
    ],
)
def test_a_wrong_folder_is_refused_with_its_place(ouro, prepare, said):
    prepare(ouro.folder)
    done = ouro.headless("eval", "evals")
    assert done.code == 2
    assert said in done.err
    assert ouro.server.requests == []


def _without_check(folder):
    place = write_task(folder, "a", "x")
    (place / "tests" / "test.sh").unlink()
    (place / "tests").rmdir()


def _with_settings(folder, text):
    write_task(folder, "a", "x")
    (folder / "evals" / "eval.yaml").write_text(text)


def test_the_page_loads_nothing(ouro):
    write_task(ouro.folder, "good", RIGHT)
    done = ouro.headless("eval", "evals", "--html", "eval.html")
    page = (ouro.folder / "eval.html").read_text()
    assert done.code == 0, done.err
    assert "1/1" in page
    assert "http" not in page


def test_the_example_of_the_documentation_runs(ouro):
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    example = page.partition("<!-- example -->")[2].partition("<!-- end of example -->")[0]
    files = re.findall(r"`(evals/[^`]+)`\n```\n(.*?)```", example, re.DOTALL)
    assert len(files) == 4
    for name, text in files:
        path = ouro.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = "import sys\\nprint('hello', sys.argv[1])\\n"
    script = f'read: greet.py\ncall: write {{"path": "greet.py", "content": "{code}"}}\nsay: done'
    (ouro.folder / "evals" / "greeting" / "instruction.md").write_text(script)
    done, value = evaluate(ouro)
    assert done.code == 0, done.err
    assert [(arm["memory"], arm["passed"], arm["counted"]) for arm in value["arms"]] == [
        ("none", 2, 2),
        ("read", 2, 2),
    ]
