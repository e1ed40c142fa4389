"""Build the long-term memory of a session from the settings."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from ouro.errors import LimitReached, NoModelError
from ouro.llm import Catalog, ModelSource, Role
from ouro.memory import index as memory_index
from ouro.memory import long_term
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.side_calls import AskModel, SessionChannel, ask_in_background
from ouro.messages import Usage
from ouro.safety import Confinement
from ouro.session.budget import VectorBudget
from ouro.session_options import SessionInputs
from ouro.settings import MemorySettings, Settings
from ouro.tools.shell_jobs import ShellJobs
from ouro.utils.git import find_root
from ouro.utils.path_text import path_text
from ouro.utils.runtime import get_history_dir, get_recall_log_path, home_secret


class MemoryBuilder(msgspec.Struct, frozen=True):
    """Imports each module where its object is built: a session without memory loads none of them."""

    inputs: SessionInputs
    scopes: long_term.MemoryScopes | None
    """None: memory is off."""
    memory: MemoryManager
    models: ModelSource
    session_catalog: SessionCatalog
    lookup: memory_index.Lookup | None
    """None: no scope is in use."""
    channel: SessionChannel
    finds_secret: Callable[[str], str]
    changed_files: long_term.ChangedFiles
    """What the turn has changed until now."""

    def build(
        self, jobs: ShellJobs, confinement: Confinement, *, is_new: bool
    ) -> long_term.SessionMemory:
        """Build the memory of the session; `is_new`: it was not resumed."""
        options, session_id = self.inputs.options, self.memory.session_id
        folder, is_confined = get_history_dir() / "turns", confinement.was_kept_from_memory
        marks = long_term.TurnMarks(
            folder, session_id, lambda: any(job.running for job in jobs.list()), is_confined
        )
        is_written = options.interactive and not self.memory.read_only
        manager = self._manager(self.scopes, marks) if self.scopes else None
        capture = self._capture(manager) if manager and is_written else None
        busy = capture.busy if capture else asyncio.Lock()
        is_saved = not options.ephemeral
        maintenance = (
            self._maintenance(manager, busy, is_automatic=is_written, is_new=is_new)
            if is_saved
            else None
        )
        recall = self._recall(manager) if manager else None
        half_life = self._settings.half_life_days
        return long_term.SessionMemory(
            self.memory, manager, self.lookup, recall, capture, maintenance, half_life
        )

    def _manager(
        self, scopes: long_term.MemoryScopes, marks: long_term.TurnMarks
    ) -> long_term.LongTermMemoryManager:
        memory, settings = self.memory, self._settings
        threshold = settings.consolidation_threshold
        prompt = long_term.MemoryPrompt(
            scopes.opened, memory.session_id, memory.began_with, threshold, self._cached_price
        )
        return long_term.LongTermMemoryManager(
            scopes,
            prompt,
            self.channel,
            self.inputs.options.cwd,
            self._core_consolidator,
            marks,
            settings.write,
        )

    def _core_consolidator(self) -> long_term.LongTermMemoryConsolidator:
        return long_term.LongTermMemoryConsolidator(
            self._ask("compact", "consolidation"), self.finds_secret, self._is_compactor_small
        )

    def _recall(self, manager: long_term.LongTermMemoryManager) -> long_term.TurnRecall | None:
        if self.lookup is None:
            return None
        settings = self._settings
        recall_log = long_term.RecallLog(get_recall_log_path())
        cwd = self.inputs.options.cwd
        finder = long_term.NoteFinder(
            self.lookup, self._opened, self._root, cwd, self._mark, settings, recall_log
        )
        repo = next((scope for scope in self._opened if scope.scope == "repo"), None)
        commands = dead_ends = None
        if repo is not None and settings.commands and not self.memory.read_only:
            commands = long_term.ledger_of(repo, self.finds_secret, cwd)
            dead_ends = long_term.DeadEnds(
                self.memory,
                manager,
                finder,
                repo,
                self.channel,
                settings.write,
                long_term.CommandLooks(finder, self.changed_files),
                self._ask("classify", "dead ends") if self._may_ask_after_turns else None,
            )
        return long_term.TurnRecall(
            self.memory,
            finder,
            self.channel,
            self._hypotheses(),
            commands,
            dead_ends,
            self._other_projects(finder),
        )

    @property
    def _may_ask_after_turns(self) -> bool:
        """Whether models may be asked about a turn that has ended, as capture does."""
        return self.inputs.options.interactive and self._settings.capture

    def _other_projects(self, finder: long_term.NoteFinder) -> long_term.OtherProjects | None:
        """What other projects know is shown to a user, and to nobody else."""
        settings = self._settings
        if not (settings.other_projects and self.inputs.options.interactive):
            return None
        folders = [Path(folder).expanduser() for folder in settings.private_projects]
        return long_term.OtherProjects(finder, [folder.resolve() for folder in folders])

    def _hypotheses(self) -> long_term.HypothesisModel | None:
        if not self.models.is_given("retrieve"):
            return None
        catalog = self.inputs.catalog
        is_small = catalog.spec(self.inputs.roles["retrieve"]).is_small
        return long_term.HypothesisModel(
            self._ask("retrieve", "recall"),
            lambda: self.models.role("retrieve")[0].spec.window,
            is_for_auto=not is_small
            and memory_index.is_embedder_chosen(self._settings.embedding_model, catalog),
        )

    def _capture(
        self, manager: long_term.LongTermMemoryManager
    ) -> long_term.CaptureObserver | None:
        memory, settings = self.memory, self._settings
        if self.lookup is None or not settings.capture:
            return None
        return long_term.CaptureObserver(
            memory,
            manager,
            partial(self._new_capture, manager, self._ask("classify", "capture")),
            self.session_catalog,
            self.channel,
            settings.cadence_turns,
            silent=settings.write == "silent",
        )

    def _new_capture(
        self, manager: long_term.LongTermMemoryManager, ask: AskModel, more_instructions: str = ""
    ) -> long_term.Capture:
        assert self.lookup is not None
        settings, cwd = self._settings, self.inputs.options.cwd
        notes = long_term.SessionNotes(
            self._opened, self.lookup, self._root, cwd, settings.half_life_days
        )
        return long_term.Capture(
            notes,
            self._question(ask, more_instructions),
            manager.alone,
            asks=settings.write == "ask",
            find_checked=long_term.find_checked_turns,
        )

    def _question(self, ask: AskModel, more_instructions: str = "") -> long_term.MeaningQuestion:
        return long_term.MeaningQuestion(
            ask,
            self._mark,
            long_term.categories_with(self._settings.categories),
            lambda: self.models.role("classify")[0].spec.is_small,
            more_instructions,
        )

    def _maintenance(
        self,
        manager: long_term.LongTermMemoryManager | None,
        busy: asyncio.Lock,
        *,
        is_automatic: bool,
        is_new: bool,
    ) -> long_term.MemoryMaintenance:
        memory = self.memory

        def summaries() -> long_term.Summaries:
            return long_term.Summaries(
                memory, self.session_catalog, self._ask("compact", "summary", busy), self._mark
            )

        return long_term.MemoryMaintenance(
            make_summaries=summaries if self.inputs.settings.sessions.summaries else None,
            make=partial(self._note_workers, manager, busy) if manager and self.lookup else None,
            lock=get_history_dir() / "digest.lock",
            price=self._classifier_price,
            usage=lambda: memory.usage,
            channel=self.channel,
            is_automatic=is_automatic,
            is_new=is_new,
            silent=self._settings.write == "silent",
            carries_over=self.inputs.settings.sessions.carry_over == "summary",
        )

    def _note_workers(
        self, manager: long_term.LongTermMemoryManager, busy: asyncio.Lock
    ) -> tuple[long_term.NoteConsolidator, long_term.Crystallizer]:
        ask = self._ask("classify", "crystallization", busy)
        capture = self._new_capture(manager, ask, long_term.CRYSTALLIZE_INSTRUCTIONS)
        repositories = {scope.scope: scope.store.repository for scope in self._opened}
        consolidator = long_term.NoteConsolidator(
            self._ask("compact", "consolidation", busy),
            capture.notes.notebook,
            repositories,
            long_term.categories_with(self._settings.categories),
            self._mark,
            capture.notes.similar,
            manager.alone,
            self._is_compactor_small,
        )
        repository = repositories.get("repo") or repositories["user"]
        return consolidator, long_term.Crystallizer(
            capture, self.session_catalog, repository, self.memory
        )

    def _is_compactor_small(self) -> bool:
        return self.models.role("compact")[0].spec.is_small

    def _ask(self, role: Role, purpose: str, busy: asyncio.Lock | None = None) -> AskModel:
        return ask_in_background(self.models, self.memory, role, purpose, busy)

    def _cached_price(self, tokens: int) -> float | None:
        prices = self.models.current()[0].spec.prices
        return prices.cost(Usage(input=tokens, cached=tokens)) if prices else None

    def _classifier_price(self, tokens: int) -> float | None:
        try:
            prices = self.models.role("classify")[0].spec.prices
        except LimitReached:
            return None
        return prices.cost(Usage(input=tokens)) if prices else None

    @property
    def _settings(self) -> MemorySettings:
        return self.inputs.settings.memory

    @property
    def _opened(self) -> tuple[long_term.ScopeMemory, ...]:
        return self.scopes.opened if self.scopes else ()

    @property
    def _mark(self) -> str:
        return long_term.mark_of(
            self.memory.began_with.get(long_term.MARK) or self.memory.session_id
        )

    @property
    def _root(self) -> Path:
        return find_root(self.inputs.options.cwd)


def begins_with(scopes: Sequence[long_term.ScopeMemory]) -> dict[str, str]:
    """The values for the header of a new session: the memory version of each scope, and the source
    of the mark.

    The mark only changes with the core, so that the prompt stays in the provider's cache. Text in
    memory cannot contain it: it cannot be computed without the secret of the home.
    """
    if not scopes:
        return {}
    core = [(scope.scope, path_text(scope.store.folder), scope.texts) for scope in scopes]
    source = hmac.digest(home_secret(), msgspec.json.encode(core, order="sorted"), "sha256").hex()
    today = datetime.now(UTC).date().isoformat()
    versions: dict[str, str] = {scope.scope: scope.version for scope in scopes}
    return {**versions, long_term.MARK: source, long_term.DAY: today}


def open_memory(
    settings: MemorySettings, trusted: Path | None, finds_secret: Callable[[str], str]
) -> long_term.MemoryScopes | None:
    """The memory of the user, and that of the repository of a trusted folder; None if it is off.
    Blocks.
    """
    root = find_root(trusted) if trusted else None
    return (
        long_term.open_scopes(long_term.memory_stores(settings, root, finds_secret))
        if settings.enabled
        else None
    )


def lookup_in(
    scopes: Sequence[long_term.ScopeMemory], inputs: SessionInputs, session_catalog: SessionCatalog
) -> memory_index.Lookup | None:
    """The search over sessions and memory; None if no scope is in use."""

    def embedder() -> memory_index.Embedder | None:
        budget = VectorBudget(session_catalog, inputs.settings.limits)
        return memory_index.choose_embedder(
            inputs.settings.memory.embedding_model, inputs.catalog, budget
        )

    return long_term.make_lookup([scope.store for scope in scopes], embedder) if scopes else None


def background_roles(
    settings: Settings, catalog: Catalog, notices: list[str]
) -> Mapping[Role, str]:
    """Role -> full model name, from the settings, else from models.yaml; adds a notice for each
    unusable model.
    """
    roles: dict[Role, str] = {}
    wanted: tuple[tuple[Role, str, str], ...] = (
        ("compact", "", ""),
        ("classify", "memory.classifier_model", settings.memory.classifier_model),
        ("retrieve", "memory.retrieval_model", settings.memory.retrieval_model),
        ("embed", "memory.embedding_model", settings.memory.embedding_model),
        ("plan", "models.plan", settings.models.plan),
    )
    for role, key, named in wanted:
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
