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
LARGER_WINDOW_HINTS: Mapping[ServerKind, str] = {
    "ollama": "Set `window` in models.yaml.",
    "lm_studio": "Load the model with a larger context length.",
    "llama_cpp": "Start it with a larger --ctx-size.",
    "vllm": "Start it with a larger --max-model-len.",
    "sglang": "Start it with a larger --context-length.",
}
"""What the user can do to make the window larger."""
PROPERTIES_TIMEOUT = 2.0
"""Seconds that llama.cpp has to say its properties."""
_SERVER_BY_OWNER: Mapping[str, ServerKind] = {
    "library": "ollama",
    "organization_owner": "lm_studio",
    "llamacpp": "llama_cpp",
    "vllm": "vllm",
    "sglang": "sglang",
}
"""`owned_by` of a model in `/v1/models` -> the server."""
_SERVER_BY_PROVIDER: Mapping[str, ServerKind] = {
    "ollama_chat": "ollama",
    "lm_studio": "lm_studio",
    "llama_cpp": "llama_cpp",
    "hosted_vllm": "vllm",
}
"""The first half of a litellm name -> the server."""
_CONTEXT_SETTING = late_pattern(r"(?m)^num_ctx\s+(\d{1,18})\b")
"""Matches the window in the parameters of a model of Ollama: `num_ctx 8192`."""
_THINKING_SWITCH = late_pattern(r"enable_thinking|reasoning_effort|thinking_budget")
"""Matches what is in the template of a model that can be asked to think."""
Fetch = Callable[[str, dict[str, Any] | None], Awaitable[Any]]
"""Returns the JSON at a path of the server; None if there is none. With a body it sends a POST."""
ModelRow = dict[str, Any]
"""What a list of models says about one of them."""


