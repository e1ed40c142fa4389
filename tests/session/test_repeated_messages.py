"""/loop: a message is sent again and again."""

import asyncio

import pytest
from fakes.waiting import until
from session.test_goal import open_screen

from ouro.commands.goal import split_condition, split_interval
from ouro.errors import UsageError
from ouro.session import Draft


@pytest.fixture(autouse=True)
def no_background_calls(no_background_calls):
    """Only the agent asks the model."""


async def test_a_message_is_sent_at_once_and_at_each_interval_until_it_is_ended(tmp_path):
    here = await open_screen(tmp_path, (f"Answer {n}." for n in range(999)))
    repeated = here.session.background.standing.repeated
    repeated.add("look", 0.05)
    await until(lambda: len(here.outcomes) >= 3)
    (task,) = here.session.background.list()
    assert (task.id, task.title) == ("loop_1", "look")
    here.turns.say(Draft("/tasks kill loop_1"))
    await until(lambda: not repeated.list())
    await here.idle()
    turns = len(here.outcomes)
    await asyncio.sleep(0.3)
    assert len(here.outcomes) == turns
    await here.turns.close()


async def test_what_became_due_during_a_turn_is_sent_once_after_it(tmp_path):
    from ouro.llm import call

    wait = call("shell", command="touch began; until [ -e go ]; do sleep 0.01; done")
    here = await open_screen(tmp_path, [wait, "Waited.", "Looked.", "x", "y"])
    here.turns.say(Draft("wait"))
    await until((tmp_path / "began").exists)
    here.session.background.standing.repeated.add("look", 3_600)
    await asyncio.sleep(0.2)
    (tmp_path / "go").touch()
    await until(lambda: len(here.outcomes) == 2)
    await here.idle()
    texts = [message.text for message in here.session.memory.messages()]
    assert texts.count("look") == 1
    await here.turns.close()


async def test_a_loop_that_is_held_after_an_interrupt_does_not_count_as_sent(tmp_path):
    here = await open_screen(tmp_path, ["Hello.", *["Looked."] * 99])
    here.turns._is_held = True
    repeated = here.session.background.standing.repeated
    message = repeated.add("look", 0.05)
    first_due = message.next_at
    await until(lambda: message.next_at > first_due + 0.1)
    assert "sent 0 times" in message.state
    assert not here.outcomes
    here.turns.say(Draft("go on"))
    await until(lambda: message.runs == 1)
    await here.turns.close()


async def test_a_loop_runs_a_slash_command_too(tmp_path):
    here = await open_screen(tmp_path, [])
    here.session.background.standing.repeated.add("/todos", 3_600)
    shown = []
    here.show = shown.append
    await until(lambda: any("no plan" in str(item) for item in shown))
    await here.turns.close()


async def test_only_a_loop_with_keep_is_there_after_a_resume(tmp_path):
    here = await open_screen(tmp_path, ["One.", "Two."])
    await here.type("/loop --keep 2h Check the build")
    await here.type("/loop 3h Gone later")
    await until(lambda: len(here.outcomes) == 2)
    await here.idle()
    await here.turns.close()
    again = await open_screen(tmp_path, ["Three."], resume=here.session.id)
    (message,) = again.session.background.standing.repeated.list()
    assert (message.text, message.seconds) == ("Check the build", 7_200)
    assert again.outcomes == []
    await again.turns.close()


@pytest.mark.parametrize(
    ("typed", "seconds", "text"),
    [
        ("10m Check it", 600, "Check it"),
        ("30s ping", 30, "ping"),
        ("1h30m überprüfe den Bau", 5_400, "überprüfe den Bau"),
        ("2 h /review", 7_200, "/review"),
        ("10 min 見て", 600, "見て"),
        ("1d a\nb", 86_400, "a\nb"),
    ],
)
def test_intervals_are_read_as_users_write_them(typed, seconds, text):
    assert split_interval(typed) == (seconds, text)


@pytest.mark.parametrize("typed", ["10m", "soon look", "10x look", "1s look", "99d look", "m look"])
def test_another_interval_is_refused(typed):
    with pytest.raises(UsageError):
        split_interval(typed)


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ("all tests pass", ("all tests pass", "")),
        ("!make test", ("", "make test")),
        ("fix the tests\n!pytest -q", ("fix the tests", "pytest -q")),
        ("tous les tests passent !", ("tous les tests passent !", "")),
        ("no use of !important", ("no use of !important", "")),
    ],
)
def test_the_command_of_a_goal_is_the_line_with_an_exclamation_mark(typed, parts):
    assert split_condition(typed) == parts
