"""Build a Session from the settings: only this module and its helpers construct and connect the
concrete objects.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro import safety
from ouro.agent.compactor import Compactor
from ouro.agent.environment import Environment
from ouro.agent.loop import LoopAgent
from ouro.agent.subagents import Subagents
from ouro.agent.system_prompt import prompt_message
from ouro.agent.tool_runner import PermissionJudge, ToolRunner, not_changing
from ouro.assemble_extensions import ExtensionBuilder, is_trusted, turn_watcher
from ouro.assemble_memory import (
    MemoryBuilder,
    background_roles,
    begins_with,
    lookup_in,
    open_memory,
)
from ouro.assemble_subagents import build_subagents
from ouro.errors import NoModelError, UsageError
from ouro.events import Notice
from ouro.extensions import demand_rules
from ouro.llm import Catalog, ModelSource, Warmable
from ouro.memory import index as memory_index
from ouro.memory import long_term
from ouro.memory.backend import MemoryStore, RewindScope, SessionInfo
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message
from ouro.session import OpenRequest, Session
from ouro.session.agent_turn import AgentTurn, CommandRunner
from ouro.session.budget import Budget, limit_turns
from ouro.session.context_window import (
    ContextWindow,
    SentContext,
    find_plan,
    update_plan_when_loaded,
)
from ouro.session.file_undo import FileUndo
from ouro.session.goal import GoalCaps, GoalPursuit
from ouro.session.named_texts import make_attachments
from ouro.session.opening import find_resumed
from ouro.session.plan_approval import PlanApproval
from ouro.session.plan_file import PlanFolder
from ouro.session.resume import Resumed
from ouro.session.resumed_mode import StartMode, offer_auto, start_mode
from ouro.session.rewind import Rewind, Undoer
from ouro.session.session_hooks import SessionHooks, ToolEvents
from ouro.session.session_labels import SessionLabels
from ouro.session.session_tasks import BackgroundWork, SessionTasks, Steering
from ouro.session.standing_work import StandingWork
from ouro.session.titles import Titles
from ouro.session.wake import Wake
from ouro.session_options import Options, SessionInputs, build_judge, build_models, open_transcript
from ouro.settings import MODES_BY_WIDTH
from ouro.settings_sources import build_settings, explain_settings, settings_by_place, stricter_mode
from ouro.tools.builtin import builtin_tools
from ouro.tools.files_seen import FilesSeen
from ouro.tools.memory_search import SearchMemory
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.shell_process import Terminals, clean_up_orphans
from ouro.tools.todo import TodoPlan
from ouro.utils.git import find_root
from ouro.utils.log import mask_log, mask_writes
from ouro.utils.path_text import path_text
from ouro.utils.runtime import (
    get_checkpoints_dir,
    get_home,
    get_index_path,
    get_permissions_path,
    get_sessions_dir,
    get_trust_path,
    limit_arenas,
)

Opener = Callable[[OpenRequest], Awaitable[Session]]


def opener(options: Options) -> Opener:
    """`open_session` for front ends, which do not know the options."""
    store = DictMemoryStore() if options.ephemeral else None

    async def open_one(request: OpenRequest) -> Session:
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
    """A new session, or a resumed one.

    Raises:
        TrustNeeded: the folder holds files that ouro would obey, and the user has not approved them.
        NoModelError: no model is usable.
        ConfigError: a settings file is not valid.
        SessionError: the requested session cannot be opened.
    """
    for folder in (options.cwd, *options.add_dirs):
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
    inputs = await asyncio.to_thread(_read_inputs, options, request)
    mask = safety.SecretMask([*inputs.catalog.key_values(), *safety.secret_values(os.environ)])
    mask_log(mask.mask)
    mask_writes(mask.mask)
    store = store or YamlFileMemoryStore(get_sessions_dir(), mask.mask)
    places = () if options.ephemeral else (get_sessions_dir(), get_index_path())
    session_catalog = SessionCatalog(store, path_text(options.cwd), *places)
    resumed = await find_resumed(session_catalog, request) if request.resume else None
    has_memory, trusted = (
        options.uses_memory,
        options.cwd if inputs.trusted else None,
    )
    opening = partial(open_memory, inputs.settings.memory, trusted, mask.kind_in_memory)
    scopes = await asyncio.to_thread(opening) if has_memory else None
    tasks = SessionTasks(turn_watcher(inputs, mask.mask, lambda: transcript.session_id))
    transcript = await open_transcript(
        store, inputs, request, resumed, begins_with(scopes.opened if scopes else ()), tasks
    )
    notices = transcript.notices
    try:
        builder = SessionBuilder(
            inputs, store, session_catalog, transcript, resumed, mask, scopes, tasks
        )
        await asyncio.to_thread(builder.read_files)
        session = builder.build()
    except BaseException:
        await transcript.close()  # otherwise the session would count as open here
        raise
    for notice in (*inputs.notices, *builder.extensions.notices(), *notices):
        tasks.warn(notice)
    builder.start(session)
    if session.resumed is not None and request.part != "full":
        try:
            await session.resumed.apply(request.part)
        except BaseException:
            await session.close()
            raise
    mask.scanner.prepare()
    return session


def _read_inputs(options: Options, request: OpenRequest) -> SessionInputs:
    limit_arenas()
    trust = safety.TrustStore(get_trust_path())
    answer = "no" if options.safe else "yes" if options.trust else request.trust
    trusted = is_trusted(trust, options.cwd, answer) and not options.safe
    root = find_root(options.cwd)
    places = settings_by_place(root if trusted else None, options.settings)
    demand_rules(places, [tool.name for tool in options.tools])
    settings = build_settings(explain_settings(places))
    catalog = Catalog.from_files(str(root or options.cwd))
    notices = [notice for notice in (trust.notice, *catalog.notices) if notice]
    roles = {} if options.ready_model else background_roles(settings, catalog, notices)
    return SessionInputs(options, places, settings, trust, trusted, catalog, roles, notices)


class SessionBuilder(msgspec.Struct, dict=True):
    """Constructs the objects of one session: each once, when another one first needs it."""

    inputs: SessionInputs
    store: MemoryStore
    session_catalog: SessionCatalog
    transcript: MemoryManager
    info: SessionInfo | None
    """The state of a session that is resumed."""
    mask: safety.SecretMask
    scopes: long_term.MemoryScopes | None
    """None: memory is off."""
    tasks: SessionTasks

    def __post_init__(self) -> None:
        options, limits = self.inputs.options, self.inputs.settings.limits
        cwd, limits = options.cwd, limits if options.interactive else limit_turns(limits)
        self.root = find_root(cwd)
        self.plan = TodoPlan()
        self.news = asyncio.Event()  # something in the background may wake the agent
        self.environment = Environment(cwd, lambda: self.permissions.mode, self._more_environment)
        self.budget = Budget(
            self.transcript, self.session_catalog, limits, lambda: self.models.current()[0].spec
        )

    def _more_environment(self) -> dict[str, str]:
        folders = (*self.inputs.options.add_dirs, *self.permissions.workspace.added)
        return {
            "Further folders of the workspace": ", ".join(map(path_text, folders)),
            "Output style": self.extensions.styles.for_model(),
        }

    def build(self) -> Session:
        self.plan.items = find_plan(self.transcript)
        if self.info is not None:  # the command line may have named another model
            self.transcript.set_model(self.models.current()[0].spec.name)
        if mode := self.inputs.options.settings.get("permissions.mode"):
            self.transcript.set_mode(mode)
        window, turn = ContextWindow(self.compactor, self.tasks), self._turn()
        return Session(
            transcript=self.transcript,
            turn=turn,
            background=self._background(turn.steering),
            model_source=self.models,
            permissions=self.permissions,
            extensions=self.extensions.found(),
            memory=self.memory,
            session_catalog=self.session_catalog,
            rewind=self._rewind(),
            window=window,
            budget=self.budget,
            resumed=self._resumed(window),
        )

    def read_files(self) -> None:
        """Read extensions and memory, for the tools and the system prompt. Blocks."""
        _ = self.extensions.found(), self.tools, self.system_prompt
        if self.info is not None:
            self.standing.load()

    def start(self, session: Session) -> None:
        """Start what runs in the background from the beginning; returns at once."""
        if self._start_mode.offers_auto:
            self.tasks.start("mode", offer_auto(session))
        if session.resumed is not None:
            self.tasks.start("plan file", session.turn.plan.load(self.tasks.emit))
            self.standing.restore(repeats=self.inputs.options.interactive)
        self.memory.start()
        self.extensions.servers.start()
        self.extensions.language_servers.start()
        if self.transcript.pager.is_loading:
            self.tasks.start(
                "plan", update_plan_when_loaded(self.plan, self.transcript, self.tasks.emit)
            )
        self.tasks.start("warm", self._warm())
        if self.inputs.settings.updates == "notify" and self.inputs.options.interactive:
            from ouro.session.update_notice import notify_update  # off by default

            self.tasks.start("updates", notify_update(lambda text: self.tasks.emit(Notice(text))))

    async def _warm(self) -> None:
        if isinstance(model := self.models.current()[0], Warmable):
            await model.warm()
        # It reads every process: not while the request is made.
        await clean_up_orphans(self.tasks.warn, self.root)
        if self.files is not None:
            await self.files.recover()

    @cached_property
    def models(self) -> ModelSource:
        return build_models(self.inputs, self.transcript.model, self.mask, self.budget.refuse)

    @cached_property
    def workspace(self) -> safety.Workspace:
        return self.workspace_in(self.inputs.options.cwd, self.confinement)

    def workspace_in(self, cwd: Path, confinement: safety.Confinement) -> safety.Workspace:
        options, stores = self.inputs.options, [scope.store for scope in self._opened]
        guarded = [
            safety.GuardedMemory(
                store.folder, None if store.is_shared else store.repository.state_dir
            )
            for store in stores
        ]
        folders = (*options.add_dirs, self.transcript.outputs)
        return safety.Workspace(
            cwd,
            folders,
            guarded,
            confines=confinement.is_on_or_disabled,
            hides=lambda: confinement.is_on,
        )

    @cached_property
    def permissions(self) -> safety.Permissions:
        settings, rules = (
            self.inputs.settings.permissions,
            safety.RuleStore(get_permissions_path(), self.root),
        )
        saved = rules.load_kinds()
        return safety.Permissions(
            self.workspace,
            self._start_mode.mode,
            allow=(*settings.allow, *saved["allow"]),
            ask=(*settings.ask, *saved["ask"]),
            deny=(*settings.deny, *saved["deny"]),
            saved=rules,
            finds_secret=self.mask.kind_in_memory,
        )

    @cached_property
    def confinement(self) -> safety.Confinement:
        unreadable = lambda: self.permissions.unreadable_files()  # noqa: E731, PLW0108 - they need this object
        return self.confinement_in(self.inputs.options.cwd, unreadable)

    def confinement_in(
        self, cwd: Path, unreadable: Callable[[], Sequence[Path]]
    ) -> safety.Confinement:
        return safety.Confinement(
            cwd,
            get_home() / "sandbox",
            self.inputs.settings.sandbox,
            also_writable=self.inputs.options.add_dirs,
            memory=[scope.store.folder for scope in self._opened],
            visible=[self.transcript.outputs],
            unreadable=unreadable,
        )

    @cached_property
    def _start_mode(self) -> StartMode:
        """Of the command line, the resumed session (at most the project's), or the settings."""
        is_given = self.inputs.options.settings.get("permissions.mode")
        saved = "" if is_given else self.transcript.mode
        if saved in MODES_BY_WIDTH:
            saved = stricter_mode(saved, self.inputs.places)
        return start_mode(saved, self.inputs.settings.permissions.mode)

    def _resumed(self, window: ContextWindow) -> Resumed | None:
        if self.info is None:
            return None
        cwd, memory, models = self.inputs.options.cwd, self.memory, self.models
        return Resumed(self.info, cwd, window, memory, models, self.permissions, self.plan)

    @cached_property
    def _jobs(self) -> ShellJobs:
        on_news = self.news.set if self.inputs.settings.session.wake != "off" else None
        return ShellJobs(self.transcript.outputs, self.mask.mask, on_news)

    @cached_property
    def _shell(self) -> Shell:
        options = self.inputs.options
        return self.shell_in(options.cwd, self._jobs, self.confinement, options.editor.terminals)

    def shell_in(
        self,
        cwd: Path,
        jobs: ShellJobs,
        confinement: safety.Confinement,
        terminals: Terminals | None = None,
    ) -> Shell:
        environment = safety.child_environment(os.environ, secrets=self.inputs.catalog.key_values())
        return Shell(
            cwd,
            jobs,
            environment,
            confinement,
            self.inputs.settings.shell.timeout_seconds,
            terminals,
        )

    @cached_property
    def extensions(self) -> ExtensionBuilder:
        inputs, models, confinement = self.inputs, lambda: self.models, lambda: self.confinement
        return ExtensionBuilder(
            inputs, self.root, self.transcript, self.tasks, self.mask, models, confinement
        )

    @cached_property
    def hooks(self) -> SessionHooks:
        hooks, is_resumed = self.extensions.hooks, self.info is not None
        cwd = self.inputs.options.cwd
        return SessionHooks(
            hooks, self.transcript, cwd, self.permissions, self.tasks, is_resumed=is_resumed
        )

    @cached_property
    def subagents(self) -> Subagents:
        return build_subagents(self)

    @cached_property
    def files_seen(self) -> FilesSeen:
        return self.files_seen_in(self.workspace)

    def files_seen_in(self, workspace: safety.Workspace) -> FilesSeen:
        editor, checks = self.inputs.options.editor.buffers, self.extensions.language_servers
        finds_secret, recording = self.mask.kind_in_memory, self.memory.recording
        return FilesSeen(workspace, finds_secret, recording, editor, checks=checks)

    @property
    def _opened(self) -> Sequence[long_term.ScopeMemory]:
        return self.scopes.opened if self.scopes else ()

    @cached_property
    def lookup(self) -> memory_index.Lookup | None:
        return lookup_in(self._opened, self.inputs, self.session_catalog)

    @cached_property
    def search(self) -> SearchMemory | None:
        return long_term.search_for(self.lookup, self._opened, self.root) if self.lookup else None

    @cached_property
    def memory(self) -> long_term.SessionMemory:
        builder = MemoryBuilder(
            inputs=self.inputs,
            scopes=self.scopes,
            memory=self.transcript,
            models=self.models,
            session_catalog=self.session_catalog,
            lookup=self.lookup,
            channel=self.tasks,
            finds_secret=self.mask.kind_in_memory,
            changed_files=lambda: self.files.changed_until_now() if self.files else {},
        )
        return builder.build(self._jobs, self.confinement, is_new=self.info is None)

    @cached_property
    def tools(self) -> ToolRunner:
        """Blocks: reads files of extensions."""
        seen, keeps_back = self.files_seen, self.permissions.keeps_back
        found = [
            *builtin_tools(self._shell, self._jobs, self.plan, seen, self.search, keeps_back),
            *self.extensions.lsp_tools(seen, keeps_back),
        ]
        tools = {
            tool.name: tool
            for tool in (*found, *self.extensions.tools(self.subagents.run), self.subagents.tool())
        }
        for tool in self.inputs.options.tools:
            if tools.setdefault(tool.name, tool) is not tool:
                raise UsageError(
                    f"There are two tools with the name `{tool.name}`.", "Give yours another name."
                )
        of_files = self.extensions.file_tools(tools, self.permissions)
        tools |= {tool.name: tool for tool in of_files}
        ask_user = self.hooks.with_notifications(self.tasks.ask_user)
        hooks = ToolEvents(self.hooks, self.inputs.options.cwd)
        changing = self.files.changing if self.files else not_changing
        after = (self.memory.tool_finished, hooks, self.judge)
        return ToolRunner(tools, self.permissions, ask_user, changing, *after)

    @cached_property
    def judge(self) -> PermissionJudge | None:
        refuse = self.budget.refuse
        return build_judge(self.inputs, self.models, self.transcript, self.permissions, refuse)

    @cached_property
    def system_prompt(self) -> Message:
        """The system prompt, with long-term memory. Blocks: reads files."""
        manager = self.memory.manager
        block = manager.prompt.load_block() if manager else ""
        return prompt_message(self.extensions.system_prompt, block)

    @cached_property
    def sent_context(self) -> SentContext:
        has_search = self.lookup is not None
        return SentContext(
            self.environment, self.extensions.instructions, self.plan, self._jobs, has_search
        )

    @cached_property
    def compactor(self) -> Compactor:
        models, context, memory, hooks = self.models, self.sent_context, self.memory, self.hooks

        def on_compacted() -> None:
            context.clear()
            memory.compacted()
            hooks.compacted()

        return Compactor(
            self.transcript,
            models.current,
            lambda: models.role("compact"),
            self.system_prompt,
            self.tools,
            self.inputs.settings.compaction,
            context.for_summary,
            on_compacted,
            hooks.before_compaction,
        )

    @cached_property
    def files(self) -> FileUndo | None:
        settings, session = self.inputs.settings.checkpoints, self.transcript.session_id
        if not settings.enabled or self.inputs.options.ephemeral:
            return None
        limit, cwd = settings.max_file_mb * 1_000_000, self.inputs.options.cwd
        found = safety.LateCheckpoints(cwd, get_checkpoints_dir(), session, limit)
        limits = settings.keep_days, settings.max_mb * 1_000_000
        resolve = self.permissions.workspace.resolve
        return FileUndo(found, self.transcript, self.tasks, *limits, resolve)

    def _plan_approval(self) -> PlanApproval:
        options = self.inputs.options
        keeps_drafts = options.interactive or options.editor.buffers is not None
        folder = PlanFolder(self.root or options.cwd, keeps_drafts=keeps_drafts)
        return PlanApproval(
            self.plan,
            None if options.ephemeral else folder,
            self.environment,
            self.permissions,
            self.transcript,
            self.models,
            self.tools.ask_user,
        )

    def _titles(self) -> Titles:
        options, wanted = self.inputs.options, self.inputs.settings.sessions.titles
        automatically = options.interactive and wanted and not options.ephemeral
        labels = SessionLabels(self.transcript, options.cwd, self.info)
        return Titles(
            self.transcript, self.models, self.tasks, automatically=automatically, labels=labels
        )

    def _turn(self) -> AgentTurn:
        models, subagents, memory = self.models, self.subagents, self.memory
        tools, permissions, found = self.tools, self.permissions, self.extensions
        mode = self.inputs.settings.session.wake
        attachments = make_attachments(
            self.files_seen, permissions, memory.manager, self.session_catalog, found.found()
        )
        steering = Steering(self.environment, self.tasks.warn)
        agent = LoopAgent(
            self.transcript,
            models.current,
            self.system_prompt,
            self.tools,
            self.compactor,
            lambda: steering.take() or subagents.take_reports(),
            found.instructions.for_paths,
            self._before_call,
            memory.touched,
            attachments.complete,
            retry_seconds=self.inputs.settings.llm.retry_seconds,
            bounds=(self.budget.limits, self.root),
        )
        return AgentTurn(
            agent=agent,
            steering=steering,
            environment=self.environment,
            memory=self.memory,
            plan=self._plan_approval(),
            tasks=self.tasks,
            files=self.files,
            titles=self._titles(),
            attachments=attachments,
            commands=CommandRunner(found.commands, tools, permissions, models, found.hooks),
            hooks=self.hooks,
            wake=Wake(mode, self.news, self._jobs, subagents, self.tasks),
        )

    def _background(self, steering: Steering) -> BackgroundWork:
        work = (self._shell, self._jobs, self.subagents, self.permissions, self.tasks)
        return BackgroundWork(*work, steering, self.transcript, self.standing)

    @cached_property
    def standing(self) -> StandingWork:
        settings = self.inputs.settings
        caps = GoalCaps(
            settings.session.goal_turns, settings.session.goal_cost, settings.session.goal_minutes
        )
        goal = GoalPursuit(self.transcript, self.models, self._shell, self.permissions, caps)
        is_saved = not self.inputs.options.ephemeral
        return StandingWork(goal, self.transcript, self.tasks.emit, is_saved=is_saved)

    async def _before_call(self, calls_made: int) -> str:
        self.standing.goal.refuse()
        return await self.budget.check(calls_made)

    def _rewind(self) -> Rewind:
        plan, transcript = self.plan, self.transcript
        seen, context = self.files_seen, self.sent_context

        def on_change() -> None:
            plan.items = find_plan(transcript)
            seen.clear()
            context.clear()

        undoers: dict[RewindScope, Undoer] = {}
        if self.files is not None:
            undoers["files"] = self.files
        if self.memory.rewind is not None:
            undoers["memory"] = self.memory.rewind
        settled, observer = self.memory.settled, self.memory.undo_observer
        return Rewind(transcript, lambda: self.tasks.running, on_change, undoers, settled, observer)