class ServedModel(msgspec.Struct, frozen=True):
    """What a server says about a model. A field is None if it does not say it."""

    server: ServerKind
    window: int | None = None
    """The window with which the model is loaded."""
    longest: int | None = None
    """The maximum window of a server that loads the model as each request asks for it."""
    images: bool | None = None
    thinking: bool | None = None
    tools: bool | None = None

    def changes(self, spec: ModelSpec, fixed: Collection[str]) -> dict[str, Any]:
        """The fields of the spec that must change because of what the server says, with their new
        values.

        Args:
            fixed: the names of the fields that the user has set. They do not change, with one
                exception: the window and the maximum of an answer become smaller if the server has
                a smaller window.
        """
        changes: dict[str, Any] = {"images": self.images, "thinking": self.thinking}
        if self.tools is False and spec.text_tools == "auto":
            changes["text_tools"] = "on"
        changes = {
            field: value
            for field, value in changes.items()
            if value is not None and field not in fixed
        }
        window = self._window(spec, is_fixed="window" in fixed)
        if window:
            changes["window"] = window
            changes["max_output"] = min(window // OUTPUT_SHARE, MAX_OUTPUT)
            if "max_output" in fixed:
                changes["max_output"] = min(spec.max_output, window)
        return changes

    def _window(self, spec: ModelSpec, *, is_fixed: bool) -> int | None:
        """The window to use; None if it is not known. Ollama loads a model with the window that a
        request asks for, up to the longest one of the model. Other servers have loaded the model
        with a window of their own, and the user can only set a smaller one.

        Args:
            is_fixed: whether the user has set the window in the spec.
        """
        if self.server == "ollama":
            wanted = spec.window if is_fixed else max(self.window or 0, WANTED_WINDOW)
            return min(wanted, self.longest) if self.longest else wanted
        if self.window and is_fixed:
            return min(self.window, spec.window)
        return self.window


async def ask_server(fetch: Fetch, provider: str, model: str) -> ServedModel | None:
    """What the server says about a model; None if the server is not of a known kind.

    Args:
        provider: the first half of the model's litellm name.
        model: its name on the server.
    """
    row = _find_row(await fetch("/v1/models", None), list_key="data", key="id", model=model)
    kind = _SERVER_BY_PROVIDER.get(provider) or _SERVER_BY_OWNER.get(string(row.get("owned_by")))
    match kind:
        case "ollama":
            return await _ask_ollama(fetch, model)
        case "lm_studio":
            return await _ask_lm_studio(fetch, model)
        case "llama_cpp":
            return await _ask_llama_cpp(fetch, row)
        case "sglang":
            info = dictionary(await fetch("/get_model_info", None))
            sees_images = _flag(info, "has_image_understanding")
            return ServedModel("sglang", count(row.get("max_model_len")), images=sees_images)
        case "vllm" if row:
            return ServedModel("vllm", count(row.get("max_model_len")))
    return None


async def _ask_ollama(fetch: Fetch, model: str) -> ServedModel | None:
    """What Ollama says about a model and the window with which it is loaded; None if it has no
    such model.
    """
    description = dictionary(await fetch("/api/show", {"model": model}))
    info = dictionary(description.get("model_info"))
    if not info:
        return None
    lengths = [count(value) for key, value in info.items() if key.endswith(".context_length")]
    longest = next(iter(lengths), None)
    running = _find_row(await fetch("/api/ps", None), list_key="models", key="model", model=model)
    window = count(running.get("context_length"))
    if not window:
        setting = _CONTEXT_SETTING.search(string(description.get("parameters")))
        window = int(setting[1]) if setting else None
    abilities = description.get("capabilities")
    if not isinstance(abilities, list):
        return ServedModel("ollama", window, longest)
    return ServedModel(
        "ollama",
        window,
        longest,
        images="vision" in abilities,
        thinking="thinking" in abilities,
        tools="tools" in abilities,
    )


async def _ask_lm_studio(fetch: Fetch, model: str) -> ServedModel:
    """What LM Studio says about a model, by its newer API, else by its older one."""
    row = _find_row(await fetch("/api/v1/models", None), list_key="models", key="key", model=model)
    if not row:
        old_row = _find_row(
            await fetch("/api/v0/models", None), list_key="data", key="id", model=model
        )
        sees_images = old_row.get("type") == "vlm" if old_row else None
        return ServedModel(
            "lm_studio", count(old_row.get("loaded_context_length")), images=sees_images
        )
    instances = dictionaries(row.get("loaded_instances"))
    lengths = [
        count(dictionary(instance.get("config")).get("context_length")) for instance in instances
    ]
    abilities = dictionary(row.get("capabilities"))
    thinks = bool(abilities["reasoning"]) if "reasoning" in abilities else None
    window = next(iter(lengths), None)
    return ServedModel("lm_studio", window, images=_flag(abilities, "vision"), thinking=thinks)


async def _ask_llama_cpp(fetch: Fetch, row: ModelRow) -> ServedModel:
    """What llama.cpp says about its only model. While it computes an answer, it says only the window.

    Args:
        row: the row of the model in its list of models.
    """
    properties: dict[str, Any] = {}
    # While it computes an answer it does not answer this, but it does list its models.
    with suppress(TimeoutError):
        async with asyncio.timeout(PROPERTIES_TIMEOUT):
            properties = dictionary(await fetch("/props", None))
    settings = dictionary(properties.get("default_generation_settings"))
    window = count(settings.get("n_ctx")) or count(dictionary(row.get("meta")).get("n_ctx"))
    template = string(properties.get("chat_template"))
    return ServedModel(
        "llama_cpp",
        window,
        images=_flag(dictionary(properties.get("modalities")), "vision"),
        thinking=bool(_THINKING_SWITCH.search(template)) if template else None,
    )


def _find_row(answer: Any, list_key: str, key: str, model: str) -> ModelRow:
    """The row of a model in an answer with a list of models; empty if there is none. In a list in
    OpenAI's format (its key is `id`) the only row counts, whatever its name is: some servers serve
    one model under any name.
    """
    rows = dictionaries(dictionary(answer).get(list_key))
    for row in rows:
        if row.get(key) in (model, f"{model}:latest"):  # Ollama adds the tag
            return row
    return rows[0] if len(rows) == 1 and key == "id" else {}


def _flag(values: ModelRow, key: str) -> bool | None:
    """The boolean of this name; None if there is none."""
    value = values.get(key)
    return value if isinstance(value, bool) else None
