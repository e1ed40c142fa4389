"""What a server wants back as it came, kept as the signature of a Thinking part."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ouro.llm.portable import DETAILS
from ouro.messages import SEALED_ITEM, Message, Thinking
from ouro.utils.lenient_json import dictionaries, dictionary

_JOINED = ("text", "summary")
"""The fields of a detail that are streamed in pieces."""


def seal_item(item: dict[str, Any], address: str) -> str:
    """An item of this server as the signature of a Thinking part. It is opaque, and only this
    server gets it back.
    """
    return json.dumps({"responses": address, "item": item})


def open_item(signature: str, address: str) -> dict[str, Any] | None:
    """The item in a signature; None if the signature holds none, or one of another server."""
    if not signature.startswith(SEALED_ITEM):
        return None
    try:
        sealed = dictionary(json.loads(signature))
    except (ValueError, RecursionError):
        return None
    return dictionary(sealed.get("item")) if sealed.get("responses") == address else None


def details_in(message: Message, address: str) -> list[dict[str, Any]]:
    """The reasoning details that this server sent with an answer, in their order."""
    details: list[dict[str, Any]] = []
    for part in message.parts_of(Thinking):
        item = open_item(part.signature, address) or {}
        details += dictionaries(item.get(DETAILS))
    return details


def join_details(pieces: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The details of an answer from their streamed pieces. A piece with the type and index of the
    detail before it continues that detail.
    """
    details: list[dict[str, Any]] = []
    for piece in pieces:
        if details and _continues(details[-1], piece):
            _extend(details[-1], piece)
        else:
            details.append(dict(piece))
    return details


def _continues(detail: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    """Whether a piece belongs to the detail before it. Encrypted data comes whole."""
    is_same = all(detail.get(key) == piece.get(key) for key in ("type", "index"))
    has_own_id = bool(piece.get("id")) and piece.get("id") != detail.get("id")
    return is_same and "data" not in piece and not has_own_id


def _extend(detail: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a piece to its detail: texts are joined, other fields that have a value replace it."""
    for key, value in piece.items():
        if key in _JOINED and isinstance(value, str):
            detail[key] = f"{detail.get(key) or ''}{value}"
        elif value is not None:
            detail[key] = value
