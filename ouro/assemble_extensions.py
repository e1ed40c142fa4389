"""Find the extensions of a session: commands, skills, agents, hooks, instructions, servers, tools."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ouro import extensions, lsp, mcp
from ouro.agent.project_instructions import FileSkill, ProjectInstructions
from ouro.agent.system_prompt import MORE_INSTRUCTIONS, system_prompt
from ouro.display import Question
from ouro.errors import ConfigError, OuroError, TrustNeeded
from ouro.events import Notice, Reply
from ouro.llm import ModelSource
from ouro.memory.side_calls import ask_and_record
from ouro.messages import Message, assistant, system, user
from ouro.safety import (
    CLAUDE_SETTINGS,
    Confinement,
    TrustStore,
    acting_files,
    child_environment,
)
from ouro.session.session import SessionExtensions
from ouro.session.session_tasks import TurnWatcher
from ouro.session_options import SessionBasis, SessionInputs
from ouro.settings import Settings, SettingsSources
from ouro.settings_sources import project_hooks, project_servers, save_setting, write_setting
from ouro.tools.files_seen import FilesSeen
from ouro.tools.subagent import AgentSpec, RunSubagent, SubagentArgs
from ouro.tools.tool import AnyTool, ToolContext, ToolResult
from ouro.utils.agent_homes import agent_path
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import get_home, tilde
from ouro.utils.text import clean, code_block, cut, escape_invisible, one_line, plural

if TYPE_CHECKING:
    from ouro.commands.action import Action
    from ouro.tools.skill import SkillArgs
    from ouro.utils.json_object import JsonObject

NO_TELEMETRY = "`telemetry.enabled` needs a package: pip install ouro[otel]"
MAX_NOTICES = 2
"""Maximum notices about problems: more become one, because the user sees them at every start."""
MAX_SHOWN = 2_000
"""Maximum characters of an MCP server's request that the user is shown."""
_SAFE_MODE_NOTICE = (
    "Safe mode: no extensions, hooks, MCP servers, instructions, project settings and memory. The"
    " permission rules hold."
)
_question_numbers = itertools.count(1)


def decide_trust(
    store: TrustStore,
    cwd: Path,
    answer: Literal["unknown", "yes", "no"],
    container_files: Sequence[Path] = (),
) -> bool:
    """Returns whether the files of the project that ouro would obey are trusted; True if there are
    none. The answer `yes` is stored for these files as they are now.

    Args:
        answer: the user's answer to the question of trust.
        container_files: the files of the devcontainer, if commands run in it.

    Raises:
        TrustNeeded: they are not trusted, and the user was not asked.
    """
    root = find_root(cwd)
    files = tuple(dict.fromkeys((*acting_files(root, cwd), *container_files)))
    if not files or store.is_trusted(root, files):
        return True
    if answer == "yes":
        store.trust(root, files)
        return True
    if answer == "no":
        return False
    untrusted = store.find_untrusted(root, files)
    summary = extensions.describe_files(root, untrusted)
    raise TrustNeeded(root, untrusted, summary, was_trusted=store.was_trusted(root))


def find_hooks(
    settings: Settings, root: Path, trusts: Callable[[Path], bool], *, trusted: bool
) -> tuple[tuple[extensions.Hook, ...], tuple[str, ...]]:
    """Find the hooks of the user, of plugins and, if it is trusted, of the project. Blocks.

    Args:
        trusts: whether a file of the project is trusted.
        trusted: whether the settings of the project are read.

    Returns:
        The hooks, and a line for each problem.
    """
    # The settings files of Claude Code that are read, and whether one is of the project.
    claude_files: dict[Path, bool] = {}
    if settings.claude_hooks:  # the user's own file needs no trust, but the user's setting
        claude_files[agent_path(str(CLAUDE_SETTINGS[0]))] = False
    for name in CLAUDE_SETTINGS:
        path = root / name
        if path.is_file() and trusts(path):
            claude_files[path] = True
    hooks_of_project = project_hooks(root) if trusted else ()
    hooks, problems = extensions.load_hooks(settings.hooks, hooks_of_project, claude_files)
    return hooks, (*problems, *extensions.check_matchers(hooks, root))


