"""Scores: the interval of Wilson, and which runs count."""

import pytest

from ouro.batch.evaluation import EvalRun, EvalSettings, _arm_names, score, wilson
from ouro.batch.state import TaskAnswer, TaskResult


@pytest.mark.parametrize(
    ("passed", "count", "low", "high"),
    # From the table of Brown, Cai and DasGupta's formula, worked out by hand.
    [
        (0, 0, 0, 1),
        (0, 10, 0, 0.278),
        (10, 10, 0.722, 1),
        (5, 10, 0.237, 0.763),
        (1, 4, 0.046, 0.699),
    ],
)
def test_the_interval_of_wilson(passed, count, low, high):
    assert wilson(passed, count) == pytest.approx((low, high), abs=0.001)


def result(name, outcome, turns=1, cost=0.25):
    answer = TaskAnswer(turns=turns, cost=cost)
    return TaskResult(id=name, repo="r", outcome=outcome, answer=answer, seconds=2)


def test_limits_and_refusals_count_and_faults_do_not():
    outcomes = {"a": "done", "b": "checks failed", "c": "limit", "d": "fault", "e": "refused"}
    results = {name: result(name, outcome) for name, outcome in outcomes.items()}
    results["f"] = result("f", "failed", turns=0, cost=None)  # no server answered
    runs = [EvalRun(name, "t", "", "none", 1) for name in "abcdefg"]
    found = score(runs, results)
    assert (found.passed, found.counted, found.faults, found.missing) == (1, 4, 2, 1)
    assert found.cost == 1.25


def test_an_unknown_price_makes_the_sum_unknown():
    runs = [EvalRun(name, "t", "", "none", 1) for name in "ab"]
    results = {"a": result("a", "done"), "b": result("b", "done", cost=None)}
    assert score(runs, results).cost is None


def test_every_arm_has_a_name_of_its_own():
    models = ("one/gpt-2", "one/gpt-3", "one/gpt", "two/gpt", "three/gpt")
    names = _arm_names(EvalSettings(models=models, memory=("none", "read")))
    assert len(set(names.values())) == len(names) == 10
    assert [names[model, "none"] for model in models] == ["gpt-2", "gpt-3", "gpt", "gpt-4", "gpt-5"]
