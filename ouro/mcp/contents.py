"""What servers answer, as plain data: the text and images of content blocks, cut to limits."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import mcp_types as types

from ouro.utils.worker import Line

MAX_TEXT = 4 * 1024 * 1024
"""Characters of one result."""
MAX_IMAGES = 10
MAX_IMAGE = 8 * 1024 * 1024
"""Bytes of one image, in base64."""


def call_result(result: types.CallToolResult) -> Line:
    """The result of a tool call: text, images, and whether it failed; structured content where there is no other."""
    found = contents(result.content)
    if not (found["text"] or found["images"]) and result.structured_content is not None:
        found["text"] = json.dumps(result.structured_content, ensure_ascii=False, indent=1)[:MAX_TEXT]
    return {**found, "failed": result.is_error}


def contents(blocks: Sequence[Any]) -> Line:
    """The text and images of content blocks or resource contents, cut to the limits."""
    texts: list[str] = []
    images: list[Line] = []
    size = 0
    for block in blocks:
        data, media_type = _data_of(block)
        if data and media_type.startswith("image/") and len(images) < MAX_IMAGES and len(data) <= MAX_IMAGE:
            images.append({"media_type": media_type, "data": data})
            continue
        text = block_text(block)
        texts.append(text[: MAX_TEXT - size])
        size += len(text)
        if size > MAX_TEXT:
            texts.append(f"[the rest of the result, more than {MAX_TEXT:,} characters, was dropped]")
            break
    return {"text": "\n\n".join(texts), "images": images}


def _data_of(block: Any) -> tuple[str | None, str]:
    data = getattr(block, "data", None) or getattr(block, "blob", None)
    return data, getattr(block, "mime_type", None) or ""


def block_text(block: Any) -> str:
    """A content block as text; what is not text is named with its type and size."""
    if (resource := getattr(block, "resource", None)) is not None:
        return f"{resource.uri}:\n{block_text(resource)}"
    if (text := getattr(block, "text", None)) is not None:
        return str(text)
    data, kind = _data_of(block)
    if data is not None:
        if kind.startswith("text/") or kind == "application/json":
            with suppress(ValueError):
                return base64.b64decode(data).decode("utf-8", "replace")
        return f"[{kind or 'data'}, {len(data) * 3 // 4:,} bytes, is not shown]"
    if (uri := getattr(block, "uri", None)) is not None:
        return f"{getattr(block, 'name', '')} <{uri}>".strip()
    return f"[{type(block).__name__} is not supported]"
