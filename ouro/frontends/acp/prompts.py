"""What the user writes in an editor as a message: text, images, files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import schema as acp

from ouro.errors import UsageError
from ouro.messages import ATTACHED, Image
from ouro.session import Draft, picture


def draft_of(blocks: Iterable[Any], cwd: Path) -> Draft:
    """The message that the content blocks of a prompt make up.

    A linked file is named by its path, for the model to read; an embedded one is put in front, marked as not the
    user's own words.

    Raises:
        UsageError: a block cannot be sent to a model, or the message is empty.
        ToolError: an image is none.
    """
    text, attached, images = "", list[str](), list[Image]()
    for block in blocks:
        match block:
            case acp.TextContentBlock():
                text += block.text
            case acp.ImageContentBlock():
                images.append(_image(_name(block.uri or "", cwd) or "picture", block.data))
            case acp.ResourceContentBlock():
                text = _with_mention(text, _name(block.uri, cwd))
            case acp.EmbeddedResourceContentBlock(resource=acp.TextResourceContents() as resource):
                name = _name(resource.uri, cwd)
                text = _with_mention(text, name)
                attached.append(f"<file path={name!r}>\n{resource.text}\n</file>")
            case acp.EmbeddedResourceContentBlock(resource=acp.BlobResourceContents() as resource):
                name, kind = _name(resource.uri, cwd), resource.mime_type or ""
                text = _with_mention(text, name)
                if not kind.startswith("image/"):
                    raise UsageError(f"{name} ({kind or 'binary'}) cannot be embedded.", "Name its path in the text.")
                images.append(_image(name, resource.blob))
            case _:
                raise UsageError("ouro understands text, images and files; not audio.")
    if not text.strip() and not images:
        raise UsageError("The prompt is empty.")
    if attached:
        text = ATTACHED + "\n".join(attached) + f"\n\n{text}"
    return Draft(text, tuple(images))


def _with_mention(text: str, name: str) -> str:
    return f"{text}{' ' if text[-1:].isalnum() or text.endswith('/') else ''}@{name}"


def _name(uri: str, cwd: Path) -> str:
    """A file by its path, relative to the working folder where it is inside; another URI as it is."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    lines = f":{parts.fragment.removeprefix('L')}" if parts.fragment.startswith("L") else ""
    return f"{path.relative_to(cwd) if path.is_relative_to(cwd) else path}{lines}"


def _image(name: str, data: str) -> Image:
    try:
        return picture(name, base64.b64decode(data, validate=True))[0]
    except binascii.Error as error:
        raise UsageError(f"The image {name} is not base64: {error}.") from error
