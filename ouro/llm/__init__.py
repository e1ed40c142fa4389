"""Models: the catalog, one wire per provider protocol, streaming with retries.

Code outside of this package imports from here only. Modules are imported on first use.
"""

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.llm.catalog import Catalog
    from ouro.llm.listed_models import fetch_table
    from ouro.llm.model import (
        CallChunk,
        Chunk,
        Effort,
        Embedded,
        EmbeddingModel,
        EndChunk,
        Endpoint,
        Model,
        ModelChoice,
        ModelSpec,
        NoticeChunk,
        Prices,
        Role,
        TextChunk,
        ThinkingChunk,
        Timeouts,
        ToolSpec,
        UsageChunk,
        Warmable,
        constrain,
    )
    from ouro.llm.model_call import PATIENT_ATTEMPTS, ModelCall, WaitLimits
    from ouro.llm.model_check import (
        CHECK_SECONDS,
        MAX_CHECK_REQUESTS,
        CheckedModel,
        check_model,
        estimate_cost,
    )
    from ouro.llm.model_source import FavoriteModels, ModelSource
    from ouro.llm.models_file import (
        HEADER,
        KEY_FIELDS,
        ModelEntry,
        ModelsFile,
        read_models_file,
        write_models_file,
    )
    from ouro.llm.provider_errors import describe_connection_error
    from ouro.llm.provider_web_search import ProviderSearch, make_provider_search
    from ouro.llm.providers import (
        HOSTED,
        KNOWN_NAMES,
        PROVIDERS,
        Provider,
        ServerModels,
        find_known_spec,
        list_models_at,
    )
    from ouro.llm.reply_builder import CUT_SHORT, ReplyBuilder
    from ouro.llm.scripted_model import ScriptedModel, ScriptedReply, call, calls
    from ouro.llm.server_facts import Fact, FactStore, ServerFacts, describe_fact
    from ouro.llm.small_model_steps import is_step
    from ouro.llm.stored_keys import delete_key, store_key

__getattr__ = lazy_exports(__name__)
