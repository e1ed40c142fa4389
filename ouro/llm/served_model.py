"""What a model server of the user says about a model in its own API: window and abilities."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec

from ouro.llm.model import ModelSpec
from ouro.llm.providers import MAX_OUTPUT, OUTPUT_SHARE
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import count, dictionaries, dictionary, string

ServerKind = Literal["ollama", "lm_studio", "llama_cpp", "vllm", "sglang"]
WANTED_WINDOW = 32_768
"""The context that Ollama is asked for if nothing says another one: its default of 4,096 tokens is
less than the tools and one file.
"""
LARGER: Mapping[ServerKind, str] = {
    "ollama": "Set `window` in models.yaml.",
    "lm_studio": "Load the model with a larger context length.",
    "llama_cpp": "Start it with a larger --ctx-size.",
    "vllm": "Start it with a larger --max-model-len.",
    "sglang": "Start it with a larger --context-length.",
}
"""How the user makes the window larger."""
PROPERTIES_TIMEOUT = 2.0
"""Seconds that llama.cpp has to say its properties."""
_OWNERS: Mapping[str, ServerKind] = {
    "library": "ollama",
    "organization_owner": "lm_studio",
    "llamacpp": "llama_cpp",
    "vllm": "vllm",
    "sglang": "sglang",
}
"""`owned_by` of a model in `/v1/models`."""
_PROVIDERS: Mapping[str, ServerKind] = {
    "ollama_chat": "ollama",
    "lm_studio": "lm_studio",
    "llama_cpp": "llama_cpp",
    "hosted_vllm": "vllm",
}
_NUM_CTX = late_pattern(r"(?m)^num_ctx\s+(\d+)")
_THINKS = late_pattern(r"enable_thinking|reasoning_effort|thinking_budget")
"""What the template of a model that can be asked to think reads."""
Fetch = Callable[[str, dict[str, Any] | None], Awaitable[Any]]
"""The JSON at a path of the server, None if there is none; with a body it is a POST."""
ModelRow = dict[str, Any]


class ServedModel(msgspec.Struct, frozen=True):
    """None: the server does not say it."""

    server: ServerKind
    window: int | None = None
    """The context with which the model is loaded."""
    longest: int | None = None
    """The maximum context of a server that loads the model as each request asks for."""
    images: bool | None = None
    thinking: bool | None = None
    tools: bool | None = None

    def changes(self, spec: ModelSpec, fixed: Collection[str]) -> dict[str, Any]:
        """The fields of the spec that the server knows better; `fixed` are those that the user has
        set. A window of the user counts as long as the server holds it.
        """
        said: dict[str, Any] = {"images": self.images, "thinking": self.thinking}
        if self.tools is False and spec.text_tools == "auto":
            said["text_tools"] = "on"
        if window := self._window(spec, is_fixed="window" in fixed):
            said["window"] = window
            said["max_output"] = min(window // OUTPUT_SHARE, MAX_OUTPUT)
            if "max_output" in fixed:
                said["max_output"] = min(spec.max_output, window)
        return {
            key: value
            for key, value in said.items()
            if value is not None and (key not in fixed or key in ("window", "max_output"))
        }

    def _window(self, spec: ModelSpec, *, is_fixed: bool) -> int | None:
        """The window to use. Ollama loads a model with the window that is asked for; other servers
        have set it.
        """
        if self.server == "ollama":
            wanted = spec.window if is_fixed else max(self.window or 0, WANTED_WINDOW)
            return min(wanted, self.longest or wanted)
        return min(self.window, spec.window) if self.window and is_fixed else self.window


async def ask_server(fetch: Fetch, provider: str, model: str) -> ServedModel | None:
    """What the server says about a model; None if it is of no known kind.

    Args:
        provider: the first half of the model's litellm name.
        model: its name on the server.
    """
    row = _find_row(await fetch("/v1/models", None), "data", "id", model)
    kind = _PROVIDERS.get(provider) or _OWNERS.get(string(row.get("owned_by")))
    match kind:
        case "ollama":
            return await _ask_ollama(fetch, model)
        case "lm_studio":
            return await _ask_lm_studio(fetch, model)
        case "llama_cpp":
            return await _ask_llama_cpp(fetch, row)
        case "sglang":
            info = dictionary(await fetch("/get_model_info", None))
            sees = _flag(info, "has_image_understanding")
            return ServedModel("sglang", count(row.get("max_model_len")), images=sees)
        case "vllm" if row:
            return ServedModel("vllm", count(row.get("max_model_len")))
    return None


async def _ask_ollama(fetch: Fetch, model: str) -> ServedModel | None:
    """What Ollama says about a model and the context with which it is loaded; None if it has no
    such model.
    """
    shown = dictionary(await fetch("/api/show", {"model": model}))
    info = dictionary(shown.get("model_info"))
    if not info:
        return None
    lengths = [count(value) for key, value in info.items() if key.endswith(".context_length")]
    loaded = _find_row(await fetch("/api/ps", None), "models", "model", model)
    loaded = loaded or {}
    configured = _NUM_CTX.search(string(shown.get("parameters")))
    window = count(loaded.get("context_length")) or (int(configured[1]) if configured else None)
    abilities = shown.get("capabilities")
    if not isinstance(abilities, list):
        return ServedModel("ollama", window, next(iter(lengths), None))
    return ServedModel(
        "ollama",
        window,
        next(iter(lengths), None),
        images="vision" in abilities,
        thinking="thinking" in abilities,
        tools="tools" in abilities,
    )


async def _ask_lm_studio(fetch: Fetch, model: str) -> ServedModel:
    """What LM Studio says, by its newer API, else by its older one."""
    row = _find_row(await fetch("/api/v1/models", None), "models", "key", model)
    if not row:
        old = _find_row(await fetch("/api/v0/models", None), "data", "id", model)
        sees = old.get("type") == "vlm" if old else None
        return ServedModel("lm_studio", count(old.get("loaded_context_length")), images=sees)
    instances = dictionaries(row.get("loaded_instances"))
    lengths = [count(dictionary(found.get("config")).get("context_length")) for found in instances]
    abilities = dictionary(row.get("capabilities"))
    thinks = bool(abilities["reasoning"]) if "reasoning" in abilities else None
    window = next(iter(lengths), None)
    return ServedModel("lm_studio", window, images=_flag(abilities, "vision"), thinking=thinks)


async def _ask_llama_cpp(fetch: Fetch, row: ModelRow) -> ServedModel:
    """What llama.cpp says about its only model; a server that is busy says little."""
    props: dict[str, Any] = {}
    # While it computes an answer it does not say its properties; the list of models it does.
    with suppress(TimeoutError):
        async with asyncio.timeout(PROPERTIES_TIMEOUT):
            props = dictionary(await fetch("/props", None))
    settings = dictionary(props.get("default_generation_settings"))
    window = count(settings.get("n_ctx")) or count(dictionary(row.get("meta")).get("n_ctx"))
    template = string(props.get("chat_template"))
    return ServedModel(
        "llama_cpp",
        window,
        images=_flag(dictionary(props.get("modalities")), "vision"),
        thinking=bool(_THINKS.search(template)) if template else None,
    )


def _find_row(answer: Any, rows: str, key: str, model: str) -> ModelRow:
    """The row of a model, else the only row; empty if there is none.

    Ollama adds `:latest` to a name without a tag.
    """
    found = dictionaries(dictionary(answer).get(rows))
    named = [row for row in found if row.get(key) in (model, f"{model}:latest")]
    if named:
        return named[0]
    return found[0] if len(found) == 1 and key == "id" else {}


def _flag(values: ModelRow, key: str) -> bool | None:
    """The boolean of this name; None if there is none."""
    return value if isinstance(value := values.get(key), bool) else None
