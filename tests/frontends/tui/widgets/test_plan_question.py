"""The question about a plan, operated by keys: approve, edit, comment on lines, keep planning."""

from contextlib import asynccontextmanager

import pytest
from fakes.fake_session import FakePlan, FakeSession
from fakes.screens import asked, opened, screen_of, screen_text, type_text, until

from ouro.display import Question
from ouro.events import QuestionAsked, Reply
from ouro.frontends.tui.screens.plan_sheets import PlanComments
from ouro.frontends.tui.screens.text_edit_sheet import TextSheet

PLAN = "# Plan: A cache\n\n1. [ ] Add it\n2. [ ] Use it"
CHOICES = ("Carry it out, asking", "Carry it out; edits", "Keep planning")
ASKED = QuestionAsked("plan:1", Question("Carry out this plan?", CHOICES))


@asynccontextmanager
async def asking(size=(100, 30)):
    """A screen with the question, whose keys are answers."""
    session = FakeSession([[ASKED]])
    session.plan = FakePlan(PLAN)
    async with screen_of(session).run_test(size=size) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await asked(pilot)
        yield session, pilot


async def answered(session, pilot):
    await until(pilot, lambda: session.answers)
    ((question_id, answer),) = session.answers
    assert question_id == "plan:1"
    return answer


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("y", Reply((CHOICES[0],))),
        ("1", Reply((CHOICES[0],))),
        ("down enter", Reply((CHOICES[1],))),
        ("5 l e s s enter", Reply(("less",))),
        ("tab m o r e enter", Reply(("more",))),
        ("n enter", Reply((CHOICES[2],))),
        ("escape", Reply()),
    ],
)
async def test_keys_answer_the_question_about_a_plan(keys, answer):
    async with asking() as (session, pilot):
        await pilot.press(*keys.split())
        assert await answered(session, pilot) == answer


@pytest.mark.parametrize("key", ["3", "e"])
async def test_the_plan_is_edited_in_place_and_shown_again(key):
    async with asking() as (session, pilot):
        await pilot.press(key)
        await until(pilot, lambda: isinstance(pilot.app.screen, TextSheet))
        await pilot.press("down", "down", "down", "end")
        await type_text(pilot, " twice")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: session.plan.text.endswith("Use it twice"))
        await until(pilot, lambda: "Use it twice" in screen_text(pilot.app))
        assert session.answers == []
        await asked(pilot)
        await pilot.press("2")
        assert await answered(session, pilot) == Reply((CHOICES[1],))


async def test_changes_of_a_plan_are_discarded_only_by_a_second_escape():
    async with asking() as (session, pilot):
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextSheet))
        await pilot.press("x", "escape")
        await until(pilot, lambda: "Esc again discards" in screen_text(pilot.app))
        assert isinstance(pilot.app.screen, TextSheet)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, TextSheet))
        assert session.plan.text == PLAN
        assert session.answers == []


@pytest.mark.parametrize("size", [(100, 30), (40, 10)])
async def test_comments_on_lines_go_back_as_one_message(size):
    async with asking(size) as (session, pilot):
        await pilot.press("4")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanComments))
        await pilot.press("down", "down", "enter", *"why", "enter")
        await pilot.press("down", "enter", *"gone", "enter", "delete")
        await pilot.press("home", "enter", *"x", "escape")
        await pilot.press("up", "enter", "!", "enter", "end", "enter", *"later", "ctrl+s")
        answer = await answered(session, pilot)
    assert answer == Reply(
        ("> 1: # Plan: A cache\n\n!\n\n> 3: 1. [ ] Add it\n\nwhy\n\n> 4: 2. [ ] Use it\n\nlater",)
    )


async def test_comments_on_a_plan_whose_question_is_closed_go_to_the_prompt():
    async with asking() as (session, pilot):
        await pilot.press("4")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanComments))
        await pilot.press("down", "down", "enter", *"why", "enter")
        session.interrupt()  # as another viewer does
        await until(pilot, lambda: not session.running)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "why" in pilot.app.conversation.prompt.text)
        assert session.answers == []
        await until(pilot, lambda: "question about the plan is closed" in screen_text(pilot.app))


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
async def test_a_line_that_is_cut_is_shown_whole_when_it_is_marked(size):
    end = "and write both figures into the commit"
    plan = f"# Short\n\n1. Measure the time of `total()` again, {end}\n2. Go"
    async with screen_of(FakeSession()).run_test(size=size) as pilot:
        await opened(pilot)
        app = pilot.app
        app.push_screen(PlanComments(plan))
        await until(pilot, lambda: "Short" in screen_text(app))
        assert "commit" not in screen_text(app)
        await pilot.press("down", "down")
        await until(pilot, lambda: "commit" in screen_text(app))
        await pilot.press("enter", *"why", "enter")
        await until(pilot, lambda: screen_text(app).count("← why") == 2)
        await pilot.press("down")
        await until(pilot, lambda: "commit" not in screen_text(app))


async def test_no_comment_sends_nothing():
    async with asking() as (session, pilot):
        await pilot.press("4")
        await until(pilot, lambda: isinstance(pilot.app.screen, PlanComments))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not isinstance(pilot.app.screen, PlanComments))
        assert session.answers == []
        await asked(pilot)
