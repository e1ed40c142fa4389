"""Open a session. It is built in this order: settings and trust, memory and transcript, models,
permissions, extensions, tools, the loop of the agent, the session.

Only this module and the modules `assemble_…` construct the parts of a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro import safety
from ouro.agent.compactor import Compactor
from ouro.agent.environment import Environment, GitChanges
from ouro.agent.loop import LoopAgent, TurnBounds
from ouro.agent.subagents import Subagents
from ouro.agent.system_prompt import prompt_message
from ouro.agent.tool_runner import ToolRunner
from ouro.assemble_extensions import (
    build_turn_watcher,
    decide_trust,
    extension_notices,
    find_extensions,
    find_own_tools,
    lsp_tools,
    mcp_tools,
    skill_tools,
)
from ouro.assemble_memory import background_roles, build_memory, memory_header_values, open_memory
from ouro.assemble_subagents import build_subagents, check_by_subagent
from ouro.assemble_tools import (
    AgentServices,
    build_confinement,
    build_file_undo,
    build_files_seen,
    build_search,
    build_shell,
    build_workspace,
    container_files,
    require_free_names,
    web_tools,
)
from ouro.errors import NoModelError, UsageError
from ouro.events import Notice
from ouro.extensions import demand_rules
from ouro.llm import Catalog, ModelSource, WaitLimits, Warmable
from ouro.memory.backend import MemoryStore, RewindScope
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.session import OpenRequest, Session
from ouro.session.agent_turn import AgentTurn
from ouro.session.background_work import BackgroundWork
from ouro.session.budget import Budget, limit_turns
from ouro.session.command_runner import CommandRunner
from ouro.session.context_window import ContextWindow, SentContext, find_plan, load_plan
from ouro.session.goal import GoalCaps, GoalPursuit
from ouro.session.named_texts import make_attachments
from ouro.session.plan_approval import PlanApproval
from ouro.session.plan_file import PlanFolder
from ouro.session.resumed_mode import StartMode, offer_auto, start_mode
from ouro.session.session_hooks import SessionHooks, ToolEvents
from ouro.session.session_labels import SessionLabels
from ouro.session.session_tasks import SessionTasks, Steering
from ouro.session.standing_work import StandingWork
from ouro.session.titles import Titles
from ouro.session.wake import Wake
from ouro.session_options import (
    Options,
    SessionBasis,
    SessionInputs,
    build_judge,
    build_models,
    make_mask,
    open_transcript,
)
from ouro.settings import MODES_BY_WIDTH
from ouro.settings_sources import (
    build_settings,
    explain_settings,
    misspelt_variables,
    settings_by_place,
    stricter_mode,
)
from ouro.tools.builtin import builtin_tools
from ouro.tools.code_checks import describe_late_errors
from ouro.tools.files_seen import FilesSeen
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.shell_process import clean_up_orphans
from ouro.tools.subagent import Subagent
from ouro.tools.todo import TodoPlan
from ouro.utils.git import find_root
from ouro.utils.log import mask_log
from ouro.utils.ouro_paths import (
    get_index_path,
    get_permissions_path,
    get_sessions_dir,
    get_trust_path,
)
from ouro.utils.path_encoding import path_text

if TYPE_CHECKING:
    from ouro.session.resume import Resumed
    from ouro.session.rewind import Rewind, Undoer

_HEADLESS_RETRY_SECONDS = 120.0
Opener = Callable[[OpenRequest], Awaitable[Session]]


def opener(options: Options) -> Opener:
    """Returns a function that opens sessions with these options. So front ends need not know them."""
    store = None
    if options.ephemeral:
        from ouro.memory.ephemeral_backend import DictMemoryStore  # imported late, only here

        store = DictMemoryStore()

    async def open_one(request: OpenRequest) -> Session:
        """Open a session. Later ones have the model of this request, but not the answer about trust."""
        nonlocal options
        if request.model:
            options = replace(options, settings={**options.settings, "model": request.model})
        try:
            session = await open_session(options, request, store)
        except NoModelError as error:
            choices = (await asyncio.to_thread(Catalog.from_files)).choices
            error.usable = [
                model.name for model in await asyncio.to_thread(choices) if model.usable
            ]
            raise
        options = replace(options, trust=False)  # the answer was only about the files at that time
        return session

    return open_one


async def open_session(
    options: Options, request: OpenRequest, store: MemoryStore | None = None
) -> Session:
    """Open a new session, or resume one.

    Raises:
        UsageError: one of the folders does not exist.
        TrustNeeded: the folder holds files that ouro would obey, and the user has not approved them.
        NoModelError: no model is usable.
        ConfigError: a settings file is not valid.
        SessionError: the requested session cannot be opened.
    """
    for folder in (options.cwd, *options.add_dirs):
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
    inputs = await asyncio.to_thread(_read_inputs, options, request)
    # Without a user the first turn begins at once; a user types a message before.
    git_changes = GitChanges(options.cwd, is_needed_soon=not options.interactive)
    basis = await _open_basis(inputs, request, store)
    notices_of_transcript = basis.memory.notices
    try:
        start = _find_start_mode(basis)
        session, problems = await asyncio.to_thread(_build_session, basis, start, git_changes)
    except BaseException:
        await basis.memory.close()  # otherwise the session would count as open here
        raise
    for notice in (*inputs.notices, *extension_notices(basis, problems), *notices_of_transcript):
        basis.tasks.warn(notice)
    _start(basis, session, start)
    if session.resumed is not None and request.part != "full":
        try:
            await session.resumed.continue_silently_with(request.part)
        except BaseException:
            await session.close()
            raise
    basis.mask.scanner.prepare()  # last: it uses the CPU beside what follows
    return session


def _read_inputs(options: Options, request: OpenRequest) -> SessionInputs:
    """Decide whether the files of the project are obeyed, then read the settings. Blocks."""
    trust_store = safety.TrustStore(get_trust_path())
    root = find_root(options.cwd)
    answer = "yes" if options.trust else request.trust
    files = container_files(root, options)
    # With `safe` nothing of the project is obeyed, and nothing is asked.
    trusted = not options.safe and decide_trust(trust_store, options.cwd, answer, files)
    settings_of_places = settings_by_place(root if trusted else None, options.settings)
    demand_rules(settings_of_places, [tool.name for tool in options.tools])
    settings = build_settings(explain_settings(settings_of_places))
    catalog = Catalog.from_files(str(root))
    found_notices = (trust_store.notice, *catalog.notices, *misspelt_variables())
    notices = [notice for notice in found_notices if notice]
    roles = {} if options.ready_model else background_roles(settings, catalog, notices)
    return SessionInputs(
        options, settings_of_places, settings, trust_store, trusted, catalog, roles, notices
    )


async def _open_basis(
    inputs: SessionInputs, request: OpenRequest, store: MemoryStore | None
) -> SessionBasis:
    """Open the folders of memory, then the transcript: its header names the versions of memory. The
    lambdas use `tasks` and `memory`, which are assigned later, only when they are called.
    """
    from ouro.session.opening import find_session_to_resume

    options = inputs.options
    mask = make_mask(inputs.catalog, lambda text: tasks.emit(Notice(text)))
    mask_log(mask.mask)
    if options.interactive:
        from ouro.utils.masked_writes import mask_writes  # `-p` writes no drafts and no history

        mask_writes(mask.mask)
    store = store or YamlFileMemoryStore(get_sessions_dir(), mask.mask)
    folders_of_sessions = () if options.ephemeral else (get_sessions_dir(), get_index_path())
    session_catalog = SessionCatalog(store, path_text(options.cwd), *folders_of_sessions)
    resumed = None
    if request.resume:
        resumed = await find_session_to_resume(
            session_catalog, request, is_interactive=options.interactive
        )
    scopes = None
    if options.uses_memory:
        trusted_folder = options.cwd if inputs.is_trusted else None
        open_scopes = partial(
            open_memory, inputs.settings.memory, trusted_folder, mask.kind_in_memory
        )
        scopes = await asyncio.to_thread(open_scopes)
    tasks = SessionTasks(build_turn_watcher(inputs, mask.mask, lambda: memory.session_id))
    versions = memory_header_values(scopes.opened if scopes else ())
    memory = await open_transcript(
        store, inputs, request, resumed, versions, tasks, is_private=scopes is None
    )
    root = find_root(options.cwd)
    return SessionBasis(inputs, root, mask, tasks, session_catalog, memory, resumed, scopes)


def _find_start_mode(basis: SessionBasis) -> StartMode:
    """The permission mode of the command line, else that of the resumed session, else that of the
    settings. The mode of a resumed session is never wider than that of the project's settings.
    """
    mode_of_command_line = basis.options.settings.get("permissions.mode")
    saved = "" if mode_of_command_line else basis.memory.mode
    if saved in MODES_BY_WIDTH:
        saved = stricter_mode(saved, basis.inputs.settings_by_place)
    return start_mode(saved, basis.settings.permissions.mode)


def _build_session(
    basis: SessionBasis, start: StartMode, git_changes: GitChanges
) -> tuple[Session, Sequence[str]]:
    """Returns the session, and a line for each problem in extension files. Each object is made from
    those above it. Blocks: extensions, memory and rules are read.
    """
    options, cwd, memory, tasks = basis.options, basis.cwd, basis.memory, basis.tasks
    wake_event = asyncio.Event()  # is set when work in the background wants to wake the agent
    jobs = _build_jobs(basis, wake_event)
    shared = _build_services(basis, start, jobs)
    permissions, session_memory = shared.permissions, shared.session_memory
    extensions = shared.extensions.of_session

    shell = build_shell(basis, cwd, jobs, shared.confinement, options.editor.terminals)
    files_seen = build_files_seen(shared, permissions.workspace)
    plan = TodoPlan()
    subagents, tools, problems = _build_tools(shared, shell, jobs, plan, files_seen, wake_event)

    further_facts = partial(_more_environment, shared)
    environment = Environment(cwd, lambda: permissions.mode, further_facts, git_changes)
    has_search = session_memory.lookup is not None
    context = SentContext(environment, extensions.instructions, plan, jobs, has_search)
    compactor = _build_compactor(shared, tools, context)
    window = ContextWindow(compactor, tasks)

    steering = Steering(environment, tasks.warn)
    standing = _build_standing_work(shared, shell)
    background = BackgroundWork(
        shell, jobs, subagents, permissions, tasks, steering, memory, standing
    )
    turn = _build_turn(shared, background, tools, plan, files_seen, compactor, wake_event)
    session = Session(
        memory=memory,
        turn=turn,
        background=background,
        model_source=shared.models,
        permissions=permissions,
        extensions=extensions,
        session_memory=session_memory,
        session_catalog=basis.session_catalog,
        rewind=_build_rewind(shared, plan, files_seen, context),
        window=window,
        budget=shared.budget,
        resumed=_build_resume(shared, window, plan),
    )
    return session, (*shared.extensions.problems, *problems)


def _build_jobs(basis: SessionBasis, wake_event: asyncio.Event) -> ShellJobs:
    """Build what holds the shell's background jobs; their ends wake the agent, if it may be woken."""
    on_end = wake_event.set if basis.settings.session.wake != "off" else None
    return ShellJobs(basis.memory.outputs, basis.mask.mask, on_end)


