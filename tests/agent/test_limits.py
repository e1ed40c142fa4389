"""When a turn must stop."""

import pytest

from ouro.agent.loop import STOP_AFTER, WARN_AFTER, Repetition
from ouro.errors import LimitReached
from ouro.messages import ToolCall, ToolReply
from ouro.session.budget import check_calls
from ouro.settings import LimitSettings

CALL = ToolCall("1", "read", {"path": "api.py"})


def reply(text="the same"):
    return [ToolReply("1", "read", text)]


def test_no_limit_never_stops():
    check_calls(LimitSettings(), 10_000)


def test_turn_limit_error_names_the_limit():
    check_calls(LimitSettings(max_turns=3), 2)
    with pytest.raises(LimitReached, match="after 3 model calls"):
        check_calls(LimitSettings(max_turns=3), 3)


def test_repetition_warns_then_stops():
    seen = Repetition()
    warnings = [seen.observe([CALL], reply()) for _ in range(STOP_AFTER - 1)]
    assert [bool(warning) for warning in warnings] == [
        number >= WARN_AFTER for number in range(1, STOP_AFTER)
    ]
    with pytest.raises(LimitReached, match="same call"):
        seen.observe([CALL], reply())


def test_the_same_call_with_another_answer_is_no_repetition():
    seen = Repetition()
    assert not any(
        seen.observe([CALL], reply(f"line {number}")) for number in range(STOP_AFTER * 2)
    )


def test_command_duration_is_ignored_when_results_are_compared():
    seen = Repetition()
    answers = [reply(f"(no output)\n[exit code 0, {number}.0 s]") for number in range(STOP_AFTER)]
    warnings = [seen.observe([CALL], answer) for answer in answers[:-1]]
    assert warnings[-1]
    with pytest.raises(LimitReached, match="same call"):
        seen.observe([CALL], answers[-1])


@pytest.mark.parametrize("length", [2, 3, 4])
def test_cycle_of_the_same_few_calls_is_a_repetition(length):
    seen = Repetition()

    def observe(number):
        return seen.observe([ToolCall("1", "read", {"path": f"{number % length}.txt"})], reply())

    warnings = [observe(number) for number in range(length * STOP_AFTER - 1)]
    assert [bool(warning) for warning in warnings].index(True) == length * WARN_AFTER - 1
    assert f"same {length} calls in turn 3 times" in warnings[length * WARN_AFTER - 1]
    with pytest.raises(LimitReached, match=f"same {length} calls in turn 6 times"):
        observe(length * STOP_AFTER - 1)


def test_different_call_in_between_breaks_the_cycle():
    seen = Repetition()
    names = [name for number in range(STOP_AFTER * 2) for name in ("a", "b", f"new {number}")]
    assert not any(seen.observe([ToolCall("1", name, {})], reply()) for name in names)
