"""The content blocks of a prompt as a message."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from acp import schema as acp

from ouro.errors import UsageError
from ouro.images import make_image
from ouro.messages import ATTACHED, Image
from ouro.session import Draft
from ouro.utils.addresses import split_url

_READABLE_SCHEMES = ("file", "http", "https")
"""The links that tools can read; others, such as `zed:`, only the editor can."""


def _decode_embedded_image(name: str, resource: acp.BlobResourceContents) -> Image:
    """The image in an embedded file. Raises UsageError if the file is of another kind, and what
    `_decode_image` raises.
    """
    kind = resource.mime_type or ""
    if not kind.startswith("image/"):
        raise UsageError(
            f"{name} ({kind or 'binary'}) cannot be embedded.",
            "Name its path in the text.",
        )
    return _decode_image(name, resource.blob)


def draft_of(blocks: Iterable[Any], folders: Sequence[Path]) -> Draft:
    """Build a message from the content blocks of a prompt. Files in one of `folders` are named
    relative to it.

    A linked file is named by its path, for the model to read. The text of an embedded file comes
    first, marked as not written by the user.

    Raises:
        UsageError: a block cannot be sent to a model, or the message is empty.
        ToolError: the data of an image is not a picture.
    """
    text, embedded_files, images = "", list[str](), list[Image]()
    for block in blocks:
        match block:
            case acp.TextContentBlock():
                text += block.text
            case acp.ImageContentBlock():
                name = _mention_name(block.uri or "", folders) or "picture"
                images.append(_decode_image(name, block.data))
            case acp.ResourceContentBlock():
                text = _with_mention(text, _mention_name(block.uri, folders))
                if split_url(block.uri).scheme not in _READABLE_SCHEMES:
                    text += " [the editor has sent only this link, not its content]"
            case acp.EmbeddedResourceContentBlock(resource=acp.TextResourceContents() as resource):
                name = _mention_name(resource.uri, folders)
                text = _with_mention(text, name)
                embedded_files.append(f"<file path={name!r}>\n{resource.text}\n</file>")
            case acp.EmbeddedResourceContentBlock(resource=acp.BlobResourceContents() as resource):
                name = _mention_name(resource.uri, folders)
                text = _with_mention(text, name)
                images.append(_decode_embedded_image(name, resource))
            case _:
                raise UsageError("ouro understands text, images and files; not audio.")
    if not text.strip() and not images:
        raise UsageError("The prompt is empty.")
    if embedded_files:
        text = ATTACHED + "\n".join(embedded_files) + f"\n\n{text}"
    return Draft(text, tuple(images))


def _with_mention(text: str, name: str) -> str:
    """The text with `@name` at its end. A space is put before it if the text ends with a letter, a
    digit or a slash, because the name would otherwise continue a word or a path.
    """
    needs_space = text[-1:].isalnum() or text.endswith("/")
    return f"{text} @{name}" if needs_space else f"{text}@{name}"


def _mention_name(uri: str, folders: Sequence[Path]) -> str:
    """The name by which a message mentions a resource. A file is named by its path, which is
    relative to the first of `folders` that contains it, and has a line number if the URI has one.
    Any other resource is named by its URI.
    """
    parts = split_url(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    line_suffix = ""
    if parts.fragment.startswith("L"):  # such as `#L12`
        line_suffix = f":{parts.fragment.removeprefix('L')}"
    folder = next((folder for folder in folders if path.is_relative_to(folder)), None)
    name = path.relative_to(folder) if folder else path
    return f"{name}{line_suffix}"


def _decode_image(name: str, data: str) -> Image:
    """The image of a base64 text. Raises UsageError if the text is not base64, and ToolError if it
    is not a picture.
    """
    try:
        image, _size = make_image(name, base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise UsageError(f"The image {name} is not base64: {error}.") from error
    return image