def _build_services(basis: SessionBasis, start: StartMode, jobs: ShellJobs) -> AgentServices:
    """Build models, permissions, extensions and memory, in this order."""
    memory, limits = basis.memory, basis.settings.limits
    if not basis.options.interactive:
        limits = limit_turns(limits)
    budget = Budget(memory, basis.session_catalog, limits, lambda: models.main.spec)
    models = build_models(basis.inputs, memory.model, basis.mask, budget.check_background_call)
    confinement, permissions = _build_permissions(basis, start)
    judge = build_judge(basis.inputs, models, memory, permissions, budget.check_background_call)
    extensions = find_extensions(basis, models, confinement)
    is_resumed = basis.resumed is not None
    hooks = SessionHooks(
        extensions.of_session.hooks,
        memory,
        basis.cwd,
        permissions,
        basis.tasks,
        is_resumed=is_resumed,
    )
    files = build_file_undo(basis, permissions)
    session_memory = build_memory(
        basis, models, jobs, confinement, files.changed_until_now if files else dict
    )
    return AgentServices(
        basis,
        budget,
        models,
        confinement,
        permissions,
        judge,
        extensions,
        hooks,
        files,
        session_memory,
    )


def _build_permissions(
    basis: SessionBasis, start: StartMode
) -> tuple[safety.Confinement, safety.Permissions]:
    """Build sandbox and permissions together: the sandbox hides what rules deny to read, and the
    rules depend on whether there is a sandbox.
    """

    def unreadable() -> Sequence[Path]:
        return permissions.unreadable_files()  # called when a command starts, not before

    confinement = build_confinement(basis, basis.cwd, unreadable)
    settings = basis.settings.permissions
    rules = safety.RuleStore(get_permissions_path(), basis.root)
    saved = rules.load_kinds()
    permissions = safety.Permissions(
        build_workspace(basis, basis.cwd, confinement),
        start.mode,
        allow=(*settings.allow, *saved["allow"]),
        ask=(*settings.ask, *saved["ask"]),
        deny=(*settings.deny, *saved["deny"]),
        saved=rules,
        finds_secret=basis.mask.kind_in_memory,
    )
    return confinement, permissions


