"""Content of an MCP server as plain data: the blocks of results, resources, and tools."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import mcp_types as types

from ouro.mcp.schemas import schema_problem
from ouro.utils.json_object import JsonObject

MAX_TEXT = 4 * 1024 * 1024
"""Maximum characters of one result."""
MAX_IMAGES = 10
"""Maximum images of one result."""
MAX_IMAGE = 8 * 1024 * 1024
"""Maximum bytes of one image, in base64."""


def describe_tool(tool: types.Tool) -> JsonObject:
    """A tool as plain data, with the reason why its schema cannot be used (empty if it can)."""
    hints = tool.annotations
    return {
        "name": tool.name,
        "description": tool.description or "",
        "schema": tool.input_schema,
        "title": tool.title or (hints.title if hints else None) or "",
        "read_only": bool(hints and hints.read_only_hint),
        "destructive": bool(hints and hints.destructive_hint),
        "problem": schema_problem(tool.input_schema),
    }


def read_contents(blocks: Sequence[Any]) -> JsonObject:
    """Content blocks or resource contents as plain data: `text` with all texts, cut to MAX_TEXT
    characters, and `images`. An image that is too large, or one too many, is only described in the
    text.
    """
    texts: list[str] = []
    images: list[JsonObject] = []
    size = 0
    for block in blocks:
        data, media_type = _data_of(block)
        is_small_image = data and media_type.startswith("image/") and len(data) <= MAX_IMAGE
        if is_small_image and len(images) < MAX_IMAGES:
            images.append({"media_type": media_type, "data": data})
            continue
        text = block_text(block)
        texts.append(text[: MAX_TEXT - size])
        size += len(text)
        if size > MAX_TEXT:
            texts.append(
                f"[the rest of the result, more than {MAX_TEXT:,} characters, was dropped]"
            )
            break
    return {"text": "\n\n".join(texts), "images": images}


def _data_of(block: Any) -> tuple[str | None, str]:
    """The data of a block in base64, None if it has none; and its media type."""
    data = getattr(block, "data", None) or getattr(block, "blob", None)
    return data, getattr(block, "mime_type", None) or ""


def block_text(block: Any) -> str:
    """A content block as text. What cannot be shown as text is described by its type and size."""
    if (resource := getattr(block, "resource", None)) is not None:
        return f"{resource.uri}:\n{block_text(resource)}"
    if (text := getattr(block, "text", None)) is not None:
        return str(text)
    data, media_type = _data_of(block)
    if data is not None:
        if media_type.startswith("text/") or media_type == "application/json":
            with suppress(ValueError):
                return base64.b64decode(data).decode("utf-8", "replace")
        return f"[{media_type or 'data'}, {len(data) * 3 // 4:,} bytes, is not shown]"
    if (uri := getattr(block, "uri", None)) is not None:
        return f"{getattr(block, 'name', '')} <{uri}>".strip()
    return f"[{type(block).__name__} is not supported]"
