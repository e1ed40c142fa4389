"""X6: shell lines with an effect, by cause, are asked in every mode that promises it; harmless
lines are not.

`python -m tests.fuzz_judge` runs the lines with bash each night, to prove that each has an effect.
"""

import json

import pytest
from fakes.model_script import Call, Reply
from fakes.ouro_program import OuroProgram
from fuzz_judge import Judge, shell_lines

EFFECTS = shell_lines("shell_lines_with_effect")
HARMLESS = shell_lines("shell_lines_harmless")
HOSTILE = shell_lines("shell_lines_hostile")


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.mktemp("battery")
        patch.setenv("HOME", str(base / "home"))
        yield Judge(base / "scratch", base / "home")


@pytest.mark.parametrize("mode", ["ask", "plan"])
@pytest.mark.parametrize("cause", EFFECTS)
def test_x6_no_effectful_line_runs_without_asking(judge, cause, mode):
    assert [line for line in EFFECTS[cause] if judge.allows(line, mode)] == []


@pytest.mark.parametrize("form", HOSTILE)
def test_x6_no_hostile_line_of_an_allowed_form_runs_without_asking(judge, form):
    assert [line for line in HOSTILE[form] if judge.allows(line)] == []


@pytest.mark.parametrize("mode", ["ask", "plan"])
def test_x6_common_harmless_lines_run_without_asking(judge, mode):
    lines = [line for lines in HARMLESS.values() for line in lines]
    asked = [line for line in lines if not judge.allows(line, mode)]
    assert len(asked) * 198 <= len(lines) * 3, asked


@pytest.mark.slow
def test_x6_no_line_with_an_effect_runs_in_headless_mode(judge, model_server):
    lines = [line for lines in EFFECTS.values() for line in lines][::10]
    model_server.script([Reply(calls=[Call("shell", {"command": line}) for line in lines]), "done"])
    so_many = {"OURO_LIMITS_MAX_FAILURES": "1000"}  # refused calls in a row are a loop (L14)
    program = OuroProgram(model_server, judge.root, so_many)
    before = judge.state()
    done = program.headless("-p", "go", "--output", "json", "--no-trust")
    assert (done.code, len(json.loads(done.out)["refused"])) == (5, len(lines))
    assert judge.state() == before
