"""Build the long-term memory of a session. The packages import what is built on first use: a
session without memory loads almost none of it.
"""

from __future__ import annotations

import asyncio
import hashlib
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
from ouro.memory.side_calls import AskModel, ask_in_background
from ouro.messages import Usage
from ouro.safety import Confinement
from ouro.session.budget import VectorBudget
from ouro.session_options import SessionBasis
from ouro.settings import MemorySettings, Settings
from ouro.tools.shell_jobs import ShellJobs
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import expand_home, get_history_dir, get_recall_log_path, home_secret
from ouro.utils.path_encoding import path_text


def build_memory(
    basis: SessionBasis,
    models: ModelSource,
    jobs: ShellJobs,
    confinement: Confinement,
    changed_files: long_term.ChangedFiles,
) -> long_term.SessionMemory:
    """Build the long-term memory of a session, also if memory is off: then it does nothing.

    Args:
        changed_files: returns the files that the turn has changed until now.
    """
    options, memory = basis.options, basis.memory
    lookup = _build_lookup(basis)
    marks = long_term.TurnMarks(
        get_history_dir() / "turns",
        memory.session_id,
        lambda: any(job.running for job in jobs.list()),
        confinement.was_kept_from_memory,
    )
    # Only a session with a user captures notes, and only one that is not open read-only.
    is_written = options.interactive and not memory.read_only
    manager = _build_manager(basis, basis.scopes, models, marks) if basis.scopes else None
    recall = capture = maintenance = None
    if manager is not None and lookup is not None:
        recall = _build_recall(basis, models, manager, lookup, changed_files)
        if is_written and basis.settings.memory.capture:
            capture = _build_capture_observer(basis, models, manager, lookup)
    if not options.ephemeral:  # also without memory: it writes the summaries of sessions
        # The lock that capture holds during its model calls: maintenance makes none meanwhile.
        busy = capture.busy if capture else asyncio.Lock()
        maintenance = _build_maintenance(
            basis, models, manager, lookup, busy, is_automatic=is_written
        )
    half_life = basis.settings.memory.half_life_days
    return long_term.SessionMemory(
        memory=memory,
        manager=manager,
        lookup=lookup,
        recall=recall,
        capture=capture,
        maintenance=maintenance,
        half_life_days=half_life,
    )


def _build_lookup(basis: SessionBasis) -> memory_index.Lookup | None:
    """Build the search over sessions and memory; None if no scope is in use."""
    if not basis.opened_scopes:
        return None
    inputs = basis.inputs

    def make_embedder() -> memory_index.Embedder | None:
        """Build what makes vectors, when it is needed; None if there is no embedding model."""
        budget = VectorBudget(basis.session_catalog, inputs.settings.limits)
        return memory_index.choose_embedder(
            inputs.settings.memory.embedding_model, inputs.catalog, budget
        )

    return long_term.make_lookup([scope.store for scope in basis.opened_scopes], make_embedder)


def _build_manager(
    basis: SessionBasis,
    scopes: long_term.MemoryScopes,
    models: ModelSource,
    marks: long_term.TurnMarks,
) -> long_term.LongTermMemoryManager:
    """Build the manager of long-term memory, with the text that it adds to prompts."""
    memory, settings = basis.memory, basis.settings.memory

    def cached_price(tokens: int) -> float | None:
        """What so many tokens cost if the provider has them in its cache; None if that is not known."""
        prices = models.main.spec.prices
        return prices.cost(Usage(input=tokens, cached=tokens)) if prices else None

    def make_core_consolidator() -> long_term.LongTermMemoryConsolidator:
        """Build what merges the core, when it is needed."""
        return long_term.LongTermMemoryConsolidator(
            ask_in_background(models, memory=memory, role="compact", purpose="consolidation"),
            basis.mask.kind_in_memory,
            lambda: models.spec_for("compact").is_small,
        )

    prompt = long_term.MemoryPrompt(
        scopes=scopes.opened,
        session_id=memory.session_id,
        began_with=memory.began_with,
        threshold=settings.consolidation_threshold,
        price=cached_price,
    )
    return long_term.LongTermMemoryManager(
        scopes, prompt, basis.tasks, basis.cwd, make_core_consolidator, marks, settings.write
    )


