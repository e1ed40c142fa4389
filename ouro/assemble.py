"""Build a Session from the settings: the only place where concrete parts meet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ouro.agent.instructions import project_instructions, system_prompt
from ouro.agent.limits import Limits
from ouro.assemble_memory import MemoryBuilder, begins_with, lookup_in
from ouro.config import load_settings
from ouro.errors import NoModelError, TrustNeeded, UsageError
from ouro.llm.catalog import Catalog
from ouro.llm.model import Effort, Model
from ouro.llm.model_source import ModelChoice, ModelSource, Role
from ouro.memory.backend import MemoryStore, SessionInfo
from ouro.memory.compaction import CompactionRules
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.long_term.scope import MemoryScopes, open_scopes
from ouro.memory.long_term.search import search_for
from ouro.memory.long_term.store import GitMemoryStore, repo_store, user_store
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog, catalog_on
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.safety.guarded_memory import GuardedMemory
from ouro.safety.permissions import Mode, Permissions
from ouro.safety.rule_store import RuleStore
from ouro.safety.sandbox import NoSandbox
from ouro.safety.secrets import SecretMask, secret_values
from ouro.safety.trust import TrustStore, acting_files
from ouro.safety.workspace import Workspace
from ouro.session import OpenRequest, Session, SessionParts
from ouro.session.background import Background
from ouro.session.turn import Questions
from ouro.settings import Settings
from ouro.tools.builtin import ToolParts, builtin_tools
from ouro.tools.files_seen import FilesSeen, no_secrets_in_memory
from ouro.tools.shell import Shell
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.todo import Plan
from ouro.utils.log import mask_log
from ouro.utils.masked_writes import mask_writes
from ouro.utils.project_files import list_project_files
from ouro.utils.repository import find_root
from ouro.utils.runtime import (
    get_history_dir,
    get_index_path,
    get_memory_dir,
    get_permissions_path,
    get_sessions_dir,
    get_trust_path,
)

Opener = Callable[[OpenRequest], Awaitable[Session]]


class Options(msgspec.Struct, frozen=True):
    """What the command line says of every session that is opened in this process."""

    cwd: Path
    model: str = ""
    mode: Mode | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    add_dirs: tuple[Path, ...] = ()
    max_turns: int | None = None
    max_cost: float | None = None
    ephemeral: bool = False
    titles: bool = False
    """Let a model find titles, where the settings do: for front ends at which a person stays."""
    captures: bool = False
    """What is said becomes notes, beside the conversation, where the settings let it: as for titles."""
    trust: bool = False
    memory: bool = True
    """Long-term memory is read and written, where the settings do not say otherwise."""
    ready_model: Model | None = None
    """In place of any model of the catalog: the recorded one of `ouro demo`."""

    def flags(self) -> dict[str, Any]:
        """The settings that the command line gives a last word on."""
        return {
            "model": self.model or None,
            "permissions.mode": self.mode,
            "permissions.allow": self.allow,
            "permissions.deny": self.deny,
            "limits.max_turns": self.max_turns,
            "limits.max_cost": self.max_cost,
        }


class _Ground(msgspec.Struct):
    """What a session stands on, once the person has said whether the folder is trusted."""

    options: Options
    settings: Settings
    trust: TrustStore
    trusted: bool
    catalog: Catalog
    roles: Mapping[Role, str]
    """The models that work beside the conversation, by their full names."""
    notices: list[str] = msgspec.field(default_factory=list)


def opener(options: Options) -> Opener:
    """`open_session` for front ends, which know nothing of options."""
    store = DictMemoryStore() if options.ephemeral else None

    async def open_one(request: OpenRequest) -> Session:
        nonlocal options
        session = await open_session(options, request, store)
        # `--trust` was said of the folder as it was then: what is written there later is asked about.
        options = replace(options, trust=False)
        return session

    return open_one


async def open_session(options: Options, request: OpenRequest, store: MemoryStore | None = None) -> Session:
    """A new session, or one that is taken up again.

    Raises:
        TrustNeeded: the folder holds files that ouro would obey, and nobody has said that it may.
        NoModelError: no model is usable.
        ConfigError: a settings file says something that cannot be.
        SessionError: the session that is asked for cannot be opened.
    """
    if not options.cwd.is_dir():
        raise UsageError(f"{options.cwd} is not a folder.")
    ground = await asyncio.to_thread(_ground, options, request)
    mask = SecretMask([*ground.catalog.key_values(), *secret_values(os.environ)])
    mask_log(mask.mask)
    mask_writes(mask.mask)
    store = store or YamlFileMemoryStore(get_sessions_dir(), mask.mask)
    session_catalog = _session_catalog(store, options)
    resumed = await asyncio.to_thread(session_catalog.find, request.resume) if request.resume else None
    stores = _memory_stores(ground, mask)
    scopes = await asyncio.to_thread(open_scopes, stores)
    memory = await _memory(store, ground, request, resumed, begins_with(scopes.opened))
    try:
        parts = _parts(ground, (store, session_catalog, resumed), memory, mask, scopes)
        if manager := parts.remembers.manager:
            block = await asyncio.to_thread(manager.load_and_format)
            parts = replace(parts, instructions="\n\n".join(filter(None, (parts.instructions, block))))
        session = Session(parts)
    except BaseException:
        await memory.close()  # else it would count as open here
        raise
    if session.resumed is not None and request.part != "full":
        try:
            await session.resumed.apply(request.part)
        except BaseException:
            await session.close()
            raise
    session.warm()
    mask.prepare()
    return session


def _ground(options: Options, request: OpenRequest) -> _Ground:
    trust = TrustStore(get_trust_path())
    trusted = _is_trusted(trust, options, request)
    settings = load_settings(find_root(options.cwd) if trusted else None, options.flags())
    catalog = Catalog.from_files()
    notices = [notice for notice in (trust.notice, *catalog.notices) if notice]
    roles = {} if options.ready_model else _roles(settings, catalog, notices)
    return _Ground(options, settings, trust, trusted, catalog, roles, notices)


def _roles(settings: Settings, catalog: Catalog, notices: list[str]) -> Mapping[Role, str]:
    """Who works beside the conversation: by the settings, else by models.yaml; says where that cannot be."""
    roles: dict[Role, str] = {}
    asked: tuple[tuple[Role, str, str], ...] = (
        ("compact", "", ""),
        ("classify", "memory.classifier_model", settings.memory.classifier_model),
        ("retrieve", "memory.retrieval_model", settings.memory.retrieval_model),
    )
    for role, key, named in asked:
        name = named
        try:
            name = catalog.resolve(named) if named else catalog.role(role)
            reason = catalog.unusable(name) if name else ""
        except NoModelError as error:
            reason = error.message.rstrip(".")
        if reason:
            where = f"`{key}`" if named else f"`{role}` of models.yaml"
            notices.append(f"{where}{name and f' ({name})'} cannot be used: {reason}.")
        elif name:
            roles[role] = name
    return roles


def _is_trusted(store: TrustStore, options: Options, request: OpenRequest) -> bool:
    root = find_root(options.cwd)
    files = acting_files(root, options.cwd)
    if not files or store.is_trusted(root, files):
        return True
    if options.trust or request.trust == "yes":
        store.trust(root, files)
        return True
    if request.trust == "no":
        return False
    raise TrustNeeded(root, store.untrusted(root, files))


async def _memory(
    store: MemoryStore, ground: _Ground, request: OpenRequest, resumed: SessionInfo | None, commits: Mapping[str, str]
) -> MemoryManager:
    project = str(ground.options.cwd)
    if resumed is not None:
        if request.read_only:
            ground.notices.append("Opened read-only: nothing that is said here is saved.")
        if resumed.project != project and not Path(resumed.project).is_dir():
            hint = "" if request.fork else " With --fork a copy of it would belong here."
            ground.notices.append(f"{resumed.project}, where this session was, is gone: it goes on in {project}.{hint}")
        return await MemoryManager.resume(
            store, resumed.id, project=project, read_only=request.read_only, fork=request.fork
        )
    return MemoryManager.start(store, project=project, model=_model_name(ground), commits=commits)


def _memory_stores(ground: _Ground, mask: SecretMask) -> list[GitMemoryStore]:
    """The scopes of long-term memory that are in use; the repository's own only where its folder is trusted (R1)."""
    settings, histories = ground.settings.memory, get_history_dir()
    if not settings.enabled or not ground.options.memory or ground.options.ephemeral:
        return []
    stores = [user_store(get_memory_dir(), histories, mask.kind_of_secret, settings.remote)]
    if settings.repo.enabled and ground.trusted:
        root = find_root(ground.options.cwd)
        stores.append(repo_store(root, histories, mask.kind_of_secret, is_shared=settings.repo.share))
    return stores


