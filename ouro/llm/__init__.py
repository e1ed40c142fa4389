"""Models: the catalog, one wire per provider protocol, streaming with retries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.llm.catalog import Candidate as Candidate
    from ouro.llm.catalog import Catalog as Catalog
    from ouro.llm.catalog import Route as Route
    from ouro.llm.discovery import LocalServer as LocalServer
    from ouro.llm.discovery import models_at as models_at
    from ouro.llm.embeddings import Embedded as Embedded
    from ouro.llm.embeddings import EmbeddingModel as EmbeddingModel
    from ouro.llm.endpoint import Endpoint as Endpoint
    from ouro.llm.endpoint import Timeouts as Timeouts
    from ouro.llm.endpoint import timeouts_for as timeouts_for
    from ouro.llm.known_models import KNOWN as KNOWN
    from ouro.llm.model import CallChunk as CallChunk
    from ouro.llm.model import Chunk as Chunk
    from ouro.llm.model import Effort as Effort
    from ouro.llm.model import EndChunk as EndChunk
    from ouro.llm.model import Model as Model
    from ouro.llm.model import ModelSpec as ModelSpec
    from ouro.llm.model import Prices as Prices
    from ouro.llm.model import TextChunk as TextChunk
    from ouro.llm.model import ThinkingChunk as ThinkingChunk
    from ouro.llm.model import ToolSpec as ToolSpec
    from ouro.llm.model import UsageChunk as UsageChunk
    from ouro.llm.model import Warmable as Warmable
    from ouro.llm.model_source import ModelChoice as ModelChoice
    from ouro.llm.model_source import ModelSource as ModelSource
    from ouro.llm.model_source import Role as Role
    from ouro.llm.models_file import ModelEntry as ModelEntry
    from ouro.llm.models_file import ModelsFile as ModelsFile
    from ouro.llm.models_file import read_models_file as read_models_file
    from ouro.llm.models_setup import HEADER as HEADER
    from ouro.llm.models_setup import write_models_file as write_models_file
    from ouro.llm.providers import HOSTED as HOSTED
    from ouro.llm.providers import PROVIDERS as PROVIDERS
    from ouro.llm.providers import Provider as Provider
    from ouro.llm.retry import ModelCall as ModelCall
    from ouro.llm.retry import Retry as Retry
    from ouro.llm.retry import ask as ask
    from ouro.llm.scripted_model import ScriptedModel as ScriptedModel
    from ouro.llm.scripted_model import ScriptedReply as ScriptedReply
    from ouro.llm.scripted_model import call as call
    from ouro.llm.scripted_model import calls as calls
    from ouro.llm.streaming import CUT_SHORT as CUT_SHORT
    from ouro.llm.streaming import ReplyBuilder as ReplyBuilder

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
