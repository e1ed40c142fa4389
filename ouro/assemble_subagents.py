"""Build the subagents of a session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.agent.compactor import Compactor
from ouro.agent.environment import MODE_NOTES_OF_SUBAGENTS, Environment
from ouro.agent.loop import BeforeCall, LoopAgent, TurnBounds
from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.subagents import ChildAgent, Subagents, SubagentServices
from ouro.agent.system_prompt import prompt_message, system_prompt
from ouro.agent.tool_runner import AskUser, ToolRunner
from ouro.assemble_extensions import instructions_in, lsp_tools, mcp_tools, skill_tools
from ouro.assemble_tools import (
    AgentServices,
    build_confinement,
    build_files_seen,
    build_search,
    build_shell,
    build_workspace,
    web_tools,
)
from ouro.display import Question
from ouro.errors import NoModelError, ToolError, UsageError
from ouro.extensions import own_rule
from ouro.llm import Model
from ouro.memory.backend import MemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_folders import SUBAGENTS
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.safety import Confinement, Permissions
from ouro.session.session_hooks import ToolEvents
from ouro.tools.builtin import builtin_tools
from ouro.tools.code_checks import describe_late_errors
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.subagent import AgentSpec, SubagentArgs
from ouro.tools.todo import TodoPlan
from ouro.tools.tool import AnyTool, ToolContext
from ouro.utils.ouro_paths import tilde

if TYPE_CHECKING:
    from ouro.extensions import OwnTool

CHEAP = "cheap"
"""The `model` of a kind of subagent that wants a cheap model."""
_NOT_FOR_CHILDREN = ("ask_user", "subagent")
"""Tools that a subagent does not have: it starts no other subagents (E6), and asks no questions."""
_NO_USER_PROMPT = "You work without a user who could answer you. Only your last message is read."


def build_subagents(
    shared: AgentServices, own_tools: Sequence[OwnTool], on_report: Callable[[], None]
) -> Subagents:
    """Build what starts the subagents of a session.

    Args:
        own_tools: the tools of the files in `tools/`.
        on_report: called when the report of a background subagent waits for the model.
    """
    basis, memory = shared.basis, shared.basis.memory

    def make_store() -> MemoryStore:
        """Make the store of their transcripts: beside that of the session, or only in memory if the
        session is not saved.
        """
        if basis.options.ephemeral or memory.read_only:
            # Imported late: few sessions are only in memory.
            from ouro.memory.ephemeral_backend import DictMemoryStore

            return DictMemoryStore()
        return YamlFileMemoryStore(memory.outputs.parent / SUBAGENTS, basis.mask.mask)

    # One set for all subagents, so that a notice about a kind is shown once.
    reported_kinds = set[str]()
    services = SubagentServices(
        make=partial(_make_child, shared, own_tools, reported_kinds),
        make_store=make_store,
        memory=memory,
        ask_user=shared.hooks.with_notifications(basis.tasks.ask_user),
        channel=basis.tasks,
        check_budget=shared.budget.check,
        cwd=basis.cwd,
        continues_after_turn=basis.options.interactive,
        on_report=on_report,
    )
    return Subagents(shared.extensions.agents, services, basis.settings.subagents)


async def check_by_subagent(subagents: Subagents, kind: str, task: str) -> str:
    """Run the subagent of a hook, and return its report.

    Args:
        kind: the kind of subagent, such as `reviewer`.

    Raises:
        OuroError: there is no such kind, it may change files, or it did not finish.
    """
    spec = subagents.specs.get(kind)
    if spec is not None and spec.mode != "plan":
        raise UsageError(
            f"the agent `{kind}` may change files: that of a hook only reads (`mode: plan`)"
        )
    order = SubagentArgs(task="check of a hook", prompt=task, agent=kind)
    result = await subagents.run(order, ToolContext(lambda _output: None, _no_answers))
    if result.failed:
        raise UsageError(result.text)
    return result.text


async def _no_answers(_question: Question) -> tuple[str, ...]:
    """Answer no question: a hook has no user."""
    return ()


def _make_child(
    shared: AgentServices,
    own_tools: Sequence[OwnTool],
    reported: set[str],
    child_id: str,
    spec: AgentSpec,
    memory: MemoryManager,
    cwd: Path,
    ask_user: AskUser,
    before_call: BeforeCall,
) -> ChildAgent:
    """Build what a subagent runs on. Blocks. `reported` as for `_choose_models`. Raises ToolError: there
    is no skill, or none of the tools, that its kind names.
    """
    basis, settings = shared.basis, shared.basis.settings
    confinement, permissions = _limit_child(shared, spec, cwd)
    jobs = ShellJobs(basis.memory.outputs, basis.mask.mask)
    builtin = _build_tools(shared, cwd, jobs, confinement, permissions, spec)
    file_tools = [tool.in_folder(cwd, confinement.wrap) for tool in own_tools]
    tools = select_tools(spec, {tool.name: tool for tool in (*builtin, *file_tools)})
    _require_tools(spec, tools)
    runner = ToolRunner(
        tools,
        permissions,
        ask_user,
        changing=shared.changing,
        after_tool=None,  # only the session records its tool calls in long-term memory
        hooks=ToolEvents(shared.hooks, cwd, child_id),
        judge=shared.judge,
    )
    models, instructions = _choose_models(spec, shared, reported), instructions_in(basis, cwd)
    prompt = prompt_message(_make_prompt(spec, instructions, shared, has_skills="skill" in tools))
    container_facts = {"Commands": confinement.describe_container()}
    notes = MODE_NOTES_OF_SUBAGENTS
    environment = Environment(cwd, lambda: permissions.mode, lambda: container_facts, None, notes)
    compactor = Compactor(
        memory=memory,
        models=models,
        summarisers=models,
        system_prompt=prompt,
        tools=runner,
        settings=settings.compaction,
        environment=environment.whole,
        on_compacted=instructions.clear,
    )
    agent = _build_loop(shared, compactor, instructions, before_call, cwd)

    async def close() -> None:
        await jobs.close()
        if confinement is not shared.confinement:  # the session closes its own
            confinement.close()

    async def context(task: str) -> str:
        texts = (await environment.whole(), await shared.session_memory.for_subagent(task))
        return "\n\n".join(filter(None, texts))

    async def why_not_done(is_continued: bool) -> str:
        return await shared.hooks.find_reason_to_continue(is_continued, child_id)

    return ChildAgent(agent, context, why_not_done, close)


def _build_loop(
    shared: AgentServices,
    compactor: Compactor,
    instructions: ProjectInstructions,
    before_call: BeforeCall,
    cwd: Path,
) -> LoopAgent:
    """Build the loop of a subagent, with the models and tools of its compactor."""
    servers = shared.extensions.of_session.language_servers
    return LoopAgent(
        memory=compactor.memory,
        models=compactor.models,
        system_prompt=compactor.system_prompt,
        tools=compactor.tools,
        compactor=compactor,
        steering=list,  # nobody sends a message during its turn
        after_tools=partial(_instructions_for_paths, instructions),
        before_call=before_call,
        late_errors=partial(describe_late_errors, servers),
        bounds=TurnBounds(shared.basis.settings.limits, cwd),
    )


async def _instructions_for_paths(
    instructions: ProjectInstructions, paths: Sequence[str]
) -> Sequence[str]:
    """The instructions for files that a tool has just read or changed, as the only text in a list.
    The text is empty if there are none. A session adds the notes about these files, which it
    awaits: so `LoopAgent` awaits this, too.
    """
    return (instructions.for_paths(paths),)


def _limit_child(
    shared: AgentServices, spec: AgentSpec, cwd: Path
) -> tuple[Confinement, Permissions]:
    """Build the sandbox and the permissions of a subagent: it may never do more than its session.
    The files of memory it cannot write at all.
    """
    basis, confinement = shared.basis, shared.confinement
    if cwd != basis.cwd:
        # The lambda is called when a command starts: `permissions` is assigned below.
        confinement = build_confinement(basis, cwd, lambda: list(permissions.unreadable_files()))
    workspace = build_workspace(basis, cwd, confinement)
    for folder in shared.permissions.workspace.added:
        workspace.add(folder)
    rules_against_memory = [f"write({folder.path}/**)" for folder in workspace.memory]
    # `mcp_call` can call the tools of all servers, so rules deny those that the kind never has.
    rules_against_tools = [own_rule(name) for name in spec.without if name.startswith("mcp__")]
    permissions = shared.permissions.narrow(
        spec.mode, workspace, [*rules_against_memory, *rules_against_tools]
    )
    return confinement, permissions


def _build_tools(
    shared: AgentServices,
    cwd: Path,
    jobs: ShellJobs,
    confinement: Confinement,
    permissions: Permissions,
    spec: AgentSpec,
) -> list[AnyTool]:
    """Build the tools of a subagent that works in `cwd`, except those of the files in `tools/`. If its
    kind names tools of servers, their number is not limited: it gets only those it names.
    """
    basis, extensions, restricts_reading = (
        shared.basis,
        shared.extensions,
        permissions.restricts_reading,
    )
    files_seen = build_files_seen(shared, permissions.workspace)
    shell = build_shell(basis, cwd, jobs, confinement)
    search = build_search(shared)
    tools = [
        *builtin_tools(
            shell,
            jobs,
            plan=TodoPlan(),
            seen=files_seen,
            search=search,
            restricts_reading=restricts_reading,
        )
    ]
    if cwd == basis.cwd:  # language servers know the files of this folder only
        tools += lsp_tools(extensions, files_seen, restricts_reading)
    tools += skill_tools(extensions)
    tools += web_tools(basis, shared.models, problems=[])  # the session has reported them
    names_server_tools = any(name.startswith("mcp__") for name in spec.tools)
    tools += mcp_tools(basis, extensions, budget=sys.maxsize if names_server_tools else None)
    return tools


def _choose_models(
    spec: AgentSpec, shared: AgentServices, reported: set[str]
) -> Callable[[], Sequence[Model]]:
    """A function that returns the models of a subagent: those of the session, cheap ones, or the one
    that its kind names. It is called before each request, because the models of a session may change.

    If the named model cannot be used, the subagent has the models of the session: the files of Claude
    Code name `haiku`, for which a user of another provider has no key. A notice says so once.

    Args:
        reported: the kinds of which the notice was shown.
    """
    models = shared.models
    if not spec.model:
        return models.current
    if spec.model == CHEAP:
        # The role of small questions in the background, for which users choose a cheap model.
        return lambda: models.models_for("classify")
    try:
        name = shared.basis.inputs.catalog.resolve(spec.model)
        models.models_by_name(name)  # an error is raised now, not in the middle of the work
    except NoModelError as error:
        if spec.name not in reported:
            reported.add(spec.name)
            shared.basis.tasks.warn(
                f"The subagent {spec.name} has the model of the session, not `{spec.model}`:"
                f" {error.message}"
            )
        return models.current
    return lambda: models.models_by_name(name)


def _make_prompt(
    spec: AgentSpec, instructions: ProjectInstructions, shared: AgentServices, *, has_skills: bool
) -> str:
    """The system prompt of a subagent, with the texts of the skills that its kind names, and, if
    `has_skills`, the list of all skills. The hooks of the named skills run from now on. Raises
    ToolError if a named skill does not exist.
    """
    skills = shared.extensions.of_session.skills
    prompt = system_prompt(
        instructions.project_texts(),
        instructions.user_texts(),
        f"{spec.prompt}\n\n{_NO_USER_PROMPT}",
    )
    manager = shared.session_memory.manager
    core_memory = manager.prompt.make_read_only_block() if manager else ""
    skill_texts = [skills.read(name) for name in spec.skills]
    skill_files = [skills.find_offered(name).file for name in spec.skills]
    shared.extensions.of_session.hooks.add(
        [*chain.from_iterable(file.hooks for file in skill_files)]
    )
    skill_list = skills.prompt() if has_skills else ""
    return "\n\n".join(filter(None, (prompt, skill_list, *skill_texts, core_memory)))


def select_tools(spec: AgentSpec, tools: Mapping[str, AnyTool]) -> dict[str, AnyTool]:
    """The tools of a kind of subagent: those of `tools` that `spec.tools` names, or all of them if it
    names none, in the order of `tools`. `mcp__SERVER` and `mcp__SERVER__*` name all tools of a server.
    The tools of `spec.without` and of `_NOT_FOR_CHILDREN` are left out.
    """
    excluded = (*_NOT_FOR_CHILDREN, *spec.without)

    def has(name: str) -> bool:
        """Whether the subagent has the tool of this name."""
        if _names_tool(excluded, name):
            return False
        return not spec.tools or _names_tool(spec.tools, name)

    return {name: tool for name, tool in tools.items() if has(name)}


def _require_tools(spec: AgentSpec, tools: Mapping[str, AnyTool]) -> None:
    """Raises ToolError if a kind of subagent names tools, and has none of them."""
    if spec.tools and not tools:
        raise ToolError(
            f"The agent `{spec.name}` has none of its tools: {', '.join(spec.tools)}.",
            f"Connect the MCP server that has them, or change `tools` in {tilde(Path(spec.path))}.",
        )


def _names_tool(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the names, which may have stars, means the tool, or the server of the tool."""
    return any(
        fnmatchcase(name, pattern) or (_is_server(pattern) and name.startswith(f"{pattern}__"))
        for pattern in patterns
    )


def _is_server(name: str) -> bool:
    """Whether a name means all tools of an MCP server: `mcp__github`."""
    return name.startswith("mcp__") and "__" not in name.removeprefix("mcp__")
