"""/memory init: three questions, then the agent reads the repository."""

from itertools import product

import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.knowledge import Conversation

from ouro.commands.memory_init import QUESTIONS
from ouro.commands.slash import dispatch

ALL = [*product(*([choice.value for choice in choices] for _, choices in QUESTIONS))]
ANSWERS = [*ALL[0]]


@pytest.fixture
def home(home):
    return home / ".ouro"


def begin(home, project, picks):
    conversation = Conversation(home, project, write="silent").connect()
    front_end = FakeFrontEnd(picks=picks)
    front_end.session.remember(conversation.manager)
    front_end.session.cwd = project or home
    return front_end


def remembered(home):
    path = home / "memory" / "preferences.md"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("answers", ALL)
async def test_answers_are_remembered_and_the_agent_reads_the_repository(home, repository, answers):
    front_end = begin(home, repository, answers)
    assert await dispatch(front_end, "/memory init")
    assert remembered(home) == "".join(f"- {text}\n" for text in answers)
    [sent] = front_end.sent
    assert str(repository / ".ouro" / "memory") in sent
    assert len(front_end.asked) == len(QUESTIONS) == 3


@pytest.mark.parametrize("number", range(2 * len(QUESTIONS)))
async def test_each_answer_becomes_a_line_about_the_user(home, repository, number):
    question, answer = divmod(number, 2)
    picks = ["", "", ""]
    picks[question] = QUESTIONS[question][1][answer].value
    await dispatch(begin(home, repository, picks), "/memory init")
    assert remembered(home) == f"- {picks[question]}\n"


async def test_skipped_questions_leave_memory_empty(home, repository):
    front_end = begin(home, repository, ["", "", ""])
    await dispatch(front_end, "/memory init")
    assert remembered(home) == ""
    assert front_end.sent


async def test_esc_keeps_earlier_answers_and_reads_nothing(home, repository):
    front_end = begin(home, repository, [ANSWERS[0], None])
    await dispatch(front_end, "/memory init")
    assert remembered(home) == f"- {ANSWERS[0]}\n"
    assert front_end.sent == []
    assert "Stopped here." in front_end.lines[-1][1]


async def test_the_second_time_the_same_answers_are_confirmed(home, repository):
    await dispatch(begin(home, repository, [*ANSWERS]), "/memory init")
    before = remembered(home)
    front_end = begin(home, repository, [*ANSWERS])
    await dispatch(front_end, "/memory init")
    assert remembered(home) == before
    assert "Already remembered" in front_end.lines[0][1]


async def test_without_project_memory_only_the_questions_are_asked(home):
    front_end = begin(home, None, [*ANSWERS])
    await dispatch(front_end, "/memory init")
    assert remembered(home).count("\n") == 3
    assert front_end.sent == []
    assert "no project memory" in front_end.lines[-1][1]
