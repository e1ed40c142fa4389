"""Defences of ouro/session."""

from tests.defences.defence import Defence

DEFENCES = (
    Defence("X21", "ouro/session/model_judge.py", 'model_verdict.verdict == "allow", reason', "True, reason", "test_x21_judged_calls.py"),
    Defence("X21", "ouro/session/model_judge.py", "if len(key) > MAX_CALL:", "if False:", "test_x21_judged_calls.py"),
    Defence("X21", "ouro/session/model_judge.py", 'dump_json(value).replace("<"', 'dump_json(value).replace("\\0"', "test_x21_judged_calls.py"),
    Defence("X21", "ouro/session/model_judge.py", "if not self.is_on or key in self._revoked:\n            return None\n        words", "words",
            "test_x21_judged_calls.py"),
    Defence("X18", "ouro/session/goal.py", "limits=limits, call_id", 'limits="off", call_id', "test_x18_checks_of_goals.py"),
    Defence("X18", "ouro/session/standing_work.py", "is_kept=True, is_paused=True\n", "is_kept=True\n", "test_x18_checks_of_goals.py"),
    Defence("E3", "ouro/session/resumed_mode.py", 'if mode == "auto" and configured != "auto":', "if False:",
            "../session/test_mode.py"),
    Defence("E13", "ouro/session/rewind.py", "await scope_undo.prepare()", "pass",
            "test_e13_killed_turns.py"),
    Defence("E13", "ouro/session/rewind.py", "scope_undo.cancel()", "pass",
            "test_e13_killed_turns.py"),
    Defence("S10", "ouro/session/budget.py",
            'raise LimitReached(\n            f"The limits of cost cannot be checked: {error.message}", error.hint\n'
            "        ) from error", "costs = ()", "../session/test_budget.py"),
    Defence("X5", "ouro/session/background_work.py", 'finish(Display("interrupted", CommandOutput(line, printed)), failed=True)',
            "pass", "../end_to_end/test_afternoon.py -k escape_ends"),
)  # fmt: skip