def build_turn_watcher(
    inputs: SessionInputs, mask: Callable[[str], str], session_id: Callable[[], str]
) -> TurnWatcher | None:
    """Build the telemetry of a session; None if it is off, or its package is missing.

    Args:
        mask: removes secrets from texts.
        session_id: returns the id of the session.
    """
    settings = inputs.settings.telemetry
    if not settings.enabled or _lacks_telemetry():  # the latter is reported by `find_extensions`
        return None
    from ouro.session.telemetry import Telemetry, TelemetryExport  # off in most sessions

    environment = child_environment(os.environ, secrets=inputs.catalog.key_values())
    # `child_environment` removes keys, but the collector needs its own, in OTEL_… variables.
    environment |= {name: os.environ[name] for name in os.environ if name.startswith("OTEL_")}
    if settings.endpoint:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = settings.endpoint
    mask_of_sent_texts = mask if settings.texts else None  # None: no texts are sent
    return Telemetry(TelemetryExport(environment), session_id, mask_of_sent_texts)


def _lacks_telemetry() -> bool:
    """Whether a package of OpenTelemetry is missing."""
    from importlib.util import find_spec

    names = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    try:
        return any(find_spec(name) is None for name in names)
    except ImportError:
        return True


class FoundExtensions(msgspec.Struct, frozen=True, eq=False):
    """What extension files and settings add to a session."""

    of_session: SessionExtensions
    agents: tuple[AgentSpec, ...]
    """The kinds of subagents."""
    environment: Mapping[str, str]
    """The variables of hooks, servers and tools from files, without keys."""
    system_prompt: str
    """The system prompt without long-term memory."""
    problems: tuple[str, ...]
    """A line for each file that is not used, or not as it is written."""


def find_extensions(
    basis: SessionBasis, models: ModelSource, confinement: Confinement
) -> FoundExtensions:
    """Read the extensions of the user and, if it is trusted, of the project. Blocks. A problem in
    one of them is a line in the result; the others are read all the same.
    """
    problems: list[str] = []
    if basis.settings.telemetry.enabled and _lacks_telemetry():
        problems.append(NO_TELEMETRY)
    environment = child_environment(os.environ, secrets=basis.inputs.catalog.key_values())

    # Commands, of files, skills and MCP servers.
    host = _build_mcp_host(basis, models, confinement, environment)
    command_files = _find_files(basis, "commands", problems)
    skills = _find_skills(basis, problems)
    servers, server_problems = _find_servers(basis, host)
    commands = _build_command_registry(basis, command_files, skills, servers)
    problems += [*server_problems, *commands.problems()]

    # Output styles, hooks and kinds of subagents. A subagent can bring hooks of its own.
    styles = _find_styles(basis, problems)
    hook_list = _find_hooks(basis, problems)
    agent_files = _find_files(basis, "agents", problems)
    hook_list += [*chain.from_iterable(file.hooks for file in agent_files)]
    hooks = _build_hooks(basis, models, confinement, environment, hook_list)
    problems += _enforce_checks(basis, hooks)
    agents, agent_problems = extensions.load_agents(agent_files)
    problems += agent_problems

    # Instructions, and the system prompt of them.
    instructions = instructions_in(basis, basis.cwd, _skills_for_files(skills))
    prompt = _make_system_prompt(basis, instructions, skills)
    problems += instructions.problems
    if instructions.unused:
        from ouro.utils.shown_notices import new_notices

        problems += new_notices(instructions.unused, is_seen=basis.options.interactive)

    of_session = SessionExtensions(
        commands=commands,
        servers=servers,
        language_servers=_build_language_servers(basis, confinement, environment),
        skills=skills,
        instructions=instructions,
        settings=SettingsSources(
            basis.root if basis.inputs.is_trusted else None, basis.options.settings
        ),
        styles=styles,
        hooks=hooks,
        status_script=_build_status_script(basis, environment),
    )
    return FoundExtensions(of_session, agents, environment, prompt, tuple(problems))


def extension_notices(basis: SessionBasis, problems: Sequence[str]) -> list[str]:
    """The notices about extension files at the start of a session."""
    if basis.options.safe:
        return [_SAFE_MODE_NOTICE]
    summary = f"{len(problems)} problems in extension files: `ouro doctor` lists them."
    notices = list(problems) if len(problems) <= MAX_NOTICES else [summary]
    if basis.inputs.is_trusted:
        return notices
    count = plural(len(acting_files(basis.root, basis.cwd)), "file")
    not_obeyed = f"The project is not trusted: {count} not obeyed. `ouro doctor` lists them."
    return [not_obeyed, *notices]


