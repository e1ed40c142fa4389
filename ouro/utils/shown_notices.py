"""Notices that the user needs to see once, and not at each start: which ones were shown."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_home

_MAX_REMEMBERED = 500


def new_notices(notices: Sequence[str], *, is_seen: bool) -> list[str]:
    """Returns those of the notices that were not shown before. Blocks.

    Args:
        is_seen: whether a user will see them now: then they are not returned again.
    """
    if not notices:
        return []
    file = get_home() / "cache" / "shown_notices.json"
    shown = _read(file)
    new = [notice for notice in notices if _digest(notice) not in shown]
    if new and is_seen:
        _write(file, [*shown, *map(_digest, new)])
    return new


def _digest(notice: str) -> str:
    return hashlib.sha256(notice.encode(errors="surrogateescape")).hexdigest()[:16]


def _read(file: Path) -> list[str]:
    """The digests of the notices that were shown; none if the file is missing or damaged."""
    with suppress(OSError, msgspec.DecodeError):
        return decode_json(file.read_bytes(), list[str])
    return []


def _write(file: Path, digests: Sequence[str]) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, msgspec.json.encode(digests[-_MAX_REMEMBERED:]))
    except OSError as error:
        log.warning("%s cannot be written: %s", file, error)