def _build_recall(
    basis: SessionBasis,
    models: ModelSource,
    manager: long_term.LongTermMemoryManager,
    lookup: memory_index.Lookup,
    changed_files: long_term.ChangedFiles,
) -> long_term.TurnRecall:
    """Build the recall before each message. Commands and dead ends need memory of the repository."""
    memory, settings = basis.memory, basis.settings.memory
    finder = long_term.NoteFinder(
        lookup=lookup,
        scopes=basis.opened_scopes,
        root=basis.root,
        cwd=basis.cwd,
        mark=_mark_of_session(memory),
        settings=settings,
        recall_log_path=get_recall_log_path(),
        is_model_local=lambda: (
            not memory_index.is_embedder_chosen(settings.embedding_model, basis.inputs.catalog)
        ),
        listings=manager.listings,
    )
    scopes = {scope.name: scope for scope in basis.opened_scopes}
    repo = scopes.get("repo")
    commands = dead_ends = None
    if repo is not None and settings.commands and not memory.read_only:
        commands = long_term.ledger_of(repo, basis.mask.kind_in_memory, basis.cwd)
        command_looks = long_term.CommandLooks(finder, changed_files)
        dead_ends = _build_dead_ends(basis, models, manager, repo, command_looks)
    return long_term.TurnRecall(
        memory=memory,
        finder=finder,
        channel=basis.tasks,
        hypotheses=_build_hypotheses(basis, models),
        commands=commands,
        dead_ends=dead_ends,
        other_projects=_build_other_projects(basis, finder),
    )


def _build_dead_ends(
    basis: SessionBasis,
    models: ModelSource,
    manager: long_term.LongTermMemoryManager,
    repo: long_term.ScopeMemory,
    looks: long_term.CommandLooks,
) -> long_term.DeadEnds:
    """Build the notes about what did not work. With a user and capture, a model may be asked for the
    reason.
    """
    # Like capture, it asks a model about a turn that has ended.
    may_ask = basis.options.interactive and basis.settings.memory.capture
    ask = ask_in_background(models, memory=basis.memory, role="classify", purpose="dead ends")
    return long_term.DeadEnds(
        memory=basis.memory,
        manager=manager,
        finder=looks.finder,
        repo=repo,
        channel=basis.tasks,
        write=basis.settings.memory.write,
        looks=looks,
        ask=ask if may_ask else None,
    )


def _build_other_projects(
    basis: SessionBasis, finder: long_term.NoteFinder
) -> long_term.OtherProjects | None:
    """Build the search in other projects; None without a user, who alone may see its results."""
    settings = basis.settings.memory
    if not (settings.other_projects and basis.options.interactive):
        return None
    folders = [expand_home(folder) for folder in settings.private_projects]
    return long_term.OtherProjects(finder, [folder.resolve() for folder in folders])


def _build_hypotheses(basis: SessionBasis, models: ModelSource) -> long_term.HypothesisModel | None:
    """Build the model that writes search texts; None if no model has the role `retrieve`."""
    if not models.is_given("retrieve"):
        return None
    catalog = basis.inputs.catalog
    is_small = catalog.spec(basis.inputs.roles["retrieve"]).is_small
    embedding_model = basis.settings.memory.embedding_model
    return long_term.HypothesisModel(
        ask_in_background(models, memory=basis.memory, role="retrieve", purpose="recall"),
        lambda: models.spec_for("retrieve").window,
        is_for_automatic_search=not is_small
        and memory_index.is_embedder_chosen(embedding_model, catalog),
    )


def _build_capture_observer(
    basis: SessionBasis,
    models: ModelSource,
    manager: long_term.LongTermMemoryManager,
    lookup: memory_index.Lookup,
) -> long_term.CaptureObserver:
    """Build the observer that captures memory after turns."""
    settings = basis.settings.memory
    ask = ask_in_background(models, memory=basis.memory, role="classify", purpose="capture")
    return long_term.CaptureObserver(
        memory=basis.memory,
        manager=manager,
        make=partial(_build_capture, basis, models, manager, lookup, ask),
        session_catalog=basis.session_catalog,
        channel=basis.tasks,
        cadence=settings.cadence_turns,
        silent=settings.write == "silent",
    )


