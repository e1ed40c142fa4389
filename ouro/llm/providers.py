"""Providers: URL, key variable and protocol of each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Wire = Literal["openai", "anthropic", "litellm"]


class Provider(msgspec.Struct, frozen=True):
    """One provider, by the prefix that its models have in litellm names."""

    name: str
    title: str
    base_url: str
    key_variables: tuple[str, ...] = ()
    """The first that is set counts; none: no key is needed."""
    flagship: str = ""
    """The model to start with when only a key is known."""
    wire: Wire = "openai"
    base_variables: tuple[str, ...] = ()
    """Environment variables that set another URL."""
    litellm_prefix: str = ""
    """Its name in litellm, if that differs."""
    local: bool = False


HOSTED = (
    Provider(
        "anthropic",
        "Anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        "claude-sonnet-5-5",
        "anthropic",
        ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    ),
    Provider(
        "openai",
        "OpenAI",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "gpt-6.1-sol",
        base_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    ),
    Provider(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        "anthropic/claude-sonnet-5",
        base_variables=("OPENROUTER_API_BASE",),
    ),
    Provider(
        "gemini",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "gemini-4-argon",
    ),
    Provider("deepseek", "DeepSeek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), "deepseek-v4-pro"),
    Provider("xai", "xAI", "https://api.x.ai/v1", ("XAI_API_KEY",), "grok-4.7"),
    Provider("mistral", "Mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), "devstral-latest"),
    Provider("moonshot", "Moonshot (Kimi)", "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY",), "kimi-k3"),
    Provider("zai", "Z.ai (GLM)", "https://api.z.ai/api/paas/v4", ("ZAI_API_KEY",), "glm-5.3"),
    Provider("groq", "Groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), "openai/gpt-oss-120b"),
    Provider("cerebras", "Cerebras", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), "gpt-oss-120b"),
    Provider(
        "together_ai",
        "Together",
        "https://api.together.xyz/v1",
        ("TOGETHER_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY"),
        "moonshotai/Kimi-K3",
    ),
    Provider(
        "fireworks_ai",
        "Fireworks",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
        "accounts/fireworks/models/kimi-k3",
    ),
)
LOCAL = (
    Provider("ollama_chat", "Ollama", "http://127.0.0.1:11434/v1", base_variables=("OLLAMA_HOST",), local=True),
    Provider("lm_studio", "LM Studio", "http://127.0.0.1:1234/v1", base_variables=("LM_STUDIO_API_BASE",), local=True),
    Provider(
        "llama_cpp",
        "llama.cpp",
        "http://127.0.0.1:8080/v1",
        base_variables=("LLAMA_CPP_API_BASE",),
        litellm_prefix="openai",
        local=True,
    ),
    Provider("hosted_vllm", "vLLM", "http://127.0.0.1:8000/v1", base_variables=("HOSTED_VLLM_API_BASE",), local=True),
)
PROVIDERS = {provider.name: provider for provider in (*HOSTED, *LOCAL)}


def provider_of(name: str) -> Provider | None:
    return PROVIDERS.get(name.partition("/")[0]) if "/" in name else None


def is_litellm_provider(name: str) -> bool:
    """Whether the pinned litellm has a provider of this name; looked up without importing it."""
    return name in Path(__file__).with_name("litellm_providers.txt").read_text(encoding="utf-8").splitlines()
