"""Starting, in a real terminal of 120x40, beside other programs: first paint, prompt usable, first request, memory.

    python benchmarks/start.py --runs 7 --peers FOLDER

FOLDER holds what `npm install --prefix FOLDER @openai/codex @mariozechner/pi-coding-agent` and
`python -m venv FOLDER/vibe && FOLDER/vibe/bin/pip install mistral-vibe` put there; what is missing is left out and said.
Every program talks to the same model server on loopback, which answers at once. The runs go round: one of each, again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.model_server import ModelServer  # noqa: E402

from benchmarks.terminal import Terminal  # noqa: E402

KEYS = "qwzjx"


@dataclass
class Program:
    """A program to be started, and where its settings go."""

    name: str
    command: list[str]
    environment: dict[str, str]
    figures: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, value: float | None) -> None:
        if value is not None:
            self.figures.setdefault(name, []).append(value)


def ouro(home: Path, url: str) -> Program:
    (home / ".ouro").mkdir(parents=True)
    models = home / ".ouro" / "models.yaml"
    models.write_text(f"default: openai/bench\nmodels:\n  openai/bench: {{api_base: {url}/v1, api_key: k, window: 100000}}\n")
    models.chmod(0o600)
    return Program("ouro", [str(Path(sys.executable).with_name("ouro"))], {"OURO_HOME": str(home / ".ouro")})


def codex(home: Path, url: str, peers: Path) -> Program | None:
    binary = peers / "node_modules/.bin/codex"
    if not binary.exists():
        return None
    native = next(peers.glob("node_modules/@openai/codex*/vendor/*/*/codex"), None) or next(
        peers.glob("node_modules/@openai/codex*/**/codex"), binary
    )
    (home / ".codex").mkdir(parents=True)
    (home / ".codex/config.toml").write_text(
        f'model = "bench"\nmodel_provider = "bench"\ncheck_for_update_on_startup = false\n[model_providers.bench]\nname = "bench"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\n[projects."{home / "work"}"]\ntrust_level = "trusted"\n'
    )
    return Program("codex (native)", [str(native)], {"CODEX_HOME": str(home / ".codex")})


def vibe(home: Path, url: str, peers: Path) -> Program | None:
    binary = peers / "vibe/bin/vibe"
    if not binary.exists():
        return None
    (home / ".vibe").mkdir(parents=True)
    (home / ".vibe/config.toml").write_text(
        'active_model = "bench"\nenable_update_checks = false\nenable_telemetry = false\n[[providers]]\nname = "bench"\n'
        f'api_base = "{url}/v1"\napi_key_env_var = "BENCH_KEY"\n[[models]]\nname = "bench"\nprovider = "bench"\nalias = "bench"\n'
    )
    return Program("mistral-vibe", [str(binary), "--trust"], {"VIBE_HOME": str(home / ".vibe"), "BENCH_KEY": "k", "MISTRAL_API_KEY": "k"})


def pi(home: Path, url: str, peers: Path) -> Program | None:
    binary = peers / "node_modules/.bin/pi"
    if not binary.exists():
        return None
    agent = home / ".pi/agent"
    agent.mkdir(parents=True)
    (agent / "models.json").write_text(
        '{"providers":{"bench":{"baseUrl":"%s/v1","apiKey":"k","api":"openai-completions","models":[{"id":"bench"}]}}}' % url
    )
    return Program("pi", [str(binary), "--provider", "bench", "--model", "bench"], {})


def measure(program: Program, server: ModelServer, home: Path) -> None:
    work = home / "work"
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor",
    } | program.environment  # fmt: skip
    terminal = Terminal(program.command, environment, work)
    try:
        program.note("first paint ms", terminal.after(lambda screen: bool(screen.strip()), 30))
        sent: list[str] = []

        def press() -> None:
            if len(sent) < 200 and (time.monotonic() - terminal.started) * 1000 > len(sent) * 40:
                sent.append(KEYS[len(sent) % len(KEYS)])
                terminal.send(sent[-1])

        press()
        usable = terminal.after(lambda screen: KEYS[0] + KEYS[1] in screen or f"{KEYS[2]}{KEYS[3]}" in screen, 30, press)
        program.note("prompt usable ms", usable)
        before = len(server.requests)
        pressed = time.monotonic()
        terminal.send("\r")
        end = time.monotonic() + 20
        while len(server.requests) == before and time.monotonic() < end:
            terminal.after(lambda _: False, 0.005)
        if len(server.requests) > before:
            program.note("first request ms", (server.requests[before].time - terminal.started) * 1000)
            program.note("Enter to request ms", (time.monotonic() - pressed) * 1000)
        terminal.after(lambda _: False, 1.5)
        program.note("memory MiB", terminal.memory())
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/peers"))
    parser.add_argument("--only", default="", help="only programs whose name holds this")
    args = parser.parse_args()
    with ModelServer(lambda _: "Hello.") as server:
        homes = Path(tempfile.mkdtemp())
        made = [
            ouro(homes / "ouro", server.url),
            *(make(homes / make.__name__, server.url, args.peers) for make in (codex, vibe, pi)),
        ]
        programs = [program for program in made if program and args.only in program.name]
        for program in programs:
            work = homes / program.name.split()[0].removeprefix("mistral-") / "work"
            work.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "init", "-q", str(work)], check=True)
        for number in range(args.runs + 1):
            for program in programs:
                measure(program, server, homes / program.name.split()[0].removeprefix("mistral-"))
                if number == 0:
                    program.figures.clear()  # the first run warms the disk
        shutil.rmtree(homes, ignore_errors=True)
    report(programs)


def report(programs: list[Program]) -> None:
    names = ["first paint ms", "prompt usable ms", "first request ms", "memory MiB"]
    print("| program | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for program in programs:
        cells = []
        for name in names:
            values = program.figures.get(name)
            cells.append(f"{statistics.median(values):.0f} ({min(values):.0f}–{max(values):.0f})" if values else "–")
        print(f"| {program.name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
