"""`ouro batch inbox`: what the sessions of a batch would remember is merged and asked once."""

import json
from pathlib import Path

import pytest
from fakes.files import git, make_repositories, write_tasks


def learns(*writes):
    """A prompt whose session writes lines into files of memory."""
    calls = [
        f"call: write {json.dumps({'path': str(path), 'content': text})}" for path, text in writes
    ]
    return "\n".join([*calls, "say: done"])


@pytest.fixture
def shops(tmp_path):
    return make_repositories(tmp_path, "shop", "bank", "farm")


def in_repo(shop, text="- The build is make all.\n"):
    return shop / ".ouro" / "memory" / "facts.md", text


def task(shop, *writes, **more):
    known = {"id": shop.name, "repo": str(shop), "memory": "read", "trust": True}
    return {**known, "prompt": learns(*writes), **more}


def run(ouro, *words):
    return ouro.headless("batch", "run", "tasks.yaml", "-j", "1", *words)


def listed(ouro, *words):
    done = ouro.headless("batch", "inbox", "tasks.batch", "--json", *words)
    return done, json.loads(done.out)


def test_the_same_change_of_three_repositories_is_asked_once_and_accepted_in_each(ouro, shops):
    write_tasks(ouro.folder, [task(shop, in_repo(shop)) for shop in shops])
    done = run(ouro)
    assert "1 change of memory waiting: " in done.out, done.err
    assert [(shop / ".ouro" / "memory" / "facts.md").exists() for shop in shops] == [False] * 3
    shown = ouro.headless("batch", "inbox", "tasks.batch")
    assert "The build is make all." in shown.out
    assert "shop, bank, farm" in shown.out
    accepted = ouro.headless("batch", "inbox", "tasks.batch", "accept", "1")
    assert accepted.code == 0, accepted.err
    assert "(3 repositories)" in accepted.out
    for shop in shops:
        assert (shop / ".ouro" / "memory" / "facts.md").read_text() == "- The build is make all.\n"
        assert git(shop, "status", "--porcelain") == ""
    assert listed(ouro)[1] == []


def test_different_changes_are_different_rows_and_a_rejected_one_is_gone(ouro, shops):
    tasks = [
        task(shops[0], in_repo(shops[0])),
        task(shops[1], in_repo(shops[1], "- the  build is MAKE all.\n")),
        task(shops[2], in_repo(shops[2], "- The build is bazel.\n")),
    ]
    write_tasks(ouro.folder, tasks)
    run(ouro)
    rows = listed(ouro)[1]
    assert [row["tasks"] for row in rows] == [["shop", "bank"], ["farm"]]
    listed(ouro, "reject", "2")
    assert [row["tasks"] for row in listed(ouro)[1]] == [["shop", "bank"]]
    assert not (shops[2] / ".ouro" / "memory" / "facts.md").exists()


def test_what_was_decided_in_the_memory_itself_is_not_asked_again(ouro, shops):
    user = ouro.home / "memory" / "preferences.md"
    write_tasks(ouro.folder, [task(shops[0], (user, "- Prefer MIT.\n"))])
    run(ouro)
    ((row,), here) = listed(ouro)[1], ouro.headless("memory", "inbox").out
    assert "Prefer MIT." in here
    assert ouro.headless("memory", "accept", row["ids"][0]).code == 0
    assert listed(ouro)[1] == []
    assert user.read_text() == "- Prefer MIT.\n"


def test_a_clone_is_removed_and_what_its_session_learned_is_still_asked(ouro, shops):
    user = ouro.home / "memory" / "preferences.md"
    clone = ouro.folder / "tasks.batch" / "tasks" / "far" / "tree"
    far = task(shops[0], (user, "- Prefer MIT.\n"), in_repo(clone), id="far")
    write_tasks(ouro.folder, [{**far, "repo": f"file://{shops[0]}"}])
    done = run(ouro)
    assert "2 changes of memory waiting" in done.out, done.err
    assert not clone.exists()
    done, rows = listed(ouro, "accept", "all")
    assert [row["scope"] for row in rows] == ["user", "repo"]
    assert user.read_text() == "- Prefer MIT.\n"
    assert done.code == 1
    assert (
        "has no memory on this machine"
        in ouro.headless("batch", "inbox", "tasks.batch", "accept", "1").out
    )
    assert listed(ouro, "reject", "all")[0].code == 0
    assert listed(ouro)[1] == []


def test_a_task_without_memory_leaves_nothing_to_decide(ouro, shops):
    path, text = in_repo(shops[0])
    write_tasks(ouro.folder, [task(shops[0], (path, text), memory="none")])
    assert "memory waiting" not in run(ouro).out
    assert listed(ouro)[1] == []


def test_a_wrong_decision_is_refused_and_nothing_changes(ouro, shops):
    write_tasks(ouro.folder, [task(shops[0], in_repo(shops[0]))])
    run(ouro)
    for words in (("accept",), ("keep", "1"), ("accept", "7"), ("reject", "x")):
        assert ouro.headless("batch", "inbox", "tasks.batch", *words).code == 2, words
        assert len(listed(ouro)[1]) == 1, words
        assert not Path(in_repo(shops[0])[0]).exists(), words