def _build_capture(
    basis: SessionBasis,
    models: ModelSource,
    manager: long_term.LongTermMemoryManager,
    lookup: memory_index.Lookup,
    ask: AskModel,
    more_instructions: str = "",
) -> long_term.Capture:
    """Build the capture of notes: where they are saved, and the question to the model."""
    settings = basis.settings.memory
    notes = long_term.SessionNotes(
        basis.opened_scopes, lookup, basis.root, basis.cwd, settings.half_life_days
    )
    question = long_term.MeaningQuestion(
        ask=ask,
        mark=_mark_of_session(basis.memory),
        categories=long_term.categories_with(settings.categories),
        is_small=lambda: models.spec_for("classify").is_small,
        more_instructions=more_instructions,
    )
    return long_term.Capture(
        notes,
        question,
        manager.run_under_lock,
        asks=settings.write == "ask",
        find_checked=long_term.find_checked_turns,
    )


def _build_maintenance(
    basis: SessionBasis,
    models: ModelSource,
    manager: long_term.LongTermMemoryManager | None,
    lookup: memory_index.Lookup | None,
    busy: asyncio.Lock,
    *,
    is_automatic: bool,
) -> long_term.MemoryMaintenance:
    """Build the maintenance of memory and summaries. Its workers are built when they are needed. It
    starts by itself only if `is_automatic`.
    """
    memory, sessions = basis.memory, basis.settings.sessions

    def make_summaries() -> long_term.Summaries:
        """Build what writes the summaries of sessions, when it is needed."""
        ask = ask_in_background(models, memory=memory, role="compact", purpose="summary", busy=busy)
        return long_term.Summaries(memory, basis.session_catalog, ask, _mark_of_session(memory))

    def classifier_price(tokens: int) -> float | None:
        """What so many tokens cost with the model that classifies; None if that is not known."""
        try:
            prices = models.spec_for("classify").prices
        except LimitReached:
            return None
        return prices.cost(Usage(input=tokens)) if prices else None

    make_workers = None
    if manager is not None and lookup is not None:
        make_workers = partial(_build_note_workers, basis, models, manager, lookup, busy)
    return long_term.MemoryMaintenance(
        make_summaries=make_summaries if sessions.summaries else None,
        make=make_workers,
        lock=get_history_dir() / "digest.lock",
        price=classifier_price,
        usage=lambda: memory.usage,
        channel=basis.tasks,
        is_automatic=is_automatic,
        is_new=basis.resumed is None,
        silent=basis.settings.memory.write == "silent",
        carries_over=sessions.carry_over == "summary",
    )


def _build_note_workers(
    basis: SessionBasis,
    models: ModelSource,
    manager: long_term.LongTermMemoryManager,
    lookup: memory_index.Lookup,
    busy: asyncio.Lock,
) -> long_term.NoteWorkers:
    """Build the workers that merge notes, read old sessions, and write search words."""
    memory = basis.memory
    ask = ask_in_background(
        models, memory=memory, role="classify", purpose="crystallization", busy=busy
    )
    capture = _build_capture(
        basis, models, manager, lookup, ask, more_instructions=long_term.CRYSTALLIZE_INSTRUCTIONS
    )
    repositories = {scope.name: scope.store.repository for scope in basis.opened_scopes}
    consolidator = long_term.NoteConsolidator(
        ask=ask_in_background(
            models, memory=memory, role="compact", purpose="consolidation", busy=busy
        ),
        notebook=capture.notes.notebook,
        repositories=repositories,
        categories=long_term.categories_with(basis.settings.memory.categories),
        mark=_mark_of_session(memory),
        find_alike=capture.notes.find_alike,
        run_under_lock=manager.run_under_lock,
        is_small=lambda: models.spec_for("compact").is_small,
    )
    repository = repositories.get("repo") or repositories["user"]
    crystallizer = long_term.Crystallizer(capture, basis.session_catalog, repository, memory)
    settings = basis.settings.memory
    search_words = None
    if settings.capture and settings.write != "ask":
        search_words = _build_search_words_writer(
            basis, models, manager, capture.notes.notebook, busy
        )
    return long_term.NoteWorkers(consolidator, crystallizer, search_words)


