"""Build the long-term memory of a session from the settings."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import LimitReached, NoModelError
from ouro.llm import Catalog, ModelSource, Role
from ouro.memory.backend import MemoryStore
from ouro.memory.index import Embedder, Lookup, chosen_embedder, is_embedder_chosen
from ouro.memory.long_term import (
    MARK,
    MemoryScopes,
    ScopeMemory,
    SessionMemory,
    TurnMarks,
    make_lookup,
    mark_of,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.side_calls import AskModel, SessionChannel, ask_in_background
from ouro.messages import Message, Usage, system
from ouro.safety import Confinement
from ouro.session.budget import VectorBudget
from ouro.settings import Settings
from ouro.tools.shell import ShellJobs
from ouro.utils.git import find_root
from ouro.utils.runtime import get_history_dir, get_recall_log_path, home_secret

if TYPE_CHECKING:
    from ouro.memory.long_term import (
        Capture,
        CaptureObserver,
        Crystallizer,
        LongTermMemoryManager,
        MemoryMaintenance,
        NoteConsolidator,
        SessionNotes,
        TurnRecall,
    )


class MemoryBuilder(msgspec.Struct, frozen=True):
    """Imports each part where it is built: a session without memory loads none of them."""

    settings: Settings
    catalog: Catalog
    cwd: Path
    scopes: MemoryScopes
    memory: MemoryManager
    models: ModelSource
    store: MemoryStore
    session_catalog: SessionCatalog
    lookup: Lookup | None
    channel: SessionChannel
    finds_secret: Callable[[str], str]
    marks: TurnMarks

    def build(self, *, captures: bool, is_saved: bool, is_new: bool) -> SessionMemory:
        """Build the memory of the session.

        Args:
            captures: the session is interactive: capture notes and maintain memory in the background.
            is_saved: the session is on disk.
            is_new: the session was not resumed.
        """
        is_written = captures and not self.memory.read_only
        manager = self._manager() if self.scopes.stores else None
        capture = self._capture(manager) if manager and is_written else None
        busy = capture.busy if capture else asyncio.Lock()
        maintenance = self._maintenance(manager, busy, is_automatic=is_written, is_new=is_new) if is_saved else None
        recall = self._recall() if manager else None
        half_life = self.settings.memory.half_life_days
        return SessionMemory(self.memory, manager, self.lookup, recall, capture, maintenance, half_life)

    def _manager(self) -> LongTermMemoryManager:
        from ouro.memory.long_term import LongTermMemoryConsolidator, LongTermMemoryManager, MemoryPrompt

        memory, settings = self.memory, self.settings.memory
        threshold = settings.consolidation_threshold
        return LongTermMemoryManager(
            self.scopes,
            MemoryPrompt(self.scopes.opened, memory.session_id, memory.began_with, threshold, self._cached_price),
            self.cwd,
            self.channel,
            LongTermMemoryConsolidator(self._ask("compact", "consolidation"), self.finds_secret),
            self.marks,
            settings.write,
        )

    def _recall(self) -> TurnRecall | None:
        if self.lookup is None or not self.scopes.opened:
            return None
        from ouro.memory.long_term import HypothesisModel, NoteFinder, RecallLog, TurnRecall, ledger_of

        settings = self.settings.memory
        recall_log = RecallLog(get_recall_log_path())
        finder = NoteFinder(self.lookup, self.scopes.opened, self._root, self._mark, settings, recall_log)
        has_model = self.models.is_given("retrieve")
        hypotheses = HypothesisModel(
            self._ask("retrieve", "recall"),
            lambda: self.models.role("retrieve")[0].spec.window,
            has_embedding_model=is_embedder_chosen(settings.embedding_model, self.catalog),
        )
        repo = next((scope for scope in self.scopes.opened if scope.scope == "repo"), None)
        is_recorded = repo is not None and settings.commands and not self.memory.read_only
        commands = ledger_of(repo, self.finds_secret, self.cwd) if repo and is_recorded else None
        return TurnRecall(self.memory, finder, self.channel, hypotheses if has_model else None, commands)

    def _capture(self, manager: LongTermMemoryManager) -> CaptureObserver | None:
        memory, settings = self.memory, self.settings.memory
        if self.lookup is None or not self.scopes.opened or not settings.capture:
            return None
        from ouro.memory.long_term import CaptureBacklog, CaptureObserver

        return CaptureObserver(
            memory,
            manager,
            partial(self._capture_services, manager, self._ask("classify", "capture")),
            CaptureBacklog(self.store, memory.session_id, memory.project, get_history_dir() / "capture.lock"),
            self.channel,
            settings.cadence_turns,
            silent=settings.write == "silent",
        )

    def _capture_services(self, manager: LongTermMemoryManager, ask: AskModel) -> tuple[SessionNotes, Capture]:
        from ouro.memory.long_term import Capture, SessionNotes, SmallClassifier, categories_with

        assert self.lookup is not None
        settings = self.settings.memory
        notes = SessionNotes(self.scopes.opened, self.lookup, self._root, self.cwd, settings.half_life_days)
        categories, asks = categories_with(settings.categories), settings.write == "ask"
        small = SmallClassifier(ask, lambda: self.models.role("classify")[0].spec.is_small)
        return notes, Capture(notes, ask, self._mark, categories, manager.alone, asks=asks, small=small)

    def _maintenance(
        self, manager: LongTermMemoryManager | None, busy: asyncio.Lock, *, is_automatic: bool, is_new: bool
    ) -> MemoryMaintenance:
        from ouro.memory.long_term import MemoryMaintenance, Summaries

        memory = self.memory

        def asks(role: Role, purpose: str) -> AskModel:
            words = self._ask(role, purpose)

            async def ask(messages: list[Message], schema: Mapping[str, Any] | None = None) -> str:
                async with busy:
                    return await words(messages, schema)

            return ask

        summaries = Summaries(memory, self.store, self.session_catalog, asks("compact", "summary"), self._mark)
        has_memory = manager is not None and self.lookup is not None and bool(self.scopes.opened)
        return MemoryMaintenance(
            summaries=summaries if self.settings.sessions.summaries else None,
            make=partial(self._note_workers, manager, asks) if manager is not None and has_memory else None,
            lock=get_history_dir() / "digest.lock",
            price=self._classifier_price,
            usage=lambda: memory.usage,
            channel=self.channel,
            is_automatic=is_automatic,
            is_new=is_new,
            silent=self.settings.memory.write == "silent",
            carries_over=self.settings.sessions.carry_over == "summary",
        )

    def _note_workers(
        self, manager: LongTermMemoryManager, asks: Callable[[Role, str], AskModel]
    ) -> tuple[NoteConsolidator, Crystallizer]:
        from ouro.memory.long_term import CRYSTALLIZE_INSTRUCTIONS, Crystallizer, NoteConsolidator, categories_with

        classify = asks("classify", "crystallization")

        async def ask(messages: list[Message], schema: Mapping[str, Any] | None = None) -> str:
            instructions = messages[0].text + ("" if schema else CRYSTALLIZE_INSTRUCTIONS)
            return await classify([system(instructions), *messages[1:]], schema)

        notes, capture = self._capture_services(manager, ask)
        repositories = {scope.scope: scope.store.repository for scope in self.scopes.opened}
        consolidator = NoteConsolidator(
            asks("compact", "consolidation"),
            notes.notebook,
            repositories,
            categories_with(self.settings.memory.categories),
            self._mark,
            notes.similar,
            manager.alone,
        )
        repository = repositories.get("repo") or repositories["user"]
        return consolidator, Crystallizer(capture, self.store, self.session_catalog, repository, self.memory)

    def _ask(self, role: Role, purpose: str) -> AskModel:
        return ask_in_background(self.models, self.memory, role, purpose)

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
    def _mark(self) -> str:
        return mark_of(self.memory.began_with.get(MARK) or self.memory.session_id)

    @property
    def _root(self) -> Path:
        return find_root(self.cwd)


def marks_of(memory: MemoryManager, jobs: ShellJobs, confinement: Confinement) -> TurnMarks:
    """What is known of the commands of a session while its turns run."""

    def has_jobs() -> bool:
        return any(job.running for job in jobs.list())

    return TurnMarks(get_history_dir() / "turns", memory.session_id, has_jobs, confinement.was_kept_from_memory)


def begins_with(scopes: Sequence[ScopeMemory]) -> dict[str, str]:
    """What the header of a new session records: the memory version of each scope, and the source of the mark.

    While the core is the same, so is the mark, and with it the prompt: a provider has it in its cache. Who writes into
    memory cannot compute it without the secret of the home.
    """
    if not scopes:
        return {}
    core = [(scope.scope, str(scope.store.folder), scope.texts) for scope in scopes]
    source = hmac.digest(home_secret(), msgspec.json.encode(core, order="sorted"), "sha256").hex()
    return {**{scope.scope: scope.version for scope in scopes}, MARK: source}


def lookup_in(
    root: Path, scopes: Sequence[ScopeMemory], settings: Settings, catalog: Catalog, session_catalog: SessionCatalog
) -> Lookup | None:
    """The search over sessions and memory; None if no scope is in use."""
    if not scopes:
        return None
    has_own = any(scope.scope == "repo" for scope in scopes)
    return make_lookup(
        root if has_own else None, lambda: embedder_of(settings, catalog, session_catalog), settings.memory.core
    )


def embedder_of(settings: Settings, catalog: Catalog, session_catalog: SessionCatalog) -> Embedder | None:
    """The embedding model of the settings or models.yaml, else a local one; None: search by words only."""
    return chosen_embedder(settings.memory.embedding_model, catalog, VectorBudget(session_catalog, settings.limits))


def background_roles(settings: Settings, catalog: Catalog, notices: list[str]) -> Mapping[Role, str]:
    """Role -> full model name, from the settings, else from models.yaml; adds a notice for each unusable model."""
    roles: dict[Role, str] = {}
    wanted: tuple[tuple[Role, str, str], ...] = (
        ("compact", "", ""),
        ("classify", "memory.classifier_model", settings.memory.classifier_model),
        ("retrieve", "memory.retrieval_model", settings.memory.retrieval_model),
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
