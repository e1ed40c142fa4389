"""What the settings say of memory, as the parts of a session are told it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ouro.agent.limits import Limits
from ouro.llm.catalog import Catalog
from ouro.memory.index.embeddings import Embedder, chosen_embedder, is_embedder_chosen
from ouro.memory.index.lookup import Lookup
from ouro.memory.long_term.digest_rules import DigestRules
from ouro.memory.long_term.knowing import KnowledgeRules, RecallRules
from ouro.memory.long_term.learning_rules import LearningRules
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.long_term.search import make_lookup
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.session.budget import Purse
from ouro.settings import Settings


def knowledge_rules(settings: Settings, catalog: Catalog) -> KnowledgeRules:
    """Of the core, and of recall."""
    said = settings.memory
    steps = (said.retrieval_top_k, said.retrieval_hop_depth, said.retrieval_hypothesis_count)
    chosen = is_embedder_chosen(said.embedding_model, catalog)
    recall = RecallRules(said.retrieval, *steps, said.injection_token_budget, said.half_life_days, chosen)
    return KnowledgeRules(said.write, said.consolidation_threshold, recall)


def learning_rules(settings: Settings) -> LearningRules:
    """Of capture."""
    said = settings.memory
    return LearningRules(said.cadence_turns, said.write, said.half_life_days, said.categories)


def digest_rules(settings: Settings, *, by_itself: bool) -> DigestRules:
    """Of summaries, merged notes and old sessions; `by_itself` where a person stays."""
    said, wants = settings.memory, settings.sessions.summaries
    return DigestRules(wants, by_itself, said.write, said.half_life_days, said.categories)


def lookup_in(
    root: Path, scopes: Sequence[ScopeMemory], settings: Settings, catalog: Catalog, session_catalog: SessionCatalog
) -> Lookup | None:
    """What searches sessions and memory; none where there is no memory."""
    if not scopes:
        return None
    has_own = any(each.scope == "repo" for each in scopes)
    return make_lookup(root if has_own else None, lambda: embedder_of(settings, catalog, session_catalog))


def embedder_of(settings: Settings, catalog: Catalog, session_catalog: SessionCatalog) -> Embedder | None:
    """The embedding model that the settings or models.yaml name, else the one of this machine; None for words alone."""
    return chosen_embedder(
        settings.memory.embedding_model, catalog, Purse(session_catalog, Limits(**asdict(settings.limits)))
    )
