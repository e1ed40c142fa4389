"""The extensions of a session, constructed: commands, skills, agents, hooks, instructions and MCP
servers.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ouro import extensions, lsp, mcp
from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.system_prompt import MORE_INSTRUCTIONS, system_prompt
from ouro.display import Question
from ouro.errors import ConfigError, OuroError, TrustNeeded
from ouro.events import Notice, Reply
from ouro.llm import ModelSource
from ouro.memory.manager import MemoryManager
from ouro.memory.side_calls import ask_and_record, ask_in_background
from ouro.messages import Message, Usage, assistant, system, user
from ouro.safety import (
    CLAUDE_SETTINGS,
    Confinement,
    Permissions,
    SecretMask,
    TrustStore,
    acting_files,
    child_environment,
)
from ouro.session.session import SessionExtensions
from ouro.session.session_tasks import SessionTasks, TurnWatcher
from ouro.session_options import SessionInputs
from ouro.settings import Settings, SettingsSources
from ouro.settings_sources import project_hooks, project_servers, save_setting, write_setting
from ouro.tools.files_seen import FilesSeen
from ouro.tools.skill import SkillArgs, SkillTool
from ouro.tools.subagent import AgentSpec, RunSubagent, SubagentArgs
from ouro.tools.tool import AnyTool, ToolContext, ToolResult
from ouro.utils.git import find_root
from ouro.utils.runtime import get_home, tilde
from ouro.utils.text import clean, cut, escaped, one_line, plural
from ouro.utils.worker import JsonObject

if TYPE_CHECKING:
    from ouro.commands.action import Action
    from ouro.llm import ProviderSearch

SEARCH_VARIABLES = (
    "BRAVE_API_KEY",
    "BRAVE_SEARCH_API_KEY",
    "EXA_API_KEY",
    "TAVILY_API_KEY",
    "KAGI_API_KEY",
    "SEARXNG_URL",
)
"""The keys and addresses of `web_search`."""
NO_TELEMETRY = "`telemetry.enabled` needs a package: pip install ouro[otel]"
MAX_NOTICES = 2
"""More problems than this become one notice, because the user sees them at every start."""
MAX_SHOWN = 2_000
SAFE = (
    "Safe mode: no extensions, hooks, MCP servers, instructions, project settings and memory. The"
    " permission rules hold."
)
_numbers = itertools.count(1)


def is_trusted(store: TrustStore, cwd: Path, answer: Literal["unknown", "yes", "no"]) -> bool:
    """Whether the files of the project that ouro would obey are trusted; `answer` is the user's
    answer.

    Raises:
        TrustNeeded: they are not, and the user was not asked.
    """
    root = find_root(cwd)
    files = acting_files(root, cwd)
    if not files or store.is_trusted(root, files):
        return True
    if answer == "yes":
        store.trust(root, files)
        return True
    if answer == "no":
        return False
    untrusted = store.untrusted(root, files)
    raise TrustNeeded(root, untrusted, extensions.describe_files(root, untrusted))


def find_hooks(
    settings: Settings, root: Path, trusts: Callable[[Path], bool], *, trusted: bool
) -> tuple[tuple[extensions.Hook, ...], tuple[str, ...]]:
    """The hooks of the user, of plugins and, if it is trusted, of the project, and a line for each
    problem. Blocks.
    """
    claude = {Path.home() / CLAUDE_SETTINGS[0]: False} if settings.claude_hooks else {}
    claude |= {
        path: True for name in CLAUDE_SETTINGS if (path := root / name).is_file() and trusts(path)
    }
    return extensions.load_hooks(settings.hooks, project_hooks(root) if trusted else (), claude)


def turn_watcher(
    inputs: SessionInputs, mask: Callable[[str], str], session_id: Callable[[], str]
) -> TurnWatcher | None:
    """The telemetry of a session; None if it is off, or its package is missing."""
    settings = inputs.settings.telemetry
    if not settings.enabled or _lacks_telemetry():
        return None
    from ouro.session.telemetry import Telemetry, TelemetryExport  # off in most sessions

    environment = child_environment(os.environ, secrets=inputs.catalog.key_values())
    # Headers for a collector hold its key.
    environment |= {name: os.environ[name] for name in os.environ if name.startswith("OTEL_")}
    if settings.endpoint:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = settings.endpoint
    return Telemetry(TelemetryExport(environment), session_id, mask if settings.texts else None)


def _lacks_telemetry() -> bool:
    from importlib.util import find_spec

    names = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    try:
        return any(find_spec(name) is None for name in names)
    except ImportError:
        return True


class ExtensionBuilder(msgspec.Struct, dict=True):
    """Constructs what extension files add, each object once, when it is first needed."""

    inputs: SessionInputs
    root: Path
    transcript: MemoryManager
    tasks: SessionTasks
    mask: SecretMask
    models: Callable[[], ModelSource]
    confinement: Callable[[], Confinement]

    def __post_init__(self) -> None:
        self.problems: list[str] = []
        if self.inputs.settings.telemetry.enabled and _lacks_telemetry():
            self.problems.append(NO_TELEMETRY)
        self.own_tools: Sequence[extensions.OwnTool] = ()

    @cached_property
    def environment(self) -> dict[str, str]:
        """The environment variables of hooks and MCP servers, without keys."""
        return child_environment(os.environ, secrets=self.inputs.catalog.key_values())

    @cached_property
    def skills(self) -> extensions.Skills:
        """Blocks: reads files, as `commands` does."""
        settings, trusts = self.inputs.settings.skills, self._trusts
        save = partial(save_setting, "skills.without")
        return extensions.Skills(
            self._files("skills"), settings.without, settings.prompt_tokens, trusts, save
        )

    def tools(self, run_subagent: RunSubagent | None = None) -> list[AnyTool]:
        """The tools that extensions need; without `run_subagent` every skill is read, also one with
        `context: fork`.
        """

        async def use(args: SkillArgs, ctx: ToolContext) -> ToolResult | str:
            skill, text = (
                self.skills.offered(args.name),
                self.skills.read(args.name, args.file, args.arguments),
            )
            if run_subagent and not args.file and (agent := extensions.agent_of(skill.file)):
                with self.hooks.added(skill.file.hooks):
                    return await run_subagent(
                        SubagentArgs(task=skill.name[:100], prompt=text, agent=agent), ctx
                    )
            self.hooks.add(skill.file.hooks)
            return text

        skills = [SkillTool(use)] if self.skills.prompt() else []
        outputs = mcp.Outputs(self.transcript.outputs, self.mask.mask)
        return [
            *skills,
            *self.web_tools(),
            *mcp.mcp_tools(self.servers, outputs, self.inputs.settings.mcp.tool_budget_tokens),
        ]

    @cached_property
    def commands(self) -> extensions.CommandRegistry:
        """Reads the files of the user and, if it is trusted, of the project. Blocks."""
        found = [extensions.command_of(file) for file in self._files("commands")]
        sources = [lambda: found, self.skills.commands, lambda: prompt_commands(self.servers)]
        own = partial(_own_commands, self.inputs.options.cwd)
        registry = extensions.CommandRegistry(sources, _reserved_names, self._connect, own)
        self.problems += registry.problems()
        return registry

    @cached_property
    def servers(self) -> mcp.McpServers:
        """The MCP servers. Blocks: reads the files that name them."""
        if self.inputs.options.safe:
            return mcp.McpServers(mcp.Registry({}), self._mcp_host())
        options, own = self.inputs.options, self.inputs.settings.mcp.servers
        plugins = extensions.plugin_tables("mcpServers", self.problems)
        try:
            root = self.root if self.inputs.trusted else None
            registry = mcp.find_servers(
                {**options.editor.mcp_servers, **own},
                root,
                plugins,
                project_servers(root) if root else None,
            )
        except ConfigError as error:
            registry = mcp.Registry({})
            self.problems.append(f"No MCP servers: {one_line(str(error), 300)}")
        self.problems += registry.notices
        return mcp.McpServers(registry, self._mcp_host())

    def _mcp_host(self) -> mcp.Host:
        options = self.inputs.options
        return mcp.Host(
            options.cwd,
            self.environment,
            self.inputs.catalog.key_values(),
            lambda text, level: self.tasks.emit(Notice(text, level)),
            self._answer,
            options.interactive,
            lambda argv: self.confinement().wrap(argv, "workspace"),
        )

    @cached_property
    def language_servers(self) -> lsp.LanguageServers:
        """The language servers: those that are installed, found when they are first needed."""
        settings, root = self.inputs.settings.lsp, self.root
        # A server reads the project's settings and may run its programs: it is trusted as hooks.
        is_used = settings.enabled and self.inputs.trusted
        search_path = self.environment.get("PATH", "")

        def find() -> list[lsp.LanguageServerSpec]:
            if not is_used:
                return []
            try:
                return lsp.find_language_servers(settings.servers, root, search_path)
            except ConfigError as error:
                self.tasks.warn(f"No language servers: {error.message}")
                return []

        host = lsp.LspHost(
            root,
            self.environment,
            lambda text, level: self.tasks.emit(Notice(text, level)),
            lambda argv: self.confinement().wrap(argv, "workspace"),
        )
        return lsp.LanguageServers(find, host)

    def web_tools(self) -> Sequence[AnyTool]:
        """The tool `web_search`, if there is a backend for it."""
        settings = self.inputs.settings.web
        if not settings.search and not any(map(os.environ.get, SEARCH_VARIABLES)):
            return ()
        # Imported late: most sessions have no backend.
        from ouro.tools.web_search import choose_search

        try:
            if settings.search in ("model", "ddgs"):
                return [self._search_without_key(settings.search)]
            tool = choose_search(settings.search, settings.search_url, os.environ)
        except ConfigError as error:
            self.problems.append(error.message)
            return ()
        return [tool] if tool else ()

    def _search_without_key(self, name: str) -> AnyTool:
        from ouro.llm import make_provider_search
        from ouro.tools.model_search import DdgsSearch, ModelSearch

        def find() -> ProviderSearch:
            model = self.models().current()[0]
            return make_provider_search(model, *self.inputs.catalog.route(model.spec.name))

        def note_cost(model: str, usage: Usage | None) -> None:
            self.transcript.note_cost("search", model, usage)

        return DdgsSearch() if name == "ddgs" else ModelSearch(find, note_cost)

    def file_tools(
        self, taken: Collection[str], permissions: Permissions
    ) -> Sequence[extensions.OwnTool]:
        """The tools of the files in `tools/`, but those with the name of another tool. Blocks: files
        that are new are described by a worker.
        """
        folders = (get_home() / "tools", self.root / ".ouro" / "tools")
        if self.inputs.options.safe or not any(folder.is_dir() for folder in folders):
            return ()
        files = extensions.find_tool_files(self.root, self._trusts, self.problems)
        found: list[extensions.OwnTool] = []
        for tool in extensions.ToolFiles(files, self._tool_file_host(), self.problems).tools:
            if tool.name in taken:
                where = tilde(tool.file.path)
                self.problems.append(f"{where}: there is another tool `{tool.name}`. Rename yours.")
                continue
            if tool.asks:
                permissions.remember(tool.name, "ask", save=False)
            found.append(tool)
        self.own_tools = found
        return found

    def _tool_file_host(self) -> extensions.ToolFileHost:
        settings = self.inputs.settings.shell
        keys = self.inputs.catalog.key_values()
        added = extensions.variables_of_user(os.environ, settings.tool_env, keys)
        return extensions.ToolFileHost(
            self.inputs.options.cwd,
            self.environment,
            {**self.environment, **dict(added)},
            lambda argv, limits: self.confinement().wrap(argv, limits),
            settings.timeout_seconds,
        )

    def lsp_tools(self, seen: FilesSeen, keeps_back: Callable[[Path], bool]) -> Sequence[AnyTool]:
        """The tool `lsp`, if there is a server for files of this project. Blocks.

        It is decided once: the list of tools stays the same, also when servers start and end.
        """
        servers = self.language_servers
        return [lsp.Lsp(servers, seen, keeps_back)] if servers.are_for_project() else ()

    @cached_property
    def instructions(self) -> ProjectInstructions:
        return self.instructions_in(self.inputs.options.cwd)

    def instructions_in(self, cwd: Path) -> ProjectInstructions:
        """The instructions for a folder of this repository, or of a worktree of it. Blocks.

        A file of a worktree is trusted if the same file here is trusted and has the same content.
        """
        root = find_root(cwd)

        def trusts(path: Path) -> bool:
            own = self.root / path.relative_to(root)
            is_same = own == path or (own.is_file() and own.read_bytes() == path.read_bytes())
            return is_same and self._trusts(own)

        return ProjectInstructions(cwd, trusts)

    @cached_property
    def hooks(self) -> extensions.Hooks:
        """The hooks of the user and, if it is trusted, of the project, which are confined. Blocks.

        In safe mode there is none: no hook, and no check.
        """
        inputs, confinement = self.inputs, self.confinement()
        is_safe = inputs.options.safe
        found, problems = (
            ((), ())
            if is_safe
            else find_hooks(inputs.settings, self.root, self._trusts, trusted=inputs.trusted)
        )
        self.problems += problems
        found += tuple(chain.from_iterable(file.hooks for file in self._agent_files))
        environment = self.environment | dict.fromkeys(
            ("CLAUDE_PROJECT_DIR", "OURO_PROJECT_DIR"), str(self.root)
        )
        confines = confinement.settings.project_hooks
        confine = (
            (lambda argv: confinement.wrap(argv, "workspace")) if confines else tuple[str, ...]
        )
        hooks = extensions.Hooks(
            found,
            extensions.Checks(self.root),
            inputs.options.cwd,
            environment,
            self.tasks.warn,
            confine,
            extensions.HookServices(self._ask_for_hook, partial(self.tasks.start, "hooks")),
        )
        try:
            if not is_safe:
                hooks.change_checks(lambda _checks: None)
        except ConfigError as error:
            self.problems.append(error.message)
        return hooks

    @cached_property
    def agents(self) -> tuple[AgentSpec, ...]:
        """The kinds of subagents. Blocks: reads files, as `commands` does."""
        specs, problems = extensions.load_agents(self._agent_files)
        self.problems += problems
        return specs

    @cached_property
    def _agent_files(self) -> list[extensions.ExtensionFile]:
        return self._files("agents")

    @cached_property
    def styles(self) -> extensions.OutputStyles:
        """The output styles. Blocks: reads files, as `commands` does."""
        save = partial(write_setting, "style")
        styles = extensions.OutputStyles(
            self._files("output-styles"), self.inputs.settings.style, save
        )
        if styles.problem:
            self.problems.append(styles.problem)
        return styles

    @cached_property
    def _status_script(self) -> extensions.StatusScript | None:
        command = self.inputs.settings.tui.status_command
        if not command or self.inputs.options.safe:
            return None
        return extensions.StatusScript(command, self.inputs.options.cwd, self.environment)

    @cached_property
    def system_prompt(self) -> str:
        """The system prompt without long-term memory. Blocks."""
        found = self.instructions
        users = () if self.inputs.options.safe else found.of_user()
        prompt = system_prompt(found.of_project(), users)
        self.problems += found.problems
        more = self.inputs.options.more_instructions
        added = f"{MORE_INSTRUCTIONS}\n\n{more}" if more else ""
        return "\n\n".join(filter(None, (prompt, self.skills.prompt(), added)))

    def found(self) -> SessionExtensions:
        settings = SettingsSources(
            self.root if self.inputs.trusted else None, self.inputs.options.settings
        )
        return SessionExtensions(
            self.commands,
            self.servers,
            self.language_servers,
            self.skills,
            self.instructions,
            settings,
            self.styles,
            self._status_script,
        )

    async def _connect(self, server: str) -> None:
        if server in self.servers.servers:
            await self.servers.ready(server)

    def notices(self) -> list[str]:
        """The notices about extension files at the start of a session."""
        if self.inputs.options.safe:
            return [SAFE]
        many = f"{len(self.problems)} problems in extension files: `ouro doctor` lists them."
        notices = self.problems if len(self.problems) <= MAX_NOTICES else [many]
        if self.inputs.trusted:
            return notices
        count = plural(len(acting_files(self.root, self.inputs.options.cwd)), "file")
        return [
            f"The project is not trusted: {count} not obeyed. `ouro doctor` lists them.",
            *notices,
        ]

    async def _answer(self, server: str, kind: str, about: JsonObject) -> JsonObject:
        """The answer to a question of an MCP server: from the user, or from the model if the user
        agrees.
        """
        try:
            return await (
                self._sample(server, about)
                if kind == "sample"
                else mcp.answer_elicitation(server, about, self._ask)
            )
        except OuroError as error:
            return {"refused": str(error)} if kind == "sample" else {"action": "cancel"}

    async def _ask(self, question: Question) -> tuple[str, ...]:
        answer = await self.tasks.ask(f"mcp:{next(_numbers)}", question)
        return answer.answers if isinstance(answer, Reply) else ()

    async def _sample(self, server: str, about: JsonObject) -> JsonObject:
        """Let a server ask the model, if the user agrees to the question."""
        asked = "\n\n".join(f"{item['role']}: {item['text']}" for item in about["messages"])
        details = f"{about['system']}\n\n{asked}".strip()
        question = Question(
            f"The MCP server {server} wants to ask the model. Allow it?",
            ("yes", "no"),
            details=f"```\n{escaped(cut(details, MAX_SHOWN))}\n```",
        )
        if await self._ask(question) != ("yes",):
            return {"refused": "The user refused."}
        models = self.models()
        messages = [system(about["system"])] if about["system"] else []
        messages += [
            (user if item["role"] == "user" else assistant)(item["text"])
            for item in about["messages"]
        ]
        text = await ask_in_background(models, self.transcript, "compact", "mcp")(messages)
        return {"text": text, "model": models.current()[0].spec.name}

    async def _ask_for_hook(
        self, model: str, messages: list[Message], schema: Mapping[str, Any]
    ) -> str:
        """Ask the model of a hook with a prompt; its cost counts in the session."""
        source = self.models()
        usual = source.role("classify")
        if model and not self.inputs.options.ready_model:
            usual = source.named(await asyncio.to_thread(self.inputs.catalog.resolve, model))
        return await ask_and_record(usual, self.transcript, "hook", messages, schema=schema)

    def _trusts(self, path: Path) -> bool:
        return self.inputs.trusted and self.inputs.trust.is_trusted(self.root, [path])

    def _files(self, kind: extensions.FileKind) -> list[extensions.ExtensionFile]:
        if self.inputs.options.safe:
            return []
        files, problems = extensions.find_files(kind, self.root, self.inputs.trusted)
        self.problems += problems
        return files


def _reserved_names() -> Collection[str]:
    from ouro.commands.builtin import COMMAND_NAMES  # imported late: an answer needs no commands

    return COMMAND_NAMES


def _own_commands(cwd: Path) -> list[extensions.CustomCommand]:
    from ouro.commands.builtin import COMMANDS

    return [_own_command(action, cwd) for action in COMMANDS if action.place == "prompt"]


def _own_command(action: Action, cwd: Path) -> extensions.CustomCommand:
    async def prompt(typed: str) -> extensions.CommandPrompt:
        return extensions.CommandPrompt((await action.function(cwd, typed),))

    return extensions.CustomCommand(action.name, action.help, action.argument, "ouro", prompt)


def prompt_commands(servers: mcp.McpServers) -> list[extensions.CustomCommand]:
    """The prompts of all connected servers as commands: `/github:review`."""
    found: list[extensions.CustomCommand] = []
    for server in servers.servers.values():
        if server.state == "ready":
            found += [_prompt_command(server, prompt) for prompt in server.listing.prompts]
    return found


def _prompt_command(server: mcp.McpServer, prompt: mcp.ServerPrompt) -> extensions.CustomCommand:
    async def text(typed: str) -> extensions.CommandPrompt:
        outcome = await server.prompt(prompt.name, mcp.parse_prompt_arguments(prompt, typed))
        return extensions.CommandPrompt((clean(outcome.text),), is_own=False)

    hint = " ".join(f"[{one_line(item.name, 30)}]" for item in prompt.arguments)
    name = f"{server.name}:{one_line(prompt.name, 60)}"
    return extensions.CustomCommand(
        name, one_line(prompt.description, 100), hint, f"MCP server {server.name}", text
    )
