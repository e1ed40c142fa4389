"""Plans in answers and as files: what is one, its steps, and what is ticked off."""

import pytest

from ouro.display import Todo
from ouro.session.plan_file import (
    PlanFolder,
    add_boxes,
    expand_comments,
    find_plan_text,
    find_steps,
    tick_steps,
)

STEPS = "# Plan: A cache\n\n1. **Add** a dictionary\n   - by path\n2. Use `it`\n"


@pytest.mark.parametrize(
    ("answer", "begins"),
    [
        (f"I looked at it.\n\n{STEPS}", "# Plan: A cache"),
        ("## Plan\n- one\n- two", "## Plan"),
        ("### PLAN — der Zwischenspeicher\n\nErst lesen, dann schreiben.", "### PLAN"),
        ("So würde ich es machen:\n1. Lesen\n2. Schreiben", "So würde"),
        ("計画：\n1. 読む\n2. 書く", "計画"),
        ("# Plan de migration\n1. Lire\n2. Écrire\n\nOn y va ?", "# Plan"),
        ("### Step 1: Read\nfoo\n### Step 2: Write\nbar", "### Step"),
        ("- [ ] read\n- [ ] write", "- [ ]"),
    ],
)
def test_an_answer_with_a_heading_or_numbered_steps_is_a_plan(answer, begins):
    assert find_plan_text(answer).startswith(begins)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "The parser is in parser.py.",
        "Which one?\n1. A dictionary\n2. A file\n\nWhat do you prefer?",
        "どちらですか。\n1. 辞書\n2. ファイル\n\nどちらがいいですか？",
        "It has\n- a lexer\n- a parser",
        "```\n1. one\n2. two\n# Plan: in code\n```",
        "Python 3.12 is used.\n\n## Python 3.12\n\n## Python 3.13",
        "## Planets\nMars.",
    ],
)
def test_an_answer_without_steps_or_with_a_question_is_no_plan(answer):
    assert find_plan_text(answer) == ""


def test_each_step_gets_a_box_and_numbered_headings_are_steps_before_numbered_lines():
    assert add_boxes(STEPS) == (
        "# Plan: A cache\n\n1. [ ] **Add** a dictionary\n   - by path\n2. [ ] Use `it`"
    )
    headings = "### 1. Read\n1. a\n2. b\n### 2. Write\n1. c"
    assert [step.text for step in find_steps(add_boxes(headings))] == ["1. Read", "2. Write"]
    boxed = "- [x] one\n- [ ] two"
    assert add_boxes(boxed) == boxed


@pytest.mark.parametrize(
    ("todos", "ticked"),
    [
        ([("Add a dictionary", "done"), ("Use it", "pending")], "x "),
        ([("use IT", "done")], " x"),
        ([("Write the dictionary", "done"), ("Call it", "in_progress")], "x "),
        ([("Add the dictionary", "done"), ("a", "done"), ("b", "done")], "x "),
        ([("something else", "done")], "  "),
        ([("Add a dictionary", "done"), ("Use it", "done")], "xx"),
    ],
)
def test_steps_are_ticked_by_the_todos_that_belong_to_them(tmp_path, todos, ticked):
    plan = PlanFolder(tmp_path).add("s1", STEPS, "")
    after = tick_steps(plan, [Todo(text, state) for text, state in todos])
    assert "".join("x" if step.is_done else " " for step in after.steps) == ticked
    assert after.state == ("done" if ticked == "xx" else "approved")


def test_a_todo_that_is_no_longer_done_removes_the_tick(tmp_path):
    plan = PlanFolder(tmp_path).add("s1", STEPS, "")
    done = tick_steps(plan, [Todo("Add a dictionary", "done")])
    assert [step.is_done for step in done.steps] == [True, False]
    again = tick_steps(done, [Todo("Add a dictionary", "pending")])
    assert [step.is_done for step in again.steps] == [False, False]


def test_a_plan_is_named_by_date_and_title_in_any_language(tmp_path):
    folder = PlanFolder(tmp_path)
    names = [
        folder.add("s1", body, "what was asked").path.name[11:]
        for body in ("# Plan: A cache!", "# Plan: A cache", "# План кэша", "1. a\n2. b", "# Plan")
    ]
    assert names == [
        "a-cache.md",
        "a-cache-2.md",
        "план-кэша.md",
        "what-was-asked.md",
        "what-was-asked-2.md",
    ]


def test_plans_are_found_by_their_session_until_they_are_done(tmp_path):
    folder = PlanFolder(tmp_path)
    first = folder.add("s1", STEPS, "")
    assert folder.of_session("s1") == first
    folder.write(tick_steps(first, [Todo("a", "done"), Todo("b", "done")]))
    assert folder.of_session("s1") is None
    assert [plan.state for plan in folder.list()] == ["done"]


def test_a_file_without_a_head_is_a_draft_of_no_session(tmp_path):
    folder = PlanFolder(tmp_path)
    folder.folder.mkdir(parents=True)
    (folder.folder / "mine.md").write_text("# Mine\n- [ ] one\n")
    (folder.folder / "empty.md").write_text("")
    assert [(plan.title, plan.session, plan.state) for plan in folder.list()] == [
        ("Mine", "", "draft")
    ]


@pytest.mark.parametrize("linked", [".ouro", ".ouro/plans"])
def test_nothing_is_written_through_a_link(tmp_path, linked):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = tmp_path / "root"
    place = root / linked
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere)
    with pytest.raises(OSError, match="is a link"):
        PlanFolder(root).add("s1", STEPS, "")
    assert list(elsewhere.iterdir()) == []
    assert PlanFolder(root).list() == []


def test_a_link_in_the_folder_is_no_plan(tmp_path):
    folder = PlanFolder(tmp_path)
    folder.add("s1", STEPS, "")
    (tmp_path / "secret").write_text("# Secret")
    (folder.folder / "link.md").symlink_to(tmp_path / "secret")
    assert [plan.title for plan in folder.list()] == ["A cache"]


def test_comments_with_numbers_of_lines_become_one_message():
    text = expand_comments(STEPS, "3: why?\n5： nein")
    assert text == "> 3: 1. **Add** a dictionary\n\nwhy?\n\n> 5: 2. Use `it`\n\nnein"
    for other in ("3: why?\nand more", "99: no such line", "at 3: 4", "make it shorter"):
        assert expand_comments(STEPS, other) == other