def _trusts(basis: SessionBasis, path: Path) -> bool:
    """Whether a file of the project is trusted."""
    return basis.inputs.is_trusted and basis.inputs.trust_store.is_trusted(basis.root, [path])


def _find_files(
    basis: SessionBasis, kind: extensions.FileKind, problems: list[str]
) -> list[extensions.ExtensionFile]:
    """Find the extension files of a kind; none with `--safe`. Adds lines about them to `problems`."""
    if basis.options.safe:
        return []
    files, file_problems = extensions.find_files(kind, basis.root, basis.inputs.is_trusted)
    problems += file_problems
    return files


def _find_skills(basis: SessionBasis, problems: list[str]) -> extensions.Skills:
    """Find the skills of the session. Adds to `problems`."""
    settings = basis.settings.skills
    return extensions.Skills(
        _find_files(basis, "skills", problems),
        settings.without,
        settings.prompt_tokens,
        partial(_trusts, basis),
        partial(save_setting, "skills.without"),
    )


def _build_command_registry(
    basis: SessionBasis,
    files: Sequence[extensions.ExtensionFile],
    skills: extensions.Skills,
    servers: mcp.McpServers,
) -> extensions.CommandRegistry:
    """Collect the commands of files, skills and MCP servers. A server is connected at its first call."""
    file_commands = [extensions.command_of(file) for file in files]
    sources = [lambda: file_commands, skills.commands, lambda: prompt_commands(servers)]

    async def connect(server: str) -> None:
        if server in servers.by_name:
            await servers.connect(server)

    find_own_commands = partial(_own_commands, basis.cwd)
    return extensions.CommandRegistry(sources, _reserved_names, connect, find_own_commands)


def _find_servers(basis: SessionBasis, host: mcp.Host) -> tuple[mcp.McpServers, Sequence[str]]:
    """Returns the MCP servers, and a line for each problem of the files that name them."""
    if basis.options.safe:
        return mcp.McpServers(mcp.Registry({}), host), ()
    plugins, problems = extensions.plugin_tables("mcpServers")
    root = basis.root if basis.inputs.is_trusted else None
    try:
        registry = mcp.find_servers(
            {**basis.options.editor.mcp_servers, **basis.settings.mcp.servers},
            root,
            plugins,
            project_servers(root) if root else None,
        )
    except ConfigError as error:
        registry = mcp.Registry({})
        problems.append(f"No MCP servers: {one_line(str(error), 300)}")
    return mcp.McpServers(registry, host), [*problems, *registry.notices]


def _build_language_servers(
    basis: SessionBasis, confinement: Confinement, environment: Mapping[str, str]
) -> lsp.LanguageServers:
    """Build the language servers: the installed ones are found when one is first needed."""
    settings, root, tasks = basis.settings.lsp, basis.root, basis.tasks
    # A server reads the project's settings and may run its programs: it needs the trust of hooks.
    is_used = settings.enabled and basis.inputs.is_trusted

    def find() -> list[lsp.LanguageServerSpec]:
        """Find them when they are first used; none, and a warning, if the settings are wrong."""
        if not is_used:
            return []
        try:
            return lsp.find_language_servers(settings.servers, root, environment.get("PATH", ""))
        except ConfigError as error:
            tasks.warn(f"No language servers: {error.message}")
            return []

    host = lsp.LspHost(
        root=root,
        environment=environment,
        notify=lambda text, level: tasks.emit(Notice(text, level)),
        confine=lambda argv: confinement.wrap(argv, "workspace"),
    )
    return lsp.LanguageServers(find, host)


def instructions_in(
    basis: SessionBasis, cwd: Path, skills: Sequence[FileSkill] = ()
) -> ProjectInstructions:
    """Read the instructions for a folder of this repository, or of a worktree of it. Blocks.

    A file of a worktree is trusted if the same file here is trusted and has the same content.

    Args:
        skills: the skills that are named when a tool uses one of their files.
    """
    root = find_root(cwd)

    def trusts(path: Path) -> bool:
        """Whether a file in the folder is the same as a trusted file of the project."""
        original = basis.root / path.relative_to(root)
        if original != path:  # `path` is in a worktree: it must be a copy of the file here
            is_copy = original.is_file() and original.read_bytes() == path.read_bytes()
            return is_copy and _trusts(basis, original)
        return _trusts(basis, original)

    return ProjectInstructions(cwd, trusts, skills)


