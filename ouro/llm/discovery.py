"""Local model servers: which answer, and which models they offer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ouro.llm.providers import LOCAL, Provider

TIMEOUT = 0.6
"""Seconds for all servers together: a local answer takes milliseconds."""
FARTHER = 5.0
"""Seconds for a server that the user configured: it may be remote."""
MAX_ANSWER = 1_000_000
NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts", "bge-", "clip")


class LocalModel(msgspec.Struct, frozen=True):
    name: str
    """By the litellm name: `ollama_chat/qwen3-coder:30b`."""
    window: int | None = None
    """Tokens, where the server says."""


class LocalServer(msgspec.Struct, frozen=True):
    provider: Provider
    base_url: str
    models: tuple[LocalModel, ...]


def base_url(provider: Provider, environ: Mapping[str, str]) -> str:
    """The URL of a provider: its default, or the value of its environment variable."""
    moved = next((environ[name].strip() for name in provider.base_variables if environ.get(name, "").strip()), "")
    if not moved:
        return provider.base_url
    return _local_url(moved, provider) if provider.local else moved.rstrip("/")


def look_around(environ: Mapping[str, str], timeout: float = TIMEOUT) -> tuple[LocalServer, ...]:
    """Ask all default ports in parallel; returns the servers that answered within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    found: dict[str, LocalServer] = {}

    def ask(provider: Provider, url: str) -> None:
        models = _models(_get(url + "/models", timeout), provider.name)
        if models is not None:
            found[provider.name] = LocalServer(provider, url, models)

    # Daemon threads: a server that never ends its answer must not block the exit of the program.
    threads = [
        threading.Thread(target=ask, args=(provider, base_url(provider, environ)), daemon=True) for provider in LOCAL
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    answered = dict(found)
    return tuple(answered[provider.name] for provider in LOCAL if provider.name in answered)


def models_at(url: str, key: str = "", timeout: float = FARTHER) -> tuple[LocalModel, ...]:
    """What the OpenAI-compatible server at `url` offers, as `openai/…`; empty if it lists none. Blocks."""
    return _models(_get(url + "/models", timeout, key), "openai") or ()


def _local_url(given: str, provider: Provider) -> str:
    """A URL from the forms that OLLAMA_HOST may have: `0.0.0.0`, `:11500`, `gpu-box:11434`, a whole URL."""
    parts = urlsplit(given if "://" in given else f"http://{given}")
    host = parts.hostname or "127.0.0.1"
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - where it listens; it is asked on this machine
        host = "127.0.0.1"
    port = parts.port or (443 if parts.scheme == "https" else urlsplit(provider.base_url).port)
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"


def _get(url: str, timeout: float, key: str = "") -> Any:
    """The JSON at `url`; None where there is no server, or another kind of one. Goes past proxies."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        parts = urlsplit(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        try:
            connection.request("GET", parts.path, headers=headers)
            answer = connection.getresponse()
            return json.loads(answer.read(MAX_ANSWER)) if answer.status == 200 else None
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError, RecursionError):  # no server, or not a model server
        return None


def _models(answer: Any, prefix: str) -> tuple[LocalModel, ...] | None:
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        return None
    found = []
    for row in rows:
        name = row.get("id") if isinstance(row, dict) else None
        if isinstance(name, str) and name.isprintable() and not any(word in name.lower() for word in NOT_FOR_CHAT):
            found.append(LocalModel(f"{prefix}/{name}", _window(row)))
    return tuple(found)


def _window(row: Mapping[str, Any]) -> int | None:
    meta = row.get("meta")
    trained = meta.get("n_ctx") or meta.get("n_ctx_train") if isinstance(meta, dict) else None
    size = row.get("max_model_len") or row.get("loaded_context_length") or trained
    return size if isinstance(size, int) and size > 0 else None
