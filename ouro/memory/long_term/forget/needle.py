"""What is to be forgotten, in each form that it is written in."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ouro.errors import UsageError

SHORTEST = 4
LONGEST = 10_000
_WRAPPED = 12
"""Characters from which on a text is also found where a line ends inside a word: long keys are wrapped."""
_SHORTEST_BASE64 = 8
_PLACEHOLDERS = ("[forgotten]", "[gone]", "[…]")
_SPACE = r"(?:(?:\s|\\[nrt]|%20|%0[ad]|\\(?=\n)|(?<=\n)[|>#])+|\+)"
_BREAK = r"(?:\\?\r?\n[ \t]*(?:\\|[|>#] ?)?)?"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_FIXED = {"role", "at", "id", "kind", "media_type", "file", "signature", "model", "format", "created_at", "project"}
"""Fields of records that say how to read the others: what stands there is no text of anybody's."""


class ForgottenText:
    """A text to be forgotten: as it is, in other case, in base64, in URLs, escaped, and over several lines.

    Raises:
        UsageError: it is too short to be told from other text, or too long.
    """

    def __init__(self, text: str) -> None:
        text = text.strip()
        if len(text) < SHORTEST or not any(each.isalnum() for each in text):
            raise UsageError(
                f"What is to be forgotten has {SHORTEST} characters at least.",
                "Say more of it: what is shorter stands in other words too.",
            )
        if len(text) > LONGEST:
            raise UsageError(f"What is to be forgotten has {LONGEST:,} characters at most.", "Say a part of it.")
        self.text = text
        forms = dict.fromkeys((text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)))
        self._pattern = re.compile("|".join(map(_written, forms)), re.IGNORECASE)
        cores = [core for form in forms for core in _in_base64(form.encode("utf-8", "replace"))]
        self._base64 = re.compile("|".join(r"\s*".join(map(re.escape, core)) for core in cores)) if cores else None
        self.placeholder = next(each for each in _PLACEHOLDERS if not self.count(each))

    def count(self, text: str) -> int:
        """How often it stands in a text."""
        found = sum(1 for _ in self._pattern.finditer(text))
        return found + (sum(1 for _ in self._base64.finditer(text)) if self._base64 else 0)

    def without(self, text: str) -> str:
        """A text with the place holder instead of it; all else stays as it is."""
        text = self._pattern.sub(lambda _found: self.placeholder, text)
        return self._base64.sub(lambda _found: self.placeholder, text) if self._base64 else text

    def count_bytes(self, data: bytes) -> int:
        """How often it stands in the bytes of a file."""
        return self.count(data.decode("utf-8", "surrogateescape"))

    def bytes_without(self, data: bytes) -> bytes:
        """As `without`, of the bytes of a file."""
        text = data.decode("utf-8", "surrogateescape")
        return self.without(text).encode("utf-8", "surrogateescape")

    def blotted(self, data: bytes) -> bytes:
        """The bytes of a file with stars instead of it, at the same places: for what others are writing to."""
        text = data.decode("utf-8", "surrogateescape")
        for pattern in filter(None, (self._pattern, self._base64)):
            text = pattern.sub(lambda found: "*" * len(found[0].encode("utf-8", "surrogateescape")), text)
        return text.encode("utf-8", "surrogateescape")

    def in_data(self, value: Any, name: str = "") -> Any:
        """Plain data without it, also in numbers and keys of what tools were told."""
        if isinstance(value, str):
            is_fixed = name in _FIXED or (name == "name" and _NAME.fullmatch(value))
            return value if is_fixed else self.without(value)
        if isinstance(value, Mapping):
            keys = {key: self.without(key) if name == _ARGUMENT else key for key in value}
            made = {keys[key]: self.in_data(item, _inside(name, key)) for key, item in value.items()}
            if made.get("signature") and made.get("text") != value.get("text"):
                made["signature"] = ""  # it vouches for a text that is another one now
            return made
        if isinstance(value, Sequence):
            return [self.in_data(item, name) for item in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return self.placeholder if is_number and name == _ARGUMENT and self.count(str(value)) else value


_ARGUMENT = "arguments"


def _inside(name: str, key: str) -> str:
    """Below the arguments of a call no key has a meaning."""
    return _ARGUMENT if name == _ARGUMENT else key


def _written(text: str) -> str:
    between = _BREAK if len(text) >= _WRAPPED else ""
    words = (between.join(_character(each) for each in word) for word in text.split())
    return _SPACE.join(words)


def _character(character: str) -> str:
    forms = [re.escape(character)]
    if character == '"':
        forms = [r'\\*"', "&quot;"]
    elif character == "\\":
        forms = [r"\\+"]
    elif character == "/":
        forms = [r"\\?/"]
    elif character in "&<>'":
        forms.append({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#(?:39|x27);"}[character])
    data = character.encode("utf-8", "replace")
    if not (character.isascii() and character.isalnum()):
        forms.append("".join(f"%{byte:02x}" for byte in data))
    if not character.isascii():
        units = character.encode("utf-16-be", "surrogatepass")
        forms.append("".join(rf"\\+u{units[n : n + 2].hex()}" for n in range(0, len(units), 2)))
    return forms[0] if len(forms) == 1 else f"(?:{'|'.join(forms)})"


def _in_base64(data: bytes) -> list[str]:
    """What all base64 texts of something that holds `data` have in common: one for each of three alignments."""
    cores: list[str] = []
    for ahead in range(3):
        whole = base64.b64encode(bytes(ahead) + data + b"\0\0").decode()
        core = whole[-(-ahead * 8 // 6) : (ahead + len(data)) * 8 // 6]
        if len(core) >= _SHORTEST_BASE64:
            cores += dict.fromkeys((core, core.replace("+", "-").replace("/", "_")))
    return cores