def _skills_for_files(skills: extensions.Skills) -> list[FileSkill]:
    """The skills that are offered to the model and name the files that they are for."""
    return [
        FileSkill(
            skill.name, skill.folder / "SKILL.md", skill.patterns, skill.file.source != "project"
        )
        for skill in skills.all()
        if skill.is_offered and skill.patterns
    ]


def _find_hooks(basis: SessionBasis, problems: list[str]) -> list[extensions.Hook]:
    """Find the hooks of the user and of a trusted project; none with `--safe`. Adds to `problems`."""
    inputs = basis.inputs
    if basis.options.safe:
        return []
    trusts = partial(_trusts, basis)
    hooks, hook_problems = find_hooks(
        inputs.settings, basis.root, trusts, trusted=inputs.is_trusted
    )
    problems += hook_problems
    return list(hooks)


def _build_hooks(
    basis: SessionBasis,
    models: ModelSource,
    confinement: Confinement,
    environment: Mapping[str, str],
    hooks: Sequence[extensions.Hook],
) -> extensions.Hooks:
    """Build what runs these hooks. The sandbox confines them if the settings say so."""
    folder_variables = dict.fromkeys(("CLAUDE_PROJECT_DIR", "OURO_PROJECT_DIR"), str(basis.root))

    def confine(argv: Sequence[str]) -> Sequence[str]:
        return confinement.wrap(argv, "workspace") if confinement.settings.project_hooks else argv

    services = extensions.HookServices(
        partial(_ask_for_hook, basis, models), partial(basis.tasks.start, "hooks")
    )
    return extensions.Hooks(
        hooks=hooks,
        checks=extensions.Checks(basis.root),
        cwd=basis.cwd,
        environment={**environment, **folder_variables},
        on_failure=basis.tasks.warn,
        confine=confine,
        services=services,
    )


def _enforce_checks(basis: SessionBasis, hooks: extensions.Hooks) -> Sequence[str]:
    """Enforce the saved checks, but not with `--safe`; returns a line if they cannot be read."""
    if basis.options.safe:
        return ()
    try:
        hooks.enforce_checks()
    except ConfigError as error:
        return (error.message,)
    return ()


async def _ask_for_hook(
    basis: SessionBasis,
    models: ModelSource,
    model: str,
    messages: list[Message],
    schema: Mapping[str, Any],
) -> str:
    """Ask a model the question of a hook that is a prompt; the cost counts in the session. `model`:
    the name in the hook. The model of small tasks is asked if it is empty, or if a program has
    passed its own model.
    """
    hook_models = models.models_for("classify")
    if model and not basis.options.ready_model:
        hook_models = models.models_by_name(
            await asyncio.to_thread(basis.inputs.catalog.resolve, model)
        )
    return await ask_and_record(hook_models, basis.memory, "hook", messages, schema=schema)


def _find_styles(basis: SessionBasis, problems: list[str]) -> extensions.OutputStyles:
    """Find the output styles of the session. Adds to `problems`."""
    save = partial(write_setting, "style")
    files = _find_files(basis, "output-styles", problems)
    styles = extensions.OutputStyles(files, basis.settings.style, save)
    if styles.problem:
        problems.append(styles.problem)
    return styles


def _build_status_script(
    basis: SessionBasis, environment: Mapping[str, str]
) -> extensions.StatusScript | None:
    """Build the user's script of the status line; None without one, and with `--safe`."""
    command = basis.settings.tui.status_command
    if not command or basis.options.safe:
        return None
    return extensions.StatusScript(command, basis.cwd, environment)


def _make_system_prompt(
    basis: SessionBasis, instructions: ProjectInstructions, skills: extensions.Skills
) -> str:
    """The system prompt: instructions, skills, what the options add. `safe` omits the user's files."""
    user_texts = () if basis.options.safe else instructions.user_texts()
    prompt = system_prompt(instructions.project_texts(), user_texts)
    more = basis.options.more_instructions
    addition = f"{MORE_INSTRUCTIONS}\n\n{more}" if more else ""
    return "\n\n".join(filter(None, (prompt, skills.prompt(), addition)))


