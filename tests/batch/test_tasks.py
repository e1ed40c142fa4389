"""Files of tasks: what they may say, and how a wrong one is named."""

import pytest

from ouro.batch.tasks import Task, batch_of_repositories, read_batch
from ouro.errors import ConfigError


def write(folder, text, name="tasks.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def test_defaults_hold_for_each_task_and_its_own_fields_win(tmp_path):
    text = """
defaults: {limits: {turns: 5}, checks: [make test], permissions: {deny: ["shell(git push *)"]}}
tasks:
  - {repo: shop, prompt: one}
  - {repo: shop, prompt: two, limits: {turns: "7"}}
"""
    batch = read_batch(write(tmp_path, text))
    assert batch.name == "tasks"
    assert [task.id for task in batch.tasks] == ["shop", "shop-2"]
    assert [task.limits.turns for task in batch.tasks] == [5, 7]
    assert batch.tasks[0].repo == str(tmp_path / "shop")
    assert batch.tasks[1].permissions.deny == ("shell(git push *)",)


def test_lines_of_json_are_tasks(tmp_path):
    text = '{"prompt": "a", "repo": "https://git.example.com/x/bank.git"}\n\n{"prompt": "b"}\n'
    batch = read_batch(write(tmp_path, text, "many.jsonl"))
    assert [(task.id, task.is_remote) for task in batch.tasks] == [
        ("bank", True),
        (tmp_path.name[:50], False),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: []", "has no tasks"),
        ("tasks: 3", "tasks.yaml:1: `tasks` must be a list, not `3`."),
        ("tasks: [3]", "tasks.yaml:1: `tasks[1]` must be keys and values, not `3`."),
        ("tasks: [{repo: a}]", "tasks.yaml:1: task 1 needs `prompt`."),
        ("tasks: [{prompt: ''}]", "its prompt is empty"),
        (
            "tasks:\n- prompt: x\n- prompt: y\n  limits:\n    turns: many",
            "tasks.yaml:5: `tasks[2].limits.turns` must be a whole number, not `many`.",
        ),
        (
            "defaults:\n  permissions: {mod: plan}\ntasks: [{prompt: x}]",
            "tasks.yaml:2: unknown key `defaults.permissions.mod`. Did you mean"
            " `defaults.permissions.mode`?",
        ),
        (
            "tasks:\n- prompt: x\n  promt: y",
            "tasks.yaml:3: unknown key `tasks[1].promt`. Did you mean `tasks[1].prompt`?",
        ),
        ("tasks: [{id: ../../a, prompt: x}]", "cannot name a file"),
        ("tasks: [{id: a, prompt: x}, {id: a, prompt: y}]", "Two tasks have the id `a`"),
        ("tasks: [{prompt: x, schema: '{'}]", "tasks.yaml:1: `schema` is not a JSON object"),
        ("name: a b\ntasks: [{prompt: x}]", "cannot be the name of a batch"),
        ("tasks: [{prompt: x}]\njobs: 3", "tasks.yaml:2: unknown key `jobs`. Known here"),
        ("a: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path, text, said):
    with pytest.raises(ConfigError) as refused:
        read_batch(write(tmp_path, text))
    assert said in refused.value.text()


def test_a_schema_may_be_json_as_text(tmp_path):
    text = """
tasks:
- prompt: x
  schema: '{"type": "object", "const": "1", "additionalProperties": false}'
"""
    [task] = read_batch(write(tmp_path, text)).tasks
    assert task.answer_schema == {"type": "object", "const": "1", "additionalProperties": False}


def test_a_field_without_a_value_is_not_set(tmp_path):
    text = "name:\ndefaults:\ntasks:\n- prompt: x\n  model:\n  checks:\n  trust: 1\n"
    [task] = read_batch(write(tmp_path, text)).tasks
    assert (task.model, task.checks, task.trust) == ("", (), True)


def test_a_wrong_line_of_json_is_named(tmp_path):
    text = '{"prompt": "a"}\n\n{"prompt": "b", "limits": {"turns": "many"}}\n'
    with pytest.raises(ConfigError, match=r"many\.jsonl:3: Expected `int`"):
        read_batch(write(tmp_path, text, "many.jsonl"))


def test_addresses_are_not_folders():
    remote = ("https://h.example/a", "ssh://h.example/a", "git@h.example:a/b", "file:///a")
    local = (".", "../a", "/a:b/c", "a/b@c:d")
    assert all(Task(prompt="x", repo=repo).is_remote for repo in remote)
    assert not any(Task(prompt="x", repo=repo).is_remote for repo in local)


def test_a_list_of_repositories_gives_each_the_same_prompt(tmp_path):
    file = write(tmp_path, "# ours\nshop\n\n  # theirs\n/srv/bank\n", "repos.txt")
    batch = batch_of_repositories("Add a licence.", file, "repos")
    assert [task.repo for task in batch.tasks] == [str(tmp_path / "shop"), "/srv/bank"]
    with pytest.raises(ConfigError):
        batch_of_repositories("x", write(tmp_path, "\n", "none.txt"), "none")


def test_a_schema_in_yaml_has_numbers_and_booleans(tmp_path):
    text = """
defaults: {schema: {type: object, additionalProperties: false, minProperties: 1}}
tasks:
  - {repo: a, prompt: x, revision: 1.10}
  - {repo: b, prompt: 7, schema: {const: "1", enum: [1, 2.5, null, True, "true", yes]}}
"""
    first, second = read_batch(write(tmp_path, text)).tasks
    assert first.answer_schema == {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
    }
    assert (first.revision, second.prompt) == ("1.10", "7")
    assert second.answer_schema == {"const": "1", "enum": [1, 2.5, None, True, "true", "yes"]}
