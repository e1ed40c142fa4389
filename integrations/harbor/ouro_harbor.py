"""ouro as an agent of Harbor: `harbor run --agent ouro_harbor:Ouro`, with this folder in PYTHONPATH."""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import Annotated, Any, override

from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import BaseInstalledAgent, with_prompt_template
from harbor.agents.options import Cli, InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trial.paths import EnvironmentPaths
from ouro_trajectory import read_events, result_of, trajectory
from pydantic import Field

_CHECKOUT = Path(__file__).resolve().parents[2]
_TOOLS = "/installed-agent/ouro"
_PATH = f'export PATH="{_TOOLS}/bin:$HOME/.local/bin:$PATH"'
_HAS_ALL = (
    "git --version && python3 -c 'import ensurepip, venv'"
    " && test -s /etc/ssl/certs/ca-certificates.crt"
)
"""Whether the image has what the installation needs."""
_EVENTS = "ouro.jsonl"
_LIMIT = 4
"""The exit code of a run that reached `--max-turns` or `--max-cost`: its work is graded."""
_KEYS = (
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "GEMINI_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "GROQ_API_KEY",
    "XAI_API_KEY",
)


class OuroOptions(InstalledAgentOptions):
    package: str = Field(
        default=str(_CHECKOUT),
        description="What is installed: a checkout, a wheel, or a requirement for uv.",
    )
    models_file: str | None = Field(
        default=None, description="A models.yaml for the container; keys by api_key_env."
    )
    max_turns: Annotated[int | None, Cli("--max-turns")] = Field(
        default=None, description="Model calls of one task."
    )
    max_cost: Annotated[float | None, Cli("--max-cost")] = Field(
        default=None, description="Dollars of one task."
    )
    keys: str = Field(
        default="", description="Names of further variables that ouro gets, with commas."
    )


class Ouro(BaseInstalledAgent):
    """Installs ouro into the container, runs it headless, and exports its trajectory and cost."""

    capabilities = AgentCapabilities(atif=True)
    options_model = OuroOptions
    options: OuroOptions

    @staticmethod
    @override
    def name() -> str:
        return "ouro"

    @override
    def get_version_command(self) -> str | None:
        return f"{_PATH}; ouro --version"

    @override
    def parse_version(self, stdout: str) -> str:
        return stdout.strip().removeprefix("ouro").strip()

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        if await self.is_requested_version_installed(environment):
            return
        # Harbor installs some packages again each time, which a folder on this machine must not do.
        if (await environment.exec(command=_HAS_ALL, user="root")).return_code:
            needed = ("git", "ca_certificates", "python3", "python_pip", "python_venv")
            await self.ensure_system_dependencies(environment, needed)
        package = await self._upload_package(environment)
        # uv brings a Python that is new enough where the image has an old one.
        steps = (
            f"python3 -m venv {_TOOLS}/uv",
            f"{_TOOLS}/uv/bin/pip install -q uv",
            f"export UV_TOOL_DIR={_TOOLS}/tools UV_TOOL_BIN_DIR={_TOOLS}/bin",
            f"{_TOOLS}/uv/bin/uv tool install -q --python '>=3.11' {shlex.quote(package)}",
            f"{_TOOLS}/bin/ouro --version",
        )
        await self.exec_as_root(environment, command=" && ".join(steps))

    async def _upload_package(self, environment: BaseEnvironment) -> str:
        """The package as uv is told: a file or folder of this machine is uploaded."""
        source = Path(self.options.package).expanduser()
        if source.is_file():
            target = f"/installed-agent/{source.name}"
            await environment.upload_file(source, target)
            return target
        if not (source / "pyproject.toml").is_file():
            return self.options.package
        target = "/installed-agent/source"
        for name in ("ouro", "docs"):
            await environment.upload_dir(source / name, f"{target}/{name}")
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            await environment.upload_file(source / name, f"{target}/{name}")
        return target

    @override
    async def configure(self, environment: BaseEnvironment) -> None:
        if self.options.models_file is None:
            return
        await self.exec_as_agent(environment, command=f"mkdir -p {self._home}")
        source = Path(self.options.models_file).expanduser()
        await environment.upload_file(source, f"{self._home}/models.yaml")

    @property
    def _home(self) -> str:
        return (EnvironmentPaths.agent_dir / "ouro-home").as_posix()

    @override
    @with_prompt_template
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        prompt = (EnvironmentPaths.agent_dir / "instruction.md").as_posix()
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / "instruction.md"
            local.write_text(instruction)
            await environment.upload_file(local, prompt)
        # The container is the sandbox; nothing is remembered, and the task's folder is not obeyed.
        words = ["ouro", "--output", "stream-json", "--mode", "auto", "--no-trust", "--no-memory"]
        words.append("--no-sandbox")
        if self.model_name:
            words += ["--model", self.model_name]
        events = (EnvironmentPaths.agent_dir / _EVENTS).as_posix()
        asked = f'{shlex.join(words)} {self.build_cli_flags()} -p "$(cat {prompt})"'
        command = f"{_PATH}; {asked} > {events} || [ $? = {_LIMIT} ]"
        await self.exec_as_agent(environment, command=command, env=self._variables())

    def _variables(self) -> dict[str, str]:
        named = [name.strip() for name in self.options.keys.split(",") if name.strip()]
        found = {name: self._get_env(name) for name in (*_KEYS, *named)}
        own = {"OURO_HOME": self._home, "OURO_SESSIONS_TITLES": "false"}
        return {**{name: value for name, value in found.items() if value}, **own}

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        path = self.logs_dir / _EVENTS
        if not path.is_file():
            return
        events = read_events(path.read_text("utf-8", "replace").splitlines())
        found = trajectory(events, self.version() or "unknown")
        if found is not None:
            text = json.dumps(found, indent=2, ensure_ascii=False)
            (self.logs_dir / "trajectory.json").write_text(text)
        result = result_of(events)
        usage: dict[str, Any] = dict(result.get("usage") or {})
        context.n_input_tokens = usage.get("input")
        context.n_cache_tokens = usage.get("cached")
        context.n_output_tokens = usage.get("output")
        context.cost_usd = usage.get("cost")
        context.metadata = {"outcome": result.get("outcome"), "turns": result.get("turns")}