def skill_tools(
    found_extensions: FoundExtensions, run_subagent: RunSubagent | None = None
) -> list[AnyTool]:
    """The tool `skill`, if there are skills. Without `run_subagent` a skill with `context: fork` is
    read as any other.
    """
    skills, hooks = found_extensions.of_session.skills, found_extensions.of_session.hooks
    if not skills.prompt():
        return []
    from ouro.tools.skill import SkillTool  # not every project has skills

    async def use(args: SkillArgs, ctx: ToolContext) -> ToolResult | str:
        """Use a skill. If it names a kind of subagent, that works on its text; otherwise the model
        reads the text, and the hooks of the skill run from now on.
        """
        skill = skills.find_offered(args.name)
        text = skills.read(args.name, args.file, args.arguments)
        if run_subagent and not args.file and (agent := extensions.agent_of(skill.file)):
            with hooks.run_also(skill.file.hooks):
                order = SubagentArgs(task=skill.name[:100], prompt=text, agent=agent)
                return await run_subagent(order, ctx)
        hooks.add(skill.file.hooks)
        return text

    return [SkillTool(use)]


def lsp_tools(
    found_extensions: FoundExtensions,
    files_seen: FilesSeen,
    restricts_reading: Callable[[Path], bool],
) -> Sequence[AnyTool]:
    """The tool `lsp`, if there is a server for files of this project. Blocks.

    This is decided once: the list of tools stays the same, also when servers start and end.
    """
    servers = found_extensions.of_session.language_servers
    return [lsp.Lsp(servers, files_seen, restricts_reading)] if servers.are_for_project() else ()


def mcp_tools(
    basis: SessionBasis, found_extensions: FoundExtensions, budget: int | None = None
) -> Sequence[AnyTool]:
    """The tools that the MCP servers have now.

    Args:
        budget: tokens for tools of servers; None: that of the settings.
    """
    if budget is None:
        budget = basis.settings.mcp.tool_budget_tokens
    servers = found_extensions.of_session.servers
    if not servers.by_name:
        return ()
    outputs = mcp.Outputs(basis.memory.outputs, basis.mask.mask)
    return mcp.mcp_tools(servers, outputs, budget)


def find_own_tools(
    basis: SessionBasis,
    confinement: Confinement,
    environment: Mapping[str, str],
    taken_names: Collection[str],
    problems: list[str],
) -> Sequence[extensions.OwnTool]:
    """Find the tools of the files in `tools/`, except those with the name of another tool. Adds to
    `problems`. Blocks: a worker describes new files.
    """
    folders = (get_home() / "tools", basis.root / ".ouro" / "tools")
    if basis.options.safe or not any(folder.is_dir() for folder in folders):
        return ()
    settings = basis.settings.shell
    keys = basis.inputs.catalog.key_values()
    user_variables = extensions.variables_of_user(os.environ, settings.tool_env, keys)
    host = extensions.ToolFileHost(
        basis.cwd,
        environment,
        user_environment={**environment, **dict(user_variables)},
        confine=confinement.wrap,
        seconds=settings.timeout_seconds,
    )
    files, file_problems = extensions.find_tool_files(basis.root, partial(_trusts, basis))
    tools, tool_problems = extensions.load_file_tools(files, host)
    problems += [*file_problems, *tool_problems]
    for tool in tools:
        if tool.name in taken_names:
            where = tilde(tool.file.path)
            problems.append(f"{where}: there is another tool `{tool.name}`. Rename yours.")
    return [tool for tool in tools if tool.name not in taken_names]


def _build_mcp_host(
    basis: SessionBasis,
    models: ModelSource,
    confinement: Confinement,
    environment: Mapping[str, str],
) -> mcp.Host:
    """What the MCP servers of a session may ask of ouro."""
    tasks = basis.tasks
    return mcp.Host(
        cwd=basis.cwd,
        environment=environment,
        secrets=basis.inputs.catalog.key_values(),
        notify=lambda text, level: tasks.emit(Notice(text, level)),
        on_question=partial(_answer_server, basis, models),
        has_user=basis.options.interactive,
        confine=lambda argv: confinement.wrap(argv, "workspace"),
    )


