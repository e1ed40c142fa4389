"""Content of an MCP server as plain data: the blocks of results, resources, and tools."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import cache
from typing import Any

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

from ouro.mcp.schemas import schema_problem
from ouro.utils.json_object import JsonObject

MAX_TEXT = 4 * 1024 * 1024
"""Maximum characters of one result."""
MAX_IMAGES = 10
"""Maximum images of one result."""
MAX_IMAGE = 8 * 1024 * 1024
"""Maximum bytes of one image, in base64."""
_MAX_SEARCHES = 1_000
"""Maximum values of structured content that are searched for in the texts of a result."""
_WORD = re.compile(r"[\w.+-]+")
"""Matches a word or number of a text."""


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


def replace_invalid_blocks(blocks: list[Any]) -> None:
    """Replace the blocks of a result that the SDK does not know by a text that says so: it would
    refuse the whole result.
    """
    for index, block in enumerate(blocks):
        try:
            _known_blocks().validate_python(block)
        except ValidationError:
            kind = block.get("type") if isinstance(block, dict) else None
            text = f"[a block of the type {json.dumps(kind)[:60]} is left out: it is not valid]"
            blocks[index] = {"type": "text", "text": text}


@cache
def _known_blocks() -> TypeAdapter[Any]:
    """Checks a block of a result."""
    # A union is no class for mypy, but only if its results are in a cache.
    content_block: Any = types.ContentBlock
    return TypeAdapter(content_block)


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


def structured_text(structured: Any, blocks: Sequence[Any]) -> str:
    """Structured content as text for the model; empty if the blocks of the result say the same.

    A server should repeat its structured content in a text block. Many do, some as sentences, and
    some send only a summary there.
    """
    media = {data for data, _media_type in map(_data_of, blocks) if data}
    texts = [str(block.text) for block in blocks if getattr(block, "text", None)]
    if (texts or media) and _says_the_same(structured, texts, media):
        return ""
    shown = _without_media(structured, media)
    return json.dumps(shown, ensure_ascii=False, indent=1)[:MAX_TEXT]


def _says_the_same(structured: Any, texts: Sequence[str], media: Set[str]) -> bool:
    """Whether each value of structured content is also in the texts of a result, or is the data of
    an image or another block.
    """
    all_text = "\n".join(texts)
    known = set(_WORD.findall(all_text))
    for text in texts:
        with suppress(ValueError, RecursionError):  # most texts are not JSON
            known.update(_simple_values(json.loads(text), media))
    others = [value for value in _simple_values(structured, media) if value not in known]
    if len(others) > _MAX_SEARCHES:
        return False
    # A word that is not known may still be a part of another one: `2` of `12`.
    return all(value in all_text and not _WORD.fullmatch(value) for value in others)


def _simple_values(value: Any, media: Set[str]) -> Iterator[str]:
    """Yields the texts and numbers in a value as texts, without those of the blocks in it whose
    data is in `media`.
    """
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            data = item.get("data")
            is_block = isinstance(data, str) and data in media
            pending += [] if is_block else item.values()
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, str):
            yield item.strip()
        elif item is not None:
            yield json.dumps(item)


def _without_media(value: Any, media: Set[str]) -> Any:
    """A value with a mark in the place of each data in `media`, which the model gets by itself."""
    if isinstance(value, dict):
        return {key: _without_media(item, media) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_media(item, media) for item in value]
    is_medium = isinstance(value, str) and value in media
    return "[shown as its own block]" if is_medium else value


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
