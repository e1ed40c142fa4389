"""The programs that are measured, each with settings of its own that name one model server."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Program:
    """A program to be started, and what was measured of it."""

    name: str
    home: Path
    screen: list[str]
    """The command of a full screen."""
    headless: list[str]
    """The command that answers a prompt, which follows, and ends; all tools may run."""
    environment: dict[str, str] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """The repository that it works in."""
        return self.home / "work"

    def full_environment(self) -> dict[str, str]:
        """Nothing of the environment of who measures, its PATH apart."""
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "COLORTERM": "truecolor",
        } | self.environment  # fmt: skip

    def note(self, name: str, value: float | None) -> None:
        """One more figure; None is none."""
        if value is not None:
            self.figures.setdefault(name, []).append(value)


def programs(homes: Path, url: str, peers: Path, only: str) -> list[Program]:
    """Those that are installed and whose names hold `only`."""
    made = (make(homes / make.__name__, url, peers) for make in (ouro, codex, vibe, pi))
    found = [program for program in made if program and only in program.name]
    for program in found:
        program.work.mkdir()
        subprocess.run(["git", "init", "-q", str(program.work)], check=True)
    return found


def ouro(home: Path, url: str, _peers: Path) -> Program:
    folder = home / ".ouro"
    folder.mkdir(parents=True)
    models = folder / "models.yaml"
    models.write_text(
        f"default: openai/bench\nmodels:\n  openai/bench: {{api_base: {url}/v1, api_key: k, window: 100000}}\n"
    )
    models.chmod(0o600)
    command = str(Path(sys.executable).with_name("ouro"))
    return Program("ouro", home, [command], [command, "--mode", "auto", "-p"], {"OURO_HOME": str(folder)})


def codex(home: Path, url: str, peers: Path) -> Program | None:
    native = next(_natives(peers), None)
    if native is None:
        return None
    (home / ".codex").mkdir(parents=True)
    (home / ".codex/config.toml").write_text(
        'model = "bench"\nmodel_provider = "bench"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.bench]\nname = "bench"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        f'[projects."{home / "work"}"]\ntrust_level = "trusted"\n'
    )
    free = "--dangerously-bypass-approvals-and-sandbox"
    command = str(native)
    return Program(
        "codex (native)", home, [command, free], [command, "exec", free], {"CODEX_HOME": str(home / ".codex")}
    )


def _natives(peers: Path) -> Iterator[Path]:
    """The program without the Node.js script that starts it."""
    found = peers.glob("node_modules/@openai/codex*/vendor/*/**/codex")
    return (path for path in found if path.is_file() and os.access(path, os.X_OK))


def vibe(home: Path, url: str, peers: Path) -> Program | None:
    binary = peers / "vibe/bin/vibe"
    if not binary.exists():
        return None
    (home / ".vibe").mkdir(parents=True)
    (home / ".vibe/config.toml").write_text(
        'active_model = "bench"\nenable_update_checks = false\nenable_telemetry = false\n'
        f'[[providers]]\nname = "bench"\napi_base = "{url}/v1"\napi_key_env_var = "BENCH_KEY"\n'
        '[[models]]\nname = "bench"\nprovider = "bench"\nalias = "bench"\n'
    )
    keys = {"VIBE_HOME": str(home / ".vibe"), "BENCH_KEY": "k", "MISTRAL_API_KEY": "k"}
    command = [str(binary), "--trust"]
    return Program("mistral-vibe", home, command, [*command, "--auto-approve", "-p"], keys)


def pi(home: Path, url: str, peers: Path) -> Program | None:
    binary = peers / "node_modules/.bin/pi"
    if not binary.exists():
        return None
    agent = home / ".pi/agent"
    agent.mkdir(parents=True)
    (agent / "models.json").write_text(
        f'{{"providers":{{"bench":{{"baseUrl":"{url}/v1","apiKey":"k","api":"openai-completions",'
        '"models":[{"id":"bench"}]}}}'
    )
    command = [str(binary), "--provider", "bench", "--model", "bench"]
    return Program("pi", home, command, [*command, "-p"], {"PI_OFFLINE": "1"})


def report(measured: list[Program], names: list[str], digits: int = 0) -> None:
    """A Markdown table: medians, with the lowest and highest in brackets."""
    print("| program | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for program in measured:
        cells = []
        for name in names:
            values = program.figures.get(name)
            cells.append(
                f"**{statistics.median(values):.{digits}f}** ({min(values):.{digits}f}–{max(values):.{digits}f})"
                if values
                else "–"
            )
        print(f"| {program.name} | " + " | ".join(cells) + " |", flush=True)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"\nLoad average at the end, the measuring itself included: {load}.", flush=True)