def _guarded(store: GitMemoryStore) -> GuardedMemory:
    return GuardedMemory(store.folder, None if store.is_shared else store.repository.git_dir)


def _parts(
    ground: _Ground,
    sessions: tuple[MemoryStore, SessionCatalog, SessionInfo | None],
    memory: MemoryManager,
    mask: SecretMask,
    scopes: MemoryScopes,
) -> SessionParts:
    options, settings = ground.options, ground.settings
    store, session_catalog, resumed = sessions
    root = find_root(options.cwd)
    outputs = memory.outputs
    workspace = Workspace(options.cwd, (*options.add_dirs, outputs), [_guarded(each.store) for each in scopes.opened])
    rules = RuleStore(get_permissions_path(), root)
    permissions = Permissions(
        workspace,
        settings.permissions.mode,
        allow=(*settings.permissions.allow, *rules.load()),
        ask=settings.permissions.ask,
        deny=settings.permissions.deny,
        on_remember=rules.add,
        finds_secret=mask.kind_of_secret,
    )
    jobs, plan = ShellJobs(outputs, mask.mask), Plan()
    seen = FilesSeen(no_secrets_in_memory(workspace, mask.kind_of_secret))
    shell = Shell(options.cwd, jobs, outputs, os.environ, NoSandbox(), mask.mask, secrets=ground.catalog.key_values())
    lookup = lookup_in(root, scopes.opened, settings, ground.catalog, session_catalog)
    search = search_for(lookup, scopes.opened, root) if lookup else None
    models = _models(ground, _model_name(ground, memory.model), mask)
    questions = Questions()
    background = Background(questions)
    builder = MemoryBuilder(
        settings=settings,
        catalog=ground.catalog,
        cwd=options.cwd,
        scopes=scopes,
        memory=memory,
        models=models,
        store=store,
        session_catalog=session_catalog,
        lookup=lookup,
        channel=background,
        finds_secret=mask.kind_of_secret,
        has_jobs=lambda: any(job.running for job in jobs.list()),
    )
    return SessionParts(
        cwd=options.cwd,
        memory=memory,
        permissions=permissions,
        jobs=jobs,
        shell=shell,
        plan=plan,
        seen=seen,
        tools=builtin_tools(ToolParts(workspace, shell, jobs, plan.change, seen, search)),
        models=models,
        instructions=system_prompt(project_instructions(options.cwd) if ground.trusted else ()),
        trusts=lambda path: ground.trusted and ground.trust.is_trusted(root, [path]),
        compaction=CompactionRules(**asdict(settings.compaction)),
        remembers=builder.build(captures=options.captures, is_saved=not options.ephemeral, is_new=resumed is None),
        questions=questions,
        background=background,
        limits=Limits(**asdict(settings.limits)),
        session_catalog=session_catalog,
        resumed=resumed,
        list_files=lambda: list_project_files(options.cwd),
        titles=options.titles and settings.sessions.titles and not options.ephemeral,
        notices=tuple(ground.notices),
        is_kept=not options.ephemeral,
    )


