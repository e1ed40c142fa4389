"""Known models: window, prices, abilities. By provider: the recommended model first, then newest first.

Where a provider charges more beyond a length, the window ends there: no session silently costs twice as much.
`window:` in models.yaml lifts that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from ouro.errors import NoModelError
from ouro.llm.model import ModelSpec, Prices
from ouro.utils.late_pattern import late_pattern

OUTPUT_SHARE = 6
"""An answer may take at most this share of the window, so that request and answer always fit."""
MAX_OUTPUT = 64_000
VERSION_TAIL = late_pattern(r"(-\d{4}-\d\d-\d\d|-20\d{6}|-\d{4}|-latest|:free|:beta)$")

NEEDS_LITELLM = late_pattern(r"openai/(gpt-[\d.]+-(codex|pro)|o[13]-pro|.*deep-research)")
"""OpenAI's models that are not served as chat completions: litellm translates."""


def known_spec(name: str) -> ModelSpec | None:
    """The entry of a model with exactly this name, ignoring dates and `openrouter/`."""
    tail = name.removeprefix("openrouter/")
    for candidate in (tail, VERSION_TAIL.sub("", tail), VERSION_TAIL.sub("", tail).replace(".", "-")):
        if found := KNOWN.get(candidate.lower()):
            return replace(found, name=name)
    return None