def _build_tools(
    shared: AgentServices,
    shell: Shell,
    jobs: ShellJobs,
    plan: TodoPlan,
    files_seen: FilesSeen,
    wake_event: asyncio.Event,
) -> tuple[Subagents, ToolRunner, Sequence[str]]:
    """Returns the subagents, all tools (with `subagent`), and a line for each problem with them."""
    basis, permissions, extensions = shared.basis, shared.permissions, shared.extensions
    problems: list[str] = []
    file_and_shell_tools = [
        *builtin_tools(
            shell, jobs, plan, files_seen, build_search(shared), permissions.restricts_reading
        ),
        *lsp_tools(extensions, files_seen, permissions.restricts_reading),
    ]
    web_and_mcp_tools = [*web_tools(basis, shared.models, problems), *mcp_tools(basis, extensions)]
    # Only for their names: the skill tool in use is built below, because it needs the subagents.
    tools_of_ouro = (*file_and_shell_tools, *skill_tools(extensions), *web_and_mcp_tools)
    taken_names = {Subagent.name, *(tool.name for tool in tools_of_ouro)}
    require_free_names(basis.options.tools, taken_names)
    taken_names |= {tool.name for tool in basis.options.tools}
    own_tools = find_own_tools(
        basis, shared.confinement, extensions.environment, taken_names, problems
    )
    for tool in own_tools:
        if tool.asks:
            permissions.remember(tool.name, "ask", save=False)
    subagents = build_subagents(shared, own_tools, wake_event.set)
    shared.extensions.of_session.hooks.run_agent = partial(check_by_subagent, subagents)
    tools = (
        *file_and_shell_tools,
        *skill_tools(extensions, subagents.run),
        *web_and_mcp_tools,
        subagents.make_tool(),
        *basis.options.tools,
        *own_tools,
    )
    runner = ToolRunner(
        tools={tool.name: tool for tool in tools},
        permissions=permissions,
        ask_user=shared.hooks.with_notifications(basis.tasks.ask_user),
        changing=shared.changing,
        after_tool=shared.session_memory.tool_finished,
        hooks=ToolEvents(shared.hooks, basis.cwd),
        judge=shared.judge,
    )
    return subagents, runner, problems


