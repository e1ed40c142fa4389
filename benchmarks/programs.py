"""The measured programs, each with its own settings, which name a model server."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.server import AnsweringServer
from benchmarks.timing import print_load

MCP_SERVER = Path(__file__).parents[1] / "tests" / "fakes" / "mcp_stdio_server.py"


@dataclass
class Program:
    """A program and its figures."""

    name: str
    home: Path
    screen: list[str]
    """The command of a full screen."""
    headless: list[str]
    """The command that answers the prompt after it, and exits; all tools may run."""
    environment: dict[str, str] = field(default_factory=dict)
    version: str = ""
    leave: str = "\x03"
    """The key that ends it at an empty prompt; it is pressed until the program ends."""
    figures: dict[str, list[float]] = field(default_factory=dict)
    server: AnsweringServer = field(default_factory=AnsweringServer)
    """The model server in its settings."""
    other_work: Path | None = None
    """Another repository than that in its home."""

    @property
    def work(self) -> Path:
        """The repository that it works in."""
        return self.other_work or self.home / "work"

    def full_environment(self) -> dict[str, str]:
        """Only the program's own variables and the PATH of this process."""
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "COLORTERM": "truecolor",
        } | self.environment  # fmt: skip

    def note(self, name: str, value: float | None) -> None:
        """Add a figure, unless it is None."""
        if value is not None:
            self.figures.setdefault(name, []).append(value)


def programs(
    homes: Path, servers: ExitStack, peers: Path, only: str, *, mcp: bool
) -> list[Program]:
    """The installed programs whose names contain `only`, each with its own home, repository and
    server.

    Args:
        servers: ends the servers.
        mcp: ouro alone, without and with MCP servers.
    """
    found = []
    makers = (ouro, ouro_with_mcp) if mcp else (ouro, codex, claude, vibe, pi)
    for make in (make for make in makers if only in make.__name__):
        home = homes / make.__name__
        (home / "work").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(home / "work")], check=True)
        server = servers.enter_context(AnsweringServer())
        if program := make(home, server.url, peers):
            program.server = server
            ask = [program.screen[0], "--version"]
            done = subprocess.run(
                ask, check=True, env=program.full_environment(), capture_output=True, text=True
            )
            number = re.search(r"\d[\w.]+", done.stdout + done.stderr)
            program.version = number[0] if number else "?"
            found.append(program)
        else:
            print(f"{make.__name__} is not installed in {peers}.")
    return found


def ouro(home: Path, url: str, _peers: Path) -> Program:
    folder = home / ".ouro"
    folder.mkdir()
    models = folder / "models.yaml"
    models.write_text(
        f"default: openai/bench\nmodels:\n  openai/bench: {{api_base: {url}/v1, api_key: k, window:"
        " 100000}\n"
    )
    models.chmod(0o600)
    settings = (
        "tui:\n  theme: dark\n"  # as after the first start
        "limits:\n  max_turns: 10000\n"  # more than the calls of `growth`
    )
    (folder / "config.yaml").write_text(settings)
    command = str(Path(sys.executable).with_name("ouro"))
    return Program(
        "ouro", home, [command], [command, "--mode", "auto", "-p"], {"OURO_HOME": str(folder)}
    )


def ouro_with_mcp(home: Path, url: str, peers: Path) -> Program:
    """ouro with ten approved servers of 20 tools each."""
    program = ouro(home, url, peers)
    given = json.dumps({"count": 20, "tools": [f"tool_{number}" for number in range(20)]})
    server = {"command": sys.executable, "args": [str(MCP_SERVER), given]}
    names = [f"server{number}" for number in range(10)]
    (home / ".ouro" / "mcp.json").write_text(
        json.dumps({"mcpServers": dict.fromkeys(names, server)})
    )
    for name in names:
        test = [*program.screen, "mcp", "test", name]
        subprocess.run(
            test,
            env=program.full_environment(),
            cwd=program.work,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    program.name = "ouro, 200 tools of 10 MCP servers"
    return program


def codex(home: Path, url: str, peers: Path) -> Program | None:
    command = _native(peers, "@openai/codex*/vendor/*/bin/codex")
    if command is None:
        return None
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        'model = "bench"\nmodel_provider = "bench"\ncheck_for_update_on_startup ='
        ' false\n[analytics]\nenabled = false\n[model_providers.bench]\nname = "bench"\nbase_url ='
        f' "{url}/v1"\nwire_api = "responses"\n[projects."{home / "work"}"]\ntrust_level ='
        ' "trusted"\n'
    )
    free = "--dangerously-bypass-approvals-and-sandbox"
    return Program(
        "codex",
        home,
        [command, free],
        [command, "exec", free],
        {"CODEX_HOME": str(home / ".codex")},
    )


def claude(home: Path, url: str, peers: Path) -> Program | None:
    command = _native(peers, "@anthropic-ai/claude-code-*/claude")
    if command is None:
        return None
    work = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    state = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(home / "work"): work},
             "customApiKeyResponses": {"approved": ["k"]}}  # fmt: skip
    (home / ".claude.json").write_text(json.dumps(state))
    started = [command, "--model", "bench", "--allowedTools", "Bash"]
    off = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY")
    keys = dict.fromkeys(off, "1") | {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
    return Program("Claude Code", home, started, [*started, "-p"], keys)


def _native(peers: Path, pattern: str) -> str | None:
    """The native program, without its Node.js wrapper."""
    programs = (path for path in peers.glob(f"node_modules/{pattern}") if os.access(path, os.X_OK))
    return next(map(str, programs), None)


def vibe(home: Path, url: str, peers: Path) -> Program | None:
    binary = peers / "vibe/bin/vibe"
    if not binary.exists():
        return None
    (home / ".vibe").mkdir()
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
    return Program("pi", home, command, [*command, "-p"], {"PI_OFFLINE": "1"}, leave="\x04")


def report(measured: list[Program]) -> None:
    """Print the figures as a Markdown table (medians, lowest and highest in brackets), and clear
    them.
    """
    names = list(dict.fromkeys(name for program in measured for name in program.figures))
    print("\n| program | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for program in measured:
        cells = (_cell(program.figures.get(name, [])) for name in names)
        print(f"| {program.name} {program.version} | " + " | ".join(cells) + " |")
        program.figures = {}
    print_load()


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    digits = 0 if statistics.median(values) >= 20 else 1
    middle, low, high = (
        f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"**{middle}** ({low}–{high})" if len(values) > 1 else f"**{middle}**"
