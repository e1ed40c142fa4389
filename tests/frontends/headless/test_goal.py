"""`/goal` in one headless prompt; at a cap the exit code is 4."""

import io
import json

import pytest

from ouro.assemble import opener
from ouro.errors import UsageError
from ouro.frontends.headless.headless import HeadlessOptions, Streams, run_headless
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest
from ouro.session_options import Options


@pytest.fixture(autouse=True)
def without_memory(monkeypatch):
    """Only the agent and the check of the goal ask the model."""
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")


async def run(folder, prompt, replies, resume=""):
    settings = {"permissions.mode": "auto", "sandbox.enabled": False}
    options = Options(cwd=folder, settings=settings, trust=True, ready_model=ScriptedModel(replies))
    out = io.StringIO()
    code = await run_headless(
        opener(options),
        OpenRequest(resume),
        HeadlessOptions(prompt, output="json"),
        Streams(None, out, io.StringIO()),
    )
    return code, json.loads(out.getvalue())


async def test_a_goal_is_pursued_in_one_prompt_until_it_is_reached(tmp_path):
    replies = ["Not yet.", call("shell", command="touch made"), "Made it."]
    code, result = await run(tmp_path, "/goal !ls made", replies)
    assert (code, result["outcome"], result["result"]) == (0, "answered", "Made it.")


async def test_at_a_cap_the_exit_code_is_4_and_a_kept_goal_can_be_resumed(tmp_path):
    replies = ["No.", "Not yet."]
    code, result = await run(tmp_path, "/goal --keep --turns 2 !ls made", replies)
    assert (code, result["outcome"]) == (4, "limit")
    assert "it has reached its cap of 2 turns" in result["detail"]
    (tmp_path / "made").touch()
    code, result = await run(tmp_path, "/goal resume", ["Made."], result["session_id"])
    assert (code, result["result"]) == (0, "Made.")


@pytest.mark.parametrize(
    "prompt", ["/goal", "/goal clear", "/goal --turns x y", "/goal resume", "/loop 10m look"]
)
async def test_what_makes_no_sense_without_a_user_is_wrong_usage(tmp_path, prompt):
    with pytest.raises(UsageError):
        await run(tmp_path, prompt, [])


async def test_a_word_that_begins_like_goal_is_no_goal(tmp_path):
    code, result = await run(tmp_path, "/goals are listed where?", [])
    assert (code, result["outcome"]) == (2, "failed")
    assert "Did you mean /goal" in result["detail"]