def _more_environment(shared: AgentServices) -> dict[str, str]:
    """What the agent learns about its environment beside the folder and the operating system."""
    basis = shared.basis
    folders = (*basis.options.add_dirs, *shared.permissions.workspace.added)
    return {
        "Further folders of the workspace": ", ".join(map(path_text, folders)),
        "Output style": shared.extensions.of_session.styles.for_model(),
        "Commands": shared.confinement.describe_container(),
    }


def _build_compactor(shared: AgentServices, tools: ToolRunner, context: SentContext) -> Compactor:
    """Build what makes requests smaller. It holds the system prompt, with long-term memory."""
    basis, models, session_memory, hooks = (
        shared.basis,
        shared.models,
        shared.session_memory,
        shared.hooks,
    )
    block = session_memory.manager.prompt.load_block() if session_memory.manager else ""

    def on_compacted() -> None:
        """Forget what the context held: a summary has replaced it."""
        context.clear()
        session_memory.compacted()
        hooks.run_after_compaction()

    return Compactor(
        memory=basis.memory,
        models=models.current,
        summarisers=lambda: models.models_for("compact"),
        system_prompt=prompt_message(shared.extensions.system_prompt, block),
        tools=tools,
        settings=basis.settings.compaction,
        environment=context.for_summary,
        on_compacted=on_compacted,
        before_summary=hooks.before_compaction,
    )


