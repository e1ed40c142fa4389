"""What a whole run may cost, shared by tasks that run side by side."""

from ouro.batch.engine import SharedBudget


def test_a_task_gets_its_limit_or_its_share_of_what_is_left():
    budget = SharedBudget(1.0, spent=0.2, workers=4)
    assert budget.reserve(None) == 0.2
    assert round(budget.reserve(5.0), 6) == 0.6
    assert budget.reserve(None) == 0


def test_what_a_task_did_not_use_is_there_for_others():
    budget = SharedBudget(1.0, spent=0, workers=1)
    budget.record_cost(budget.reserve(None), 0.25)
    assert budget.reserve(2.0) == 0.75


def test_an_unknown_price_leaves_the_budget_as_it_was():
    budget = SharedBudget(1.0, spent=0, workers=1)
    budget.record_cost(budget.reserve(0.5), None)
    assert budget.reserve(None) == 1.0


def test_without_a_budget_only_the_limit_of_the_task_holds():
    budget = SharedBudget(None, spent=3, workers=2)
    assert (budget.reserve(None), budget.reserve(0.5)) == (None, 0.5)
