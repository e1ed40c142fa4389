"""The tasks of benchmarks/memory_in_use, with scripted models: the files decide."""

from collections import Counter

import pytest

from benchmarks.memory_in_use.effects import TASK_SETS, _make_repository, _shell, run_task, table
from ouro.llm import ModelSpec, ScriptedModel
from ouro.messages import ToolCall

TASKS = [task for tasks in TASK_SETS.values() for task in tasks]
BY_NAME = {task.name: task for task in TASKS}


def test_there_are_forty_tasks_in_six_languages_and_of_seven_kinds():
    assert [len(tasks) for tasks in TASK_SETS.values()] == [20, 20]
    assert len(BY_NAME) == 40
    assert Counter(task.language for task in TASKS) == {
        "en": 20, "de": 4, "fr": 4, "es": 4, "zh": 4, "ja": 4,
    }  # fmt: skip
    assert len({task.kind for task in TASKS}) == 7


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_nothing_counts_as_done_or_as_done_wrong_before_the_request(task, home, tmp_path):
    _make_repository(task, tmp_path / "project")
    (tmp_path / ".gitconfig").write_text("[user]\nname = Anna\nemail = anna@example.org\n")
    assert _shell(task.setup or "true", tmp_path / "project")
    assert not _shell(task.check, tmp_path / "project")
    assert not _shell(task.against, tmp_path / "project")


def working(command):
    """A model that runs one command for the request."""

    def step(messages):
        if messages[-1].role == "user":
            return ToolCall("1", "shell", {"command": command})
        return "Done."

    return ScriptedModel([step] * 50, spec=ModelSpec("scripted"))


@pytest.mark.parametrize(
    ("name", "command", "applied", "against"),
    [
        ("branch of a user", "git switch -c anna/login-fix", True, False),
        ("branch of a user", "git switch -c login-fix", False, False),
        ("vendor", "sed -i /DEBUG/d app.py", True, False),
        ("vendor", "sed -i /DEBUG/d app.py vendor/crc.py", True, True),
        ("tests by script", "./check.sh", True, False),
        ("tests by script", "python3 -m unittest -q", False, True),
        ("commit prefix", "git commit -qam 'ui: use blue for the button'", True, False),
        ("置き場所", "echo 'print(1)' > tools/hello.py", True, False),
        ("置き場所", "echo 'print(1)' > hello.py", False, True),
    ],
)
async def test_the_effect_of_a_task_is_judged(
    name, command, applied, against, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = await run_task(BY_NAME[name], lambda: working(command), tmp_path)
    assert (found.applied, found.against) == (applied, against)
    last = table([found], "scripted").splitlines()[-4]
    assert last.startswith("| all that is remembered |")
    assert f"| {int(applied and not against)} of 1 |" in last
