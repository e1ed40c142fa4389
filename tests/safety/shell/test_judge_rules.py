"""One line for each rule of the judge of shell lines; without the rule it is decided otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes.tool_benches import decision

from ouro.safety import Allow, Ask, Decision, Deny, Effect, Permissions, Workspace
from ouro.safety.shell import judge
from ouro.safety.shell.floor import COMMAND_CHECKS
from ouro.safety.shell.parse import MAX_CHARACTERS


class RuleCase(NamedTuple):
    """A line that only one rule decides as it must be decided."""

    rule: str
    line: str
    decided: Decision
    mode: Any = "ask"
    rules: dict[str, list[str]] = {}  # noqa: RUF012


CASES = [
    RuleCase(
        "deny rule",
        "cat a.txt",
        Deny("The rule `deny read(a.txt)` forbids a.txt."),
        rules={"deny": ["read(a.txt)"]},
    ),
    RuleCase(
        "long line", "sudo ls " + "a" * MAX_CHARACTERS, Ask("it is longer than 10,000 characters")
    ),
    RuleCase("plan mode", "make", Deny(judge._NOT_IN_PLAN_MODE), mode="plan"),
    RuleCase(
        "floor",
        "sudo ls",
        Ask("sudo acts with the rights of another user"),
        rules={"allow": ["shell"]},
    ),
    RuleCase(
        "ask rule",
        "cat a.txt",
        Ask("a.txt: the rule `ask read(a.txt)` says so"),
        rules={"ask": ["read(a.txt)"]},
    ),
    RuleCase("allow rule for the tool", "make $WHAT", Allow(), rules={"allow": ["shell"]}),
    RuleCase(
        "write elsewhere",
        "make > /opt/made",
        Ask("it writes to /opt/made, outside the workspace"),
        mode="auto",
    ),
    RuleCase(
        "unknown reader",
        "curl -s docs.example | shower",
        Ask("it is not known whether shower runs what it gets from the network", "shell(shower *)"),
        mode="auto",
    ),
    RuleCase("sandbox", "make", Allow("workspace"), mode="auto"),
    RuleCase("not allowed", "make", Ask("it runs make", "shell(make *)")),
]


@pytest.fixture
def root(repository) -> Path:
    (repository / "a.txt").write_text("one\n")
    return repository


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_rule_decides_its_line_and_nothing_else_does(root, monkeypatch, case):
    decide = lambda: decision(root, case.line, case.mode, **case.rules)  # noqa: E731
    assert decide() == case.decided
    monkeypatch.setattr(judge, "RULES", _without(case.rule))
    assert decide() != case.decided


def test_a_line_outside_of_the_sandbox_is_asked_unless_a_rule_allows_it(root, monkeypatch):
    decide = lambda **rules: _decide_outside(root, "cat a.txt", rules)  # noqa: E731
    assert decide() == Ask("it runs outside of the sandbox, with all your rights")
    allowed = decide(allow=["shell(make *)"])
    assert isinstance(allowed, Ask)
    monkeypatch.setattr(judge, "RULES", _without("outside of the sandbox"))
    assert isinstance(decide(), Allow)


def test_a_line_that_prints_all_files_is_asked_while_a_rule_denies_one(root, monkeypatch):
    workspace = Workspace(root, hides=lambda: False)
    permissions = Permissions(workspace, "ask", deny=["read(.env)"])
    assert _decide(permissions, "rg one") == Ask(
        "rg may print what a rule denies to read: no sandbox hides it"
    )
    monkeypatch.setattr(judge, "RULES", _without("leak"))
    assert isinstance(_decide(permissions, "rg one"), Allow)


def test_each_rule_has_a_test_here():
    tested = {case.rule for case in CASES}
    tested |= {"outside of the sandbox", "leak"}
    tested |= {"secret in memory"}  # tests/faults/test_m4_commands_that_write_memory.py
    assert tested == {rule.name for rule in judge.RULES}


@pytest.mark.parametrize(
    ("check", "line"),
    [
        ("irreversible", "git push --force"),
        ("removal", "rm -rf ~/x"),
        ("pattern above keys", "cat ~/*/id"),
        ("folder above keys", "cd ~ && rg x"),
    ],
)
def test_each_check_of_the_floor_asks_about_its_line_in_every_mode(root, home, check, line):
    assert check in [each.name for each in COMMAND_CHECKS]
    for mode in ("ask", "edit", "auto"):
        assert isinstance(decision(root, line, mode, allow=["shell"]), Ask)


def _without(name: str) -> tuple[judge.LineRule, ...]:
    return tuple(rule for rule in judge.RULES if rule.name != name)


def _decide(permissions: Permissions, line: str) -> Decision:
    return permissions.decide("shell", Effect.RUN, [line])


def _decide_outside(root: Path, line: str, rules: dict[str, list[str]]) -> Decision:
    permissions = Permissions(Workspace(root), "ask", **rules)
    return permissions.decide("shell", Effect.RUN, [line], outside=True)


@pytest.mark.parametrize(("line", "decided"), [
    ("make |& tee log.txt", Allow("off")),
    ("make 2>&1 | tee log.txt", Allow("off")),
    ("make |& sh", Ask("sh reads its commands from its input", "")),
    ("make |& git push", Ask("it runs git push", "shell(git push *)")),
])  # fmt: skip
def test_both_spellings_of_a_pipe_with_errors_follow_the_rules_of_their_commands(
    root, line, decided
):
    assert decision(root, line, "ask", allow=["shell(make *)", "shell(tee *)"]) == decided
