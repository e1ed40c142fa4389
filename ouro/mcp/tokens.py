"""Tokens: the OAuth tokens of one server, in the keyring of the system, else in a file that only
the user can read.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ouro.utils.files import write_private
from ouro.utils.lenient_json import dictionary
from ouro.utils.ouro_paths import get_home
from ouro.utils.system_keyring import find_keyring
from ouro.utils.text import one_line

SERVICE = "ouro-mcp"
"""The name under which the keyring has the tokens."""


class Tokens:
    """The tokens of the server at `url`. A token is sent only to the server that issued it. Every
    method blocks.
    """

    def __init__(self, url: str) -> None:
        self._key = url
        self._path: Path = (
            get_home() / "mcp" / "tokens" / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}.json"
        )

    def load(self) -> dict[str, Any]:
        """The saved values by name: `tokens`, `client` (the registered one), `scope` (the rights
        that were missing). Empty if there are none or they cannot be read.
        """
        keyring = find_keyring(SERVICE)
        text = keyring.get_password(SERVICE, self._key) if keyring is not None else None
        with suppress(OSError, ValueError):  # no file, or a damaged one
            return dictionary(json.loads(text or self._path.read_text(encoding="utf-8")))
        return {}

    def save(self, name: str, value: Any) -> None:
        """Save a value under a name; the other values stay."""
        text = json.dumps({**self.load(), name: value})
        if (keyring := find_keyring(SERVICE)) is not None:
            keyring.set_password(SERVICE, self._key, text)
        else:
            write_private(self._path, text)

    def delete(self) -> bool:
        """Delete all saved values, from the keyring and from the file; returns whether there were
        any.
        """
        existed = bool(self.load())
        keyring = find_keyring(SERVICE) if existed else None
        if keyring is not None and keyring.get_password(SERVICE, self._key) is not None:
            keyring.delete_password(SERVICE, self._key)
        self._path.unlink(missing_ok=True)
        return existed

    def place(self) -> str:
        """Where the tokens are stored, for users."""
        keyring = find_keyring(SERVICE)
        return one_line(f"the keyring ({keyring.name})") if keyring is not None else str(self._path)