def _build_standing_work(shared: AgentServices, shell: Shell) -> StandingWork:
    """Build the goal and the repeated messages; a resumed session has those it had before."""
    basis, settings = shared.basis, shared.basis.settings.session
    caps = GoalCaps(settings.goal_turns, settings.goal_cost, settings.goal_minutes)
    goal = GoalPursuit(basis.memory, shared.models, shell, shared.permissions, caps)
    is_saved = not basis.options.ephemeral
    standing = StandingWork(goal, basis.memory, basis.tasks.emit, is_saved=is_saved)
    if basis.resumed is not None:
        standing.load()
    return standing


def _build_turn(
    shared: AgentServices,
    background: BackgroundWork,
    tools: ToolRunner,
    plan: TodoPlan,
    files_seen: FilesSeen,
    compactor: Compactor,
    wake_event: asyncio.Event,
) -> AgentTurn:
    """Build the loop of the agent, and what a turn does before and after it."""
    basis, models, budget = shared.basis, shared.models, shared.budget
    session_memory = shared.session_memory
    permissions, extensions = shared.permissions, shared.extensions.of_session
    steering, subagents = background.steering, background.subagents
    goal = background.standing.goal
    attachments = make_attachments(
        files_seen, permissions, session_memory.manager, basis.session_catalog, extensions
    )
    commands = CommandRunner(
        extensions.commands, tools, permissions, models, shared.extensions.of_session.hooks
    )

    async def before_call(calls_made: int) -> str:
        goal.check_caps()
        return await budget.check(calls_made)

    wake = Wake(basis.settings.session.wake, wake_event, background.jobs, subagents, basis.tasks)

    async def after_tools(paths: Sequence[str]) -> Sequence[str]:
        notes = await session_memory.notes_about_files(paths)
        return extensions.instructions.for_paths(paths), notes, *wake.take_news_during_turn()

    agent = LoopAgent(
        memory=basis.memory,
        models=models.current,
        system_prompt=compactor.system_prompt,
        tools=tools,
        compactor=compactor,
        steering=lambda: steering.take_next() or subagents.take_next_report(),
        after_tools=after_tools,
        before_call=before_call,
        late_errors=partial(describe_late_errors, extensions.language_servers),
        add_attachments=attachments.attach_to,
        waiting=_wait_limits(basis),
        bounds=TurnBounds(budget.limits, basis.root),
    )
    return AgentTurn(
        agent=agent,
        steering=steering,
        environment=steering.environment,
        session_memory=session_memory,
        plan=_build_plan_approval(shared, plan, steering.environment, tools),
        tasks=basis.tasks,
        files=shared.files,
        titles=_build_titles(basis, models),
        attachments=attachments,
        commands=commands,
        hooks=shared.hooks,
        wake=wake,
    )


def _wait_limits(basis: SessionBasis) -> WaitLimits:
    """How long a failed call is repeated. A script waits for its end: 8 attempts in less than two
    minutes, where a user sees the attempts and can end them.
    """
    settings = basis.settings.llm
    after_failures: float | None = settings.max_retry_seconds
    if after_failures is None and not basis.options.interactive:
        after_failures = _HEADLESS_RETRY_SECONDS
    return WaitLimits(settings.retry_seconds, after_failures)