def _model(name: str, window: int, max_output: int, prices: tuple[float, ...], abilities: str) -> ModelSpec:
    return ModelSpec(
        name,
        window,
        min(max_output, window // OUTPUT_SHARE, MAX_OUTPUT),
        Prices(*prices),
        images="images" in abilities,
        thinking="thinking" in abilities,
        patches="patches" in abilities,
    )


# name, window, longest answer, dollars a million tokens (input, output, read from cache, written to it), abilities
TABLE = (
    _model("anthropic/claude-sonnet-5-5", 1_000_000, 128_000, (2, 10, 0.1, 2.5), "images thinking"),
    _model("anthropic/claude-opus-5-5", 1_000_000, 128_000, (4, 20, 0.2, 5), "images thinking"),
    _model("anthropic/claude-haiku-5-5", 100_000, 100_000, (0.1, 0.5, 0.01, 0.125), "images thinking"),
    _model("anthropic/claude-fable-5-1", 1_000_000, 128_000, (10, 50, 0.25, 12.5), "images thinking"),
    _model("anthropic/claude-sonnet-5", 1_000_000, 128_000, (2, 10, 0.2, 2.5), "images thinking"),
    _model("anthropic/claude-opus-5", 1_000_000, 128_000, (5, 25, 0.5, 6.25), "images thinking"),
    _model("anthropic/claude-opus-4-8", 1_000_000, 128_000, (5, 25, 0.5, 6.25), "images thinking"),
    _model("anthropic/claude-opus-4-7", 1_000_000, 128_000, (5, 25, 0.5, 6.25), "images thinking"),
    _model("anthropic/claude-opus-4-6", 1_000_000, 128_000, (5, 25, 0.5, 6.25), "images thinking"),
    _model("anthropic/claude-sonnet-4-6", 1_000_000, 128_000, (3, 15, 0.3, 3.75), "images thinking"),
    _model("anthropic/claude-haiku-4-5", 200_000, 64_000, (1, 5, 0.1, 1.25), "images thinking"),
    _model("anthropic/claude-opus-4-5", 200_000, 64_000, (5, 25, 0.5, 6.25), "images thinking"),
    _model("anthropic/claude-sonnet-4-5", 200_000, 64_000, (3, 15, 0.3, 3.75), "images thinking"),
    _model("openai/gpt-6.1-sol", 272_000, 128_000, (2, 10, 0.1, 2.5), "images thinking patches"),
    _model("openai/gpt-6-sol", 272_000, 128_000, (2, 10, 0.2, 2.5), "images thinking patches"),
    _model("openai/gpt-6-astra", 272_000, 128_000, (10, 50, 1, 12.5), "images thinking patches"),
    _model("openai/gpt-6-luna", 272_000, 128_000, (0.1, 0.5, 0.01, 0.125), "images thinking patches"),
    _model("openai/gpt-5.6", 272_000, 128_000, (4, 20, 0.4, 5), "images thinking patches"),
    _model("openai/gpt-5.6-terra", 272_000, 128_000, (2, 12, 0.2, 2.5), "images thinking patches"),
    _model("openai/gpt-5.6-luna", 272_000, 128_000, (0.2, 1.2, 0.02, 0.25), "images thinking patches"),
    _model("openai/gpt-5.5", 272_000, 128_000, (5, 30, 0.5), "images thinking patches"),
    _model("openai/gpt-5.4", 272_000, 128_000, (2.5, 15, 0.25), "images thinking patches"),
    _model("openai/gpt-5.4-mini", 272_000, 128_000, (0.75, 4.5, 0.075), "images thinking patches"),
    _model("openai/gpt-5.4-nano", 272_000, 128_000, (0.2, 1.25, 0.02), "images thinking patches"),
    _model("openai/gpt-5.3-codex", 272_000, 128_000, (1.75, 14, 0.175), "images thinking patches"),
    _model("openai/gpt-5.2", 272_000, 128_000, (1.75, 14, 0.175), "images thinking patches"),
    _model("openai/gpt-5.1", 272_000, 128_000, (1.25, 10, 0.125), "images thinking patches"),
    _model("openai/gpt-5", 272_000, 128_000, (1.25, 10, 0.125), "images thinking patches"),
    _model("openai/gpt-5-mini", 272_000, 128_000, (0.25, 2, 0.025), "images thinking patches"),
    _model("openai/gpt-5-nano", 272_000, 128_000, (0.05, 0.4, 0.005), "images thinking patches"),
    _model("openai/o3", 200_000, 100_000, (2, 8, 0.5), "images thinking patches"),
    _model("openai/gpt-4.1", 1_047_576, 32_768, (2, 8, 0.5), "images patches"),
    _model("openai/gpt-4.1-mini", 1_047_576, 32_768, (0.4, 1.6, 0.1), "images patches"),
    _model("openai/gpt-4o", 128_000, 16_384, (2.5, 10, 1.25), "images"),
    _model("openai/gpt-4o-mini", 128_000, 16_384, (0.15, 0.6, 0.075), "images"),
    _model("gemini/gemini-4-argon", 1_048_576, 1_048_576, (2, 10, 0.1), "images thinking"),
    _model("gemini/gemini-3.8-flash", 1_048_576, 65_536, (0.75, 3.75, 0.075), "images thinking"),
    _model("gemini/gemini-3.5-flash", 1_048_576, 65_536, (1.5, 9, 0.15), "images thinking"),
    _model("gemini/gemini-3.5-flash-lite", 1_048_576, 65_536, (0.3, 2.5, 0.03), "images thinking"),
    _model("gemini/gemini-3.1-pro-preview", 200_000, 65_536, (2, 12, 0.2), "images thinking"),
    _model("gemini/gemini-3-flash-preview", 1_048_576, 65_536, (0.5, 3, 0.05), "images thinking"),
    _model("gemini/gemini-2.5-pro", 200_000, 65_536, (1.25, 10, 0.125), "images thinking"),
    _model("gemini/gemini-2.5-flash", 1_048_576, 65_536, (0.3, 2.5, 0.03), "images thinking"),
    _model("gemini/gemini-2.5-flash-lite", 1_048_576, 65_536, (0.1, 0.4, 0.01), "images thinking"),
    _model("deepseek/deepseek-v4-pro", 1_000_000, 393_216, (1.32, 3.96, 0.044), "thinking"),
    _model("deepseek/deepseek-v4-flash", 1_000_000, 393_216, (0.3, 1.2, 0.006), "images thinking"),
    _model("deepseek/deepseek-v3.2", 163_840, 163_840, (0.28, 0.4, 0.028), "thinking"),
    _model("xai/grok-4.7", 200_000, 200_000, (2, 6, 0.5), "images thinking"),
    _model("xai/grok-4.6", 200_000, 200_000, (2, 6, 0.5), "images thinking"),
    _model("xai/grok-4.5", 200_000, 200_000, (2, 6, 0.3), "images thinking"),
    _model("xai/grok-4.3", 200_000, 200_000, (1.25, 2.5, 0.2), "images thinking"),
    _model("xai/grok-code-fast-1", 200_000, 200_000, (1, 2, 0.2), "images thinking"),
    _model("mistral/devstral-latest", 256_000, 256_000, (0.4, 2, 0.04), ""),
    _model("mistral/devstral-small-latest", 256_000, 256_000, (0.1, 0.3, 0.01), ""),
    _model("mistral/mistral-large-latest", 262_144, 262_144, (0.5, 1.5, 0.05), "images"),
    _model("mistral/mistral-medium-latest", 262_144, 262_144, (1.5, 7.5, 0.15), "images thinking"),
    _model("mistral/mistral-small-latest", 262_144, 262_144, (0.15, 0.6, 0.015), "images thinking"),
    _model("mistral/codestral-latest", 128_000, 128_000, (0.3, 0.9, 0.03), ""),
    _model("moonshot/kimi-k3", 1_048_576, 1_048_576, (3, 15, 0.3), "images thinking"),
    _model("moonshot/kimi-k2.7-code", 262_144, 262_144, (0.95, 4, 0.19), "images thinking"),
    _model("moonshot/kimi-k2.6", 262_144, 262_144, (0.95, 4, 0.16), "images thinking"),
    _model("moonshot/kimi-k2.5", 262_144, 262_144, (0.6, 3, 0.1), "images thinking"),
    _model("zai/glm-5.3", 1_000_000, 128_000, (1.4, 4.4, 0.26), "thinking"),
    _model("zai/glm-5.3-flash", 1_048_576, 128_000, (0.15, 0.5, 0.03), "images thinking"),
    _model("zai/glm-5.2", 1_000_000, 128_000, (1.4, 4.4, 0.26), "thinking"),
    _model("zai/glm-5.1", 200_000, 128_000, (1.4, 4.4, 0.26), "thinking"),
    _model("zai/glm-5", 200_000, 128_000, (1, 3.2, 0.2), "thinking"),
    _model("zai/glm-4.7", 200_000, 128_000, (0.6, 2.2, 0.11), "thinking"),
    _model("groq/openai/gpt-oss-120b", 131_072, 65_536, (0.15, 0.6, 0.075), "thinking patches"),
    _model("groq/openai/gpt-oss-20b", 131_072, 65_536, (0.075, 0.3, 0.0375), "thinking patches"),
    _model("groq/qwen/qwen3.8-27b", 131_072, 16_384, (0.8, 4), "images thinking"),
    _model("cerebras/gpt-oss-120b", 131_072, 32_768, (0.35, 0.75), "thinking patches"),
    _model("cerebras/qwen-3.8-27b", 65_536, 32_768, (0.99, 1.49), "images thinking"),
    _model("together_ai/moonshotai/Kimi-K3", 1_048_576, 32_768, (3, 15, 0.3), "images thinking"),
    _model("together_ai/zai-org/GLM-5.3", 1_048_575, 128_000, (1.4, 4.4, 0.26), "thinking"),
    _model("together_ai/deepseek-ai/DeepSeek-V4-Pro-0813", 1_048_576, 32_768, (1.32, 3.96, 0.13), ""),
    _model("together_ai/openai/gpt-oss-120b", 131_072, 32_768, (0.15, 0.6), "thinking patches"),
    _model("fireworks_ai/accounts/fireworks/models/kimi-k3", 1_048_576, 131_072, (3, 15, 0.3), "images thinking"),
    _model("fireworks_ai/accounts/fireworks/models/glm-5p3", 1_048_576, 128_000, (1.4, 4.4, 0.26), "thinking"),
    _model(
        "fireworks_ai/accounts/fireworks/models/gpt-oss-120b", 131_072, 32_768, (0.15, 0.6, 0.015), "thinking patches"
    ),
)
KNOWN = {spec.name.lower(): spec for spec in TABLE}


def find_model(word: str, groups: Iterable[Sequence[str]]) -> str | None:
    """The model that `word` means; earlier groups win, within a group the first is the newest.

    A whole name wins, then the name without its provider, then a part of it.

    Raises:
        NoModelError: models of several providers match.
    """
    wanted = word.strip().lower()
    part = re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z])")
    ways: tuple[Callable[[str], object], ...] = (
        lambda name: wanted == name,
        lambda name: wanted in {(tail := _tail(name)), tail.partition(":")[0], tail.rpartition("/")[2]},
        lambda name: part.search(_tail(name)),
    )
    groups = [list(group) for group in groups]
    for fits in ways:
        for group in groups:
            matches = [name for name in group if fits(name.lower())]
            if len({name.partition("/")[0] for name in matches}) > 1:
                shown = ", ".join(f"`{name}`" for name in matches[:4])
                raise NoModelError(f"`{word}` could be several models: {shown}.", "Give the name with its provider.")
            if matches:
                return matches[0]
    return None


def nearest(word: str, names: Iterable[str]) -> list[str]:
    import difflib

    by_form: dict[str, str] = {}
    for name in names:
        by_form.setdefault(name.lower(), name)
        by_form.setdefault(_tail(name.lower()), name)
    near = difflib.get_close_matches(word.lower(), by_form, n=6, cutoff=0.6)
    return list(dict.fromkeys(by_form[form] for form in near))[:3]


def _tail(name: str) -> str:
    return name.partition("/")[2] or name
