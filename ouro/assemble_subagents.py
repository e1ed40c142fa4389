"""Build the subagents of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.agent.compactor import Compactor
from ouro.agent.environment import Environment
from ouro.agent.loop import BeforeCall, LoopAgent
from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.subagents import ChildAgent, Subagents, SubagentServices
from ouro.agent.system_prompt import prompt_message, system_prompt
from ouro.agent.tool_runner import AskUser, ToolRunner
from ouro.llm import Model
from ouro.memory.backend import MemoryStore
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_folders import SUBAGENTS
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.session.session_hooks import ToolEvents
from ouro.tools.builtin import builtin_tools
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.subagent import AgentSpec
from ouro.tools.todo import TodoPlan
from ouro.tools.tool import AnyTool

if TYPE_CHECKING:
    from ouro.assemble import SessionBuilder

CHEAP = "cheap"
_NOT_FOR_CHILDREN = ("ask_user", "subagent")
"""Tools that a subagent does not have: it starts no other subagents (E6), and asks no questions."""
_ALONE = "You work without a user who could answer you. Only your last message is read."


def build_subagents(session: SessionBuilder) -> Subagents:
    """The kinds of subagents, and what starts one. Blocks: it reads the files in `agents/`."""
    inputs = session.inputs

    def make_store() -> MemoryStore:
        if inputs.options.ephemeral or session.transcript.read_only:
            return DictMemoryStore()
        return YamlFileMemoryStore(session.transcript.outputs.parent / SUBAGENTS, session.mask.mask)

    services = SubagentServices(
        make=partial(_make_child, session),
        make_store=make_store,
        memory=session.transcript,
        ask_user=session.hooks.with_notifications(session.tasks.ask_user),
        channel=session.tasks,
        check_budget=session.budget.check,
        cwd=inputs.options.cwd,
        in_background=inputs.options.interactive,
        on_report=session.news.set,
    )
    return Subagents(session.extensions.agents, services, inputs.settings.subagents)


def _make_child(
    session: SessionBuilder,
    child_id: str,
    spec: AgentSpec,
    transcript: MemoryManager,
    cwd: Path,
    ask_user: AskUser,
    before_call: BeforeCall,
) -> ChildAgent:
    """Construct what a subagent runs on. Blocks. Raises NoModelError: the model of its kind cannot
    be used.
    """
    inputs = session.inputs
    has_own_folder = cwd != inputs.options.cwd
    confinement = session.confinement
    if has_own_folder:
        confinement = session.confinement_in(cwd, lambda: list(permissions.unreadable_files()))
    workspace = session.workspace_in(cwd, confinement)
    for folder in session.workspace.added:
        workspace.add(folder)
    jobs = ShellJobs(session.transcript.outputs, session.mask.mask)
    no_memory = [f"write({folder.path}/**)" for folder in workspace.memory]
    permissions = session.permissions.narrow(spec.mode, workspace, no_memory)
    seen = session.files_seen_in(workspace)
    found = builtin_tools(
        session.shell_in(cwd, jobs, confinement),
        jobs,
        TodoPlan(),
        seen,
        session.search,
        permissions.keeps_back,
    )
    own = (
        *([] if has_own_folder else session.extensions.lsp_tools(seen, permissions.keeps_back)),
        *session.extensions.tools(),
    )
    changing, judge = session.tools.changing, session.judge
    of_files = [tool.in_folder(cwd, confinement.wrap) for tool in session.extensions.own_tools]
    tools = select_tools(spec, {tool.name: tool for tool in (*found, *own, *of_files)})
    hooks = ToolEvents(session.hooks, cwd, child_id)
    runner = ToolRunner(tools, permissions, ask_user, changing, None, hooks, judge)
    models, instructions = _choose_models(spec, session), session.extensions.instructions_in(cwd)
    prompt = prompt_message(_make_prompt(spec, instructions, session, has_skills="skill" in tools))
    environment = Environment(cwd, lambda: permissions.mode)
    compactor = Compactor(
        transcript,
        models,
        models,
        prompt,
        runner,
        inputs.settings.compaction,
        environment.whole,
        instructions.clear,
    )
    agent = LoopAgent(
        transcript,
        models,
        prompt,
        runner,
        compactor,
        list,
        instructions.for_paths,
        before_call,
        bounds=(inputs.settings.limits, cwd),
    )

    async def close() -> None:
        await jobs.close()
        if has_own_folder:
            confinement.close()

    async def context(task: str) -> str:
        return "\n\n".join(
            filter(None, (await environment.whole(), await session.memory.for_subagent(task)))
        )

    async def ended(is_continued: bool) -> str:
        return await session.hooks.turn_ended(is_continued, child_id)

    return ChildAgent(agent, context, ended, close)


def _choose_models(spec: AgentSpec, session: SessionBuilder) -> Callable[[], Sequence[Model]]:
    models = session.models
    if not spec.model:
        return models.current
    if spec.model == CHEAP:
        return lambda: models.role("classify")
    name = session.inputs.catalog.resolve(spec.model)
    models.named(name)  # an error is raised now, not in the middle of the work
    return lambda: models.named(name)


def _make_prompt(
    spec: AgentSpec, instructions: ProjectInstructions, session: SessionBuilder, *, has_skills: bool
) -> str:
    """Raises ToolError: there is no skill that the kind names."""
    skills = session.extensions.skills
    prompt = system_prompt(
        instructions.of_project(), instructions.of_user(), f"{spec.prompt}\n\n{_ALONE}"
    )
    core = manager.prompt.core() if (manager := session.memory.manager) else ""
    named = [skills.read(name) for name in spec.skills]
    files = [skills.offered(name).file for name in spec.skills]
    session.extensions.hooks.add([*chain.from_iterable(file.hooks for file in files)])
    return "\n\n".join(filter(None, (prompt, skills.prompt() if has_skills else "", *named, core)))


def select_tools(spec: AgentSpec, tools: Mapping[str, AnyTool]) -> dict[str, AnyTool]:
    """The tools that a kind of subagent has, in their usual order."""
    without = {*_NOT_FOR_CHILDREN, *spec.without}

    def has(name: str) -> bool:
        is_of_server = any(
            name.startswith(f"{server}__") for server in spec.tools if server.startswith("mcp__")
        )
        return name not in without and (not spec.tools or name in spec.tools or is_of_server)

    return {name: tool for name, tool in tools.items() if has(name)}