def _build_search_words_writer(
    basis: SessionBasis,
    models: ModelSource,
    manager: long_term.LongTermMemoryManager,
    notebook: long_term.Notebook,
    busy: asyncio.Lock,
) -> long_term.SearchWordsWriter:
    """Build the worker that writes the search words of notes."""
    ask = ask_in_background(
        models, memory=basis.memory, role="classify", purpose="search words", busy=busy
    )
    return long_term.SearchWordsWriter(
        ask=ask,
        notebook=notebook,
        repositories={scope.name: scope.store.repository for scope in basis.opened_scopes},
        mark=_mark_of_session(basis.memory),
        run_under_lock=manager.run_under_lock,
        is_small=lambda: models.spec_for("classify").is_small,
        languages=lambda: long_term.find_languages(long_term.own_words(basis.memory.messages())),
    )


def _mark_of_session(memory: MemoryManager) -> str:
    """The mark around the notes in the prompts of a session. It is made from the source in its header,
    or from its id if that has none.
    """
    return long_term.mark_of(memory.began_with.get(long_term.MARK) or memory.session_id)


def memory_header_values(scopes: Sequence[long_term.ScopeMemory]) -> dict[str, str]:
    """The values for the header of a new session: the memory version of each scope, the source of
    the mark, and the day. Empty without scopes.

    The mark sets off the text of memory in the prompt. It only changes with the core, so that the
    prompt stays in the provider's cache. No text in memory can imitate it, because it is computed
    with the secret of the home.
    """
    if not scopes:
        return {}
    core = [(scope.name, path_text(scope.store.folder), scope.texts) for scope in scopes]
    source = hashlib.blake2b(
        msgspec.json.encode(core, order="sorted"), key=home_secret(), digest_size=32
    ).hexdigest()
    today = datetime.now(UTC).date().isoformat()
    versions: dict[str, str] = {scope.name: scope.version for scope in scopes}
    return {**versions, long_term.MARK: source, long_term.DAY: today}


def open_memory(
    settings: MemorySettings, trusted: Path | None, finds_secret: Callable[[str], str]
) -> long_term.MemoryScopes | None:
    """Open the memory of the user, and that of the repository of the `trusted` folder. If `trusted`
    is None, only that of the user is opened. Returns None if memory is off. Blocks.
    """
    if not settings.enabled:
        return None
    root = find_root(trusted) if trusted else None
    stores = long_term.memory_stores(settings, root, finds_secret)
    return long_term.open_scopes(stores, defers_listing=True)


def background_roles(
    settings: Settings, catalog: Catalog, notices: list[str]
) -> Mapping[Role, str]:
    """The full name of the model of each role in the background: from the settings, else from
    models.yaml. A role without a model that can be used is left out; if one is named, a notice is
    added to `notices`.
    """
    roles: dict[Role, str] = {}
    # Each role with its setting and the value of that; the role `compact` has none.
    keys_of_roles: tuple[tuple[Role, str, str], ...] = (
        ("compact", "", ""),
        ("classify", "memory.classifier_model", settings.memory.classifier_model),
        ("retrieve", "memory.retrieval_model", settings.memory.retrieval_model),
        ("embed", "memory.embedding_model", settings.memory.embedding_model),
        ("plan", "models.plan", settings.models.plan),
    )
    for role, key, name_in_settings in keys_of_roles:
        name = name_in_settings
        try:
            name = (
                catalog.resolve(name_in_settings) if name_in_settings else catalog.model_for(role)
            )
            reason = catalog.why_unusable(name) if name else ""
        except NoModelError as error:
            reason = error.message.rstrip(".")
        if reason:
            where = f"`{key}`" if name_in_settings else f"`{role}` of models.yaml"
            name_shown = f" ({name})" if name else ""
            notices.append(f"{where}{name_shown} cannot be used: {reason}.")
        elif name:
            roles[role] = name
    return roles
