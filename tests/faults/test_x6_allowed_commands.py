"""X6: a rule that allows a program of the project, which the agent has changed, gives the agent no
more than the sandbox, if the user confines what rules allow.
"""

from pathlib import Path

import pytest
from fakes.model_script import Call, Reply
from fakes.ouro_program import OuroProgram

from ouro.safety import Allow, Ask, Decision, Effect, Permissions, Workspace
from ouro.safety.sandbox.sandboxes import _find_bwrap


@pytest.fixture
def root(tmp_path, home) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    return folder


def decide(
    root: Path, line: str, *allow: str, confines: bool = True, outside: bool = False
) -> Decision:
    workspace = Workspace(root, confines=lambda: confines, confines_allowed=True)
    permissions = Permissions(workspace, "edit", allow=allow)
    return permissions.decide("shell", Effect.RUN, [line], outside=outside)


@pytest.mark.parametrize("rule", ["shell(make *)", "shell"])
def test_x6_what_a_rule_allows_is_confined(root, rule):
    assert decide(root, "make test", rule) == Allow("workspace")


@pytest.mark.parametrize("rule", ["shell(git *)", "shell"])
def test_x6_an_allowed_commit_may_change_the_repository(root, rule):
    assert decide(root, "git add -A && git commit -m x", rule) == Allow("repository")


@pytest.mark.parametrize("rule", ["shell(make *)", "shell"])
def test_x6_to_leave_the_sandbox_is_a_question_also_for_an_allowed_command(root, rule):
    assert isinstance(decide(root, "make test", rule, outside=True), Ask)


@pytest.mark.parametrize("rule", ["shell(make *)", "shell"])
def test_x6_without_a_sandbox_the_rule_does_not_count(root, rule):
    assert isinstance(decide(root, "make test", rule, confines=False), Ask)


@pytest.mark.parametrize("is_confined", [True, False])
def test_x6_a_program_that_the_agent_changed_writes_nothing_outside(
    model_server, tmp_path, tmp_path_factory, is_confined
):
    if _find_bwrap() is None:
        pytest.skip("bwrap is not installed")
    outside = tmp_path_factory.mktemp("outside")
    settings = {"ENABLED": "true", "CONFINE_ALLOWED": str(is_confined).lower()}
    program = OuroProgram(
        model_server, tmp_path, {f"OURO_SANDBOX_{name}": value for name, value in settings.items()}
    )
    script = f"touch inside {outside}/made\n"
    calls = [
        Reply(calls=[Call("write", {"path": "check.sh", "content": script})]),
        Reply(calls=[Call("shell", {"command": "sh check.sh"})]),
        "done",
    ]
    model_server.script(calls)
    done = program.headless(
        "-p", "go", "--mode", "edit", "--allow", "shell(sh check.sh)", "--no-trust"
    )
    assert done.code == 0
    assert (outside / "made").exists() != is_confined