def _build_plan_approval(
    shared: AgentServices, plan: TodoPlan, environment: Environment, tools: ToolRunner
) -> PlanApproval:
    """Build the approval of plans, with the folder in which plans are saved."""
    basis, options = shared.basis, shared.basis.options
    # With `-p` there is no user who could read a draft.
    keeps_drafts = options.interactive or options.editor.buffers is not None
    folder = None
    if not options.ephemeral:
        folder = PlanFolder(basis.root, keeps_drafts=keeps_drafts)
    return PlanApproval(
        todos=plan,
        folder=folder,
        environment=environment,
        permissions=shared.permissions,
        memory=basis.memory,
        models=shared.models,
        ask_user=tools.ask_user,
    )


def _build_titles(basis: SessionBasis, models: ModelSource) -> Titles:
    """Build what finds titles. It does so by itself if there is a user and the session is saved."""
    options, memory = basis.options, basis.memory
    is_automatic = options.interactive and basis.settings.sessions.titles and not options.ephemeral
    labels = SessionLabels(memory, options.cwd, basis.resumed, headless=not options.interactive)
    return Titles(memory, models, basis.tasks, is_automatic, labels)


def _build_rewind(
    shared: AgentServices, plan: TodoPlan, files_seen: FilesSeen, context: SentContext
) -> Rewind:
    """Build the rewind of a session, with everything that it can undo."""
    from ouro.session.rewind import Rewind

    memory, tasks, session_memory = shared.basis.memory, shared.basis.tasks, shared.session_memory

    def on_change() -> None:  # after a rewind: all of this came from the messages before it
        plan.items = find_plan(memory)
        files_seen.clear()
        context.clear()

    undoers: dict[RewindScope, Undoer] = {}
    if shared.files is not None:
        undoers["files"] = shared.files
    if session_memory.rewind is not None:
        undoers["memory"] = session_memory.rewind
    return Rewind(
        memory=memory,
        is_running=lambda: tasks.running,
        on_change=on_change,
        undoers=undoers,
        wait_for_changes=session_memory.wait_until_settled,
        observer=session_memory.undo_observer,
    )


def _build_resume(shared: AgentServices, window: ContextWindow, plan: TodoPlan) -> Resumed | None:
    """Build what a resumed session asks and shows at its start; None for a new session."""
    basis = shared.basis
    if basis.resumed is None:
        return None
    from ouro.session.resume import Resumed

    return Resumed(
        info=basis.resumed,
        cwd=basis.cwd,
        window=window,
        session_memory=shared.session_memory,
        models=shared.models,
        permissions=shared.permissions,
        plan=plan,
    )


def _start(basis: SessionBasis, session: Session, start: StartMode) -> None:
    """Restore plan and mode of the transcript, and start the background work; returns at once."""
    memory, tasks, plan = basis.memory, basis.tasks, session.plan
    plan.todos.items = find_plan(memory)
    if basis.resumed is not None:  # the command line may have named another model
        memory.set_model(session.model_source.main.spec.name)
    if mode := basis.options.settings.get("permissions.mode"):
        memory.set_mode(mode)
    session.labels.begin()
    if start.offers_auto:
        tasks.start("mode", offer_auto(session))
    if session.resumed is not None:
        tasks.start("plan file", plan.load(tasks.emit))
        session.background.standing.restore(repeats=basis.options.interactive)
    session.session_memory.start()
    session.extensions.servers.start()
    session.extensions.language_servers.start()
    if memory.pager.is_loading:
        tasks.start("plan", load_plan(plan.todos, memory, tasks.emit))
    tasks.start("warm", _warm(basis, session))
    if basis.settings.updates == "notify" and basis.options.interactive:
        from ouro.session.update_notice import notify_update  # off by default

        tasks.start("updates", notify_update(lambda text: tasks.emit(Notice(text))))


async def _warm(basis: SessionBasis, session: Session) -> None:
    """Prepare the first turn, and clean up after a killed ouro. Runs in the background."""
    if isinstance(model := session.model_source.main, Warmable):
        await model.warm()
    # After `warm`: this reads every process of the machine, which would delay the first request.
    await clean_up_orphans(basis.tasks.warn, basis.root)
    if session.turn.files is not None:
        await session.turn.files.recover()