def _session_catalog(store: MemoryStore, options: Options) -> SessionCatalog:
    """All sessions, this one among them; those that are not kept are in memory only."""
    project = str(options.cwd)
    if options.ephemeral:
        return SessionCatalog(store, project)
    return catalog_on(store, get_sessions_dir(), get_index_path(), project)


def _model_name(ground: _Ground, used_before: str = "") -> str:
    """The model that the command line, the resumed session or the settings name, in this order."""
    options, settings, catalog = ground.options, ground.settings, ground.catalog
    if options.ready_model:
        return options.ready_model.spec.name
    if used_before and not options.model:
        if not (reason := catalog.unusable(used_before)):
            return used_before
        ground.notices.append(f"{used_before}, which this session used, cannot be used now: {reason}.")
    return catalog.resolve(settings.model or catalog.default())


def _models(ground: _Ground, name: str, mask: SecretMask) -> ModelSource:
    if ready := ground.options.ready_model:
        return ModelSource(name, "off", lambda _name, _effort: [ready], _no_choices)
    catalog = ground.catalog

    def make(name: str, effort: Effort) -> Sequence[Model]:
        models = [catalog.make(each, effort) for each in (name, *catalog.fallbacks(name))]
        mask.learn(catalog.key_values())  # a key that a command gives is known only now
        return models

    return ModelSource(name, ground.settings.effort, make, lambda: _choices(catalog), ground.roles)


async def _choices(catalog: Catalog) -> tuple[ModelChoice, ...]:
    found = await asyncio.to_thread(catalog.choices)
    return tuple(ModelChoice(each.name, each.usable, each.reason) for each in found)


async def _no_choices() -> tuple[ModelChoice, ...]:
    return ()
