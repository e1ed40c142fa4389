"""The agent of Harbor: its trajectory of real output, and a trial where Harbor is installed."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[1] / "integrations" / "harbor"
sys.path.insert(0, str(FOLDER))

from ouro_trajectory import read_events, result_of, trajectory  # noqa: E402

HARBOR = os.environ.get("TEST_HARBOR", "")
"""Read now: tests have an environment without the variables of the user."""
REGISTRIES = {
    name: value
    for name, value in os.environ.items()
    if name.startswith(("PIP_", "UV_", "SSL_CERT_"))
}
"""How this machine reaches its package registries."""
PROMPT = 'read: api.py & glob: *.py\ncall: write {"path": "a", "content": "new\\n"}\nsay: done'


def printed(ouro, *words):
    flags = ("--output", "stream-json", "--mode", "auto", "--no-trust", "--no-memory")
    return ouro.headless(*flags, *words).out.splitlines()


def test_the_output_of_a_run_becomes_steps_with_calls_results_and_costs(ouro):
    events = read_events(printed(ouro, "-p", PROMPT))
    found = trajectory(events, "1.2.3")
    assert found["agent"] == {"name": "ouro", "version": "1.2.3", "model_name": "openai/test-model"}
    assert [step["step_id"] for step in found["steps"]] == list(range(1, len(found["steps"]) + 1))
    assert found["steps"][0] == {"step_id": 1, "source": "user", "message": PROMPT}
    calls = [call for step in found["steps"] for call in step.get("tool_calls", ())]
    assert [call["function_name"] for call in calls] == ["read", "glob", "write"]
    for step in found["steps"]:
        ids = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        results = step.get("observation", {"results": []})["results"]
        assert sorted(ids) == sorted(result["source_call_id"] for result in results)
    assert "hello" in json.dumps(found)
    total = result_of(events)["usage"]["input"]
    prompts = sum(step.get("metrics", {}).get("prompt_tokens", 0) for step in found["steps"])
    assert found["final_metrics"]["total_prompt_tokens"] == total == prompts


def test_output_that_was_cut_is_a_trajectory_without_a_sum(ouro):
    lines = printed(ouro, "-p", PROMPT)
    half = lines[: len(lines) // 2]
    events = read_events([*half, lines[len(half)][:20]])
    assert trajectory(events, "1")["steps"]
    assert result_of(events) == {}
    assert trajectory(read_events(["", "nonsense", "[]"]), "1") is None


@pytest.mark.skipif(not HARBOR, reason="TEST_HARBOR names no program: it needs Python 3.12")
@pytest.mark.timeout(900)
def test_harbor_accepts_the_agent_and_runs_a_task_in_a_folder(ouro, tmp_path):
    """Harbor's own validation reads the agent's options, its runner installs and grades it."""
    harbor = shlex.split(HARBOR)
    own = {"PYTHONPATH": str(FOLDER), "HOME": str(tmp_path)}
    environment = {**os.environ, **REGISTRIES, **own}
    words = ["agent", "schema", "ouro_harbor:Ouro"]
    schema = subprocess.run([*harbor, *words], env=environment, capture_output=True, text=True)
    assert schema.returncode == 0, schema.stderr
    code = "import sys\\nprint('hello', sys.argv[1])\\n"
    script = f'read: greet.py\ncall: write {{"path": "greet.py", "content": "{code}"}}\nsay: done'
    task = tmp_path / "example"
    subprocess.run(["cp", "-r", str(FOLDER / "example"), str(task)], check=True)
    (task / "instruction.md").write_text(script)
    models = yaml.safe_load((ouro.home / "models.yaml").read_text())
    (tmp_path / "models.yaml").write_text(yaml.safe_dump(models))
    words = ["run", "-p", str(task), "-a", "ouro_harbor:Ouro", "-m", "openai/test-model", "-q"]
    words += ["-e", "folder_environment:FolderEnvironment"]
    words += ["--ak", f"models_file={tmp_path / 'models.yaml'}", "-o", str(tmp_path / "jobs")]
    subprocess.run([*harbor, *words], env=environment, check=True, cwd=tmp_path)
    (trial,) = (tmp_path / "jobs").glob("*/*/result.json")
    result = json.loads(trial.read_text())
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert result["agent_result"]["n_input_tokens"] > 0
    written = trial.parent / "agent" / "trajectory.json"
    python = [str(Path(harbor[0]).with_name("python"))]
    words = ["-m", "harbor.utils.trajectory_validator", str(written)]
    checked = subprocess.run([*python, *words], env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