async def _answer_server(
    basis: SessionBasis, models: ModelSource, server: str, kind: str, request: JsonObject
) -> JsonObject:
    """Let the user answer a request of an MCP server, or the model if the user agrees.

    Args:
        kind: `sample` for a request to the model; `elicit` for a question to the user.
    """
    try:
        if kind == "sample":
            return await _answer_sampling(basis, models, server, request)
        return await mcp.answer_elicitation(server, request, partial(_ask_about_server, basis))
    except OuroError as error:
        return {"refused": str(error)} if kind == "sample" else {"action": "cancel"}


async def _ask_about_server(basis: SessionBasis, question: Question) -> tuple[str, ...]:
    """Ask the user a question about a server; returns the answers, none if it was dismissed."""
    answer = await basis.tasks.ask(f"mcp:{next(_question_numbers)}", question)
    return answer.answers if isinstance(answer, Reply) else ()


async def _answer_sampling(
    basis: SessionBasis, models: ModelSource, server: str, request: JsonObject
) -> JsonObject:
    """Let a server ask a model, if the user agrees to its request: the one that also writes summaries.
    Returns the answer as `text` with the `model`, or `refused`.
    """
    conversation = "\n\n".join(f"{item['role']}: {item['text']}" for item in request["messages"])
    details = f"{request['system']}\n\n{conversation}".strip()
    question = Question(
        f"The MCP server {server} wants to ask the model. Allow it?",
        ("yes", "no"),
        details=code_block(escape_invisible(cut(details, MAX_SHOWN))),
    )
    if await _ask_about_server(basis, question) != ("yes",):
        return {"refused": "The user refused."}
    messages = [system(request["system"])] if request["system"] else []
    for item in request["messages"]:
        make_message = user if item["role"] == "user" else assistant
        messages.append(make_message(item["text"]))
    small_models = models.models_for("compact")
    text = await ask_and_record(small_models, basis.memory, "mcp", messages)
    return {"text": text, "model": small_models[0].spec.name}


def _reserved_names() -> Collection[str]:
    """The names of ouro's own commands, which no custom command may have."""
    from ouro.commands.all_actions import COMMAND_NAMES  # late: an answer needs no commands

    return COMMAND_NAMES


def _own_commands(cwd: Path) -> list[extensions.CustomCommand]:
    """The actions of ouro that are prompts, as custom commands."""
    from ouro.commands.all_actions import COMMANDS

    return [_make_own_command(action, cwd) for action in COMMANDS if action.place == "prompt"]


def _make_own_command(action: Action, cwd: Path) -> extensions.CustomCommand:
    """One of ouro's actions that are prompts, as a custom command."""

    async def prompt(typed: str) -> extensions.CommandPrompt:
        return extensions.CommandPrompt((await action.function(cwd, typed),))

    return extensions.CustomCommand(action.name, action.help, action.argument, "ouro", prompt)


def prompt_commands(servers: mcp.McpServers) -> list[extensions.CustomCommand]:
    """The prompts of all connected servers as commands: `/github:review`."""
    commands: list[extensions.CustomCommand] = []
    for server in servers.by_name.values():
        if server.state == "ready":
            commands += [_prompt_command(server, prompt) for prompt in server.listing.prompts]
    return commands


def _prompt_command(server: mcp.McpServer, prompt: mcp.ServerPrompt) -> extensions.CustomCommand:
    """A prompt of an MCP server as a custom command."""

    async def text(typed: str) -> extensions.CommandPrompt:
        """Ask the server for the prompt, with what the user typed after the name."""
        outcome = await server.prompt(prompt.name, mcp.parse_prompt_arguments(prompt, typed))
        return extensions.CommandPrompt((clean(outcome.text),), is_own=False)

    hint = " ".join(f"[{one_line(item.name, 30)}]" for item in prompt.arguments)
    # A name with spaces or other signs could not be typed as one word.
    typed_name = re.sub(r"[^\w:-]+", "_", one_line(prompt.name, 60)).strip("_")
    name = f"{server.name}:{typed_name}"
    return extensions.CustomCommand(
        name, one_line(prompt.description, 100), hint, f"MCP server {server.name}", text
    )
