"""What the report of a batch says about a task."""

import pytest

from ouro.batch.report import reason
from ouro.batch.state import CHECKS, MISFIT, CheckResult, TaskResult

FAILED = CheckResult("make test", 2, "")


@pytest.mark.parametrize(
    ("outcome", "said"), [(CHECKS, "`make test` ended with 2"), (MISFIT, "it is not JSON")]
)
def test_the_reason_is_that_of_the_outcome_also_if_a_check_failed_too(outcome, said):
    result = TaskResult(
        id="a", repo="/r", outcome=outcome, detail="it is not JSON", checks=(FAILED,)
    )
    assert reason(result) == said
