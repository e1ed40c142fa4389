"""Models: the catalog, one wire per provider protocol, streaming with retries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.llm.catalog import Candidate, Catalog, Route
    from ouro.llm.discovery import LocalServer, models_at
    from ouro.llm.embeddings import Embedded, EmbeddingModel
    from ouro.llm.endpoint import Endpoint, Timeouts, timeouts_for
    from ouro.llm.known_models import KNOWN
    from ouro.llm.model import (
        CallChunk,
        Chunk,
        Effort,
        EndChunk,
        Model,
        ModelSpec,
        Prices,
        TextChunk,
        ThinkingChunk,
        ToolSpec,
        UsageChunk,
        Warmable,
    )
    from ouro.llm.model_source import ModelChoice, ModelSource, Role
    from ouro.llm.models_file import ModelEntry, ModelsFile, read_models_file
    from ouro.llm.models_setup import HEADER, write_models_file
    from ouro.llm.providers import HOSTED, PROVIDERS, Provider
    from ouro.llm.retry import ModelCall, Retry, ask
    from ouro.llm.scripted_model import ScriptedModel, ScriptedReply, call, calls
    from ouro.llm.streaming import CUT_SHORT, ReplyBuilder

_MODULES = {
    "catalog": "Candidate Catalog Route",
    "discovery": "LocalServer models_at",
    "embeddings": "EmbeddingModel Embedded",
    "endpoint": "Endpoint Timeouts timeouts_for",
    "model": "CallChunk Chunk Effort EndChunk Model ModelSpec Prices TextChunk ThinkingChunk ToolSpec"
    " UsageChunk Warmable",
    "known_models": "KNOWN",
    "model_source": "ModelChoice ModelSource Role",
    "models_file": "ModelEntry ModelsFile read_models_file",
    "models_setup": "HEADER write_models_file",
    "providers": "HOSTED PROVIDERS Provider",
    "retry": "ModelCall Retry ask",
    "scripted_model": "ScriptedModel ScriptedReply call calls",
    "streaming": "CUT_SHORT ReplyBuilder",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import an export at its first use, so that start-up loads none."""
    if name not in _MODULE_OF:
        raise AttributeError(name)
    return getattr(import_module(f"ouro.llm.{_MODULE_OF[name]}"), name)
