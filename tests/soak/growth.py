"""The resident memory over the turns of one session, with long-term memory, tools and the index."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
from pathlib import Path

import yaml
from fakes.model_server import Call, ModelServer, Reply, Request, Tokens

from ouro import Agent
from ouro.utils.libc_memory import trim_memory

SETTLED = 200
"""Turns after which everything is loaded, including the memory of each thread."""
MAX_GROWTH = 0.12
"""MiB a turn after that. The messages themselves take 0.02; it was 0.3 in a session of 1,000 turns.
"""
_KEY = "sk-test-soak"


def run(folder: Path, turns: int) -> list[str]:
    """Run it; returns the breaches of the limit, one line each. Prints the memory every 50 turns."""
    home, project = folder / "ouro", folder / "project"
    for place in (home, project):
        place.mkdir(mode=0o700)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    names = itertools.count()

    def reply(request: Request) -> Reply:
        number, tokens = next(names), Tokens(input=len(request.raw) // 4, output=300)
        if number % 2:
            words = f"the parser of module {number} drops the last line; " * 30
            return Reply(f"Answer {number}: {words}", tokens=tokens)
        call = Call("shell", {"command": f"seq {number} {number + 500}"}, id=f"c_{number}")
        return Reply("Looking.", calls=[call], tokens=tokens)

    measured: list[tuple[int, float]] = []
    with ModelServer(reply) as server:
        models = {
            "openai/test-model": {"api_base": server.openai_url, "api_key": _KEY, "window": 100_000}
        }
        (home / "models.yaml").write_text(
            yaml.safe_dump({"default": "openai/test-model", "models": models})
        )
        (home / "models.yaml").chmod(0o600)
        os.environ |= {"OURO_HOME": str(home), "OURO_SANDBOX_ENABLED": "false"}
        with Agent(str(project), mode="auto") as agent:
            for turn in range(1, turns + 1):
                agent.run(
                    f"Look at module {turn % 50}: the service {turn} uses port {4_000 + turn}."
                )
                server.requests.clear()
                if turn % 50 == 0:
                    measured.append((turn, _resident()))
                    print(f"turn {turn}: {measured[-1][1]:.0f} MiB", flush=True)
    return _breaches(measured)


def _breaches(measured: list[tuple[int, float]]) -> list[str]:
    settled = [(turn, size) for turn, size in measured if turn >= SETTLED]
    if len(settled) < 2:
        return []
    (first, before), (last, after) = settled[0], settled[-1]
    slope = (after - before) / (last - first)
    return (
        [f"memory grows by {slope:.2f} MiB a turn, more than {MAX_GROWTH}"]
        if slope > MAX_GROWTH
        else []
    )


def _resident() -> float:
    gc.collect()
    trim_memory()  # as ouro does some seconds after a turn
    words = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
    return int(words[0]) / 1024
