"""Endpoint: the URL, key and timeouts of a model."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Endpoint:
    base_url: str = ""
    """`https://api.openai.com/v1`; for litellm empty where it knows the address itself."""
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request, in addition to those of the wire."""
    key_source: str = ""
    """Where the key came from (`OPENAI_API_KEY`, `models.yaml`): told when the key is not accepted."""

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_local(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_private
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect: float = 10
    first: float = 120
    """Until the first byte of an answer."""
    idle: float = 90
    """Between two bytes of it."""


LOCAL_TIMEOUTS = Timeouts(first=900)
"""A local model on a CPU reads a long prompt for minutes before its first token."""

VECTORS_SECONDS = 60.0


def timeouts_for(endpoint: Endpoint) -> Timeouts:
    """The default timeouts for a server."""
    return LOCAL_TIMEOUTS if endpoint.is_local else Timeouts()


def timeouts_for_vectors(endpoint: Endpoint) -> Timeouts:
    """Timeouts for an embedding model: it answers at once or must be loaded first, and the user waits for it."""
    limits = timeouts_for(endpoint)
    return replace(limits, first=min(limits.first, VECTORS_SECONDS))
