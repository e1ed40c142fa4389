"""A text to forget, in all forms in which it may be written; and plain files from which it is
removed.
"""

from __future__ import annotations

import base64
import math
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import UsageError
from ouro.utils.files import open_folder, replace_file

Progress = Callable[[str], None]
MIN_CHARACTERS = 4
MAX_CHARACTERS = 10_000
_MIN_WRAPPED_CHARACTERS = 12
"""In a text with at least so many characters a line may end inside a word, because long keys are
wrapped.
"""
_MIN_BASE64_CHARACTERS = 8
_PLACEHOLDERS = ("[forgotten]", "[gone]", "[…]")
"""What is written instead of the text; the first that does not contain it is used."""
_ESCAPED_SPACE = r"(?:(?:\s|\\[nrt]|%20|%0[ad]|\\(?=\n)|(?<=\n)[|>#])+|\+)"
"""Space between words: as it is, or as JSON, URLs, YAML and shells write it."""
_LINE_BREAK_IN_WORD = r"(?:\\?\r?\n[ \t]*(?:\\|[|>#] ?)?)?"
"""A line that ends inside a word, with the marks of YAML."""
_ARGUMENTS_KEY = "arguments"
"""Inside the arguments of a tool call, keys have no meaning to ouro."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""A name of a tool, which may stay if a text to forget is part of it."""
_FIXED_FIELDS = {
    "role",
    "at",
    "id",
    "kind",
    "media_type",
    "file",
    "signature",
    "model",
    "format",
    "created_at",
    "project",
}
"""Fields of records that are needed to read the others."""


class ForgottenText:
    """A text to be forgotten: as it is, in other case, in base64, in URLs, escaped, and over
    several lines.

    Raises:
        UsageError: it is too short to be distinguished from other text, or too long.
    """

    def __init__(self, text: str) -> None:
        """Compile the patterns that find the text, and choose the placeholder: the first in which
        the text is not found.
        """
        text = text.strip()
        if len(text) < MIN_CHARACTERS or not any(character.isalnum() for character in text):
            raise UsageError(
                f"The text to forget needs at least {MIN_CHARACTERS} characters.",
                "Give more of it: a shorter text is part of other words.",
            )
        if len(text) > MAX_CHARACTERS:
            raise UsageError(
                f"The text to forget may have {MAX_CHARACTERS:,} characters.", "Give a part of it."
            )
        self.text = text
        forms = dict.fromkeys(
            (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text))
        )
        self._patterns = [re.compile("|".join(map(_pattern_of, forms)), re.IGNORECASE)]
        base64_patterns: list[str] = []
        for form in forms:
            base64_texts = _base64_forms(form.encode("utf-8", "replace"))
            # Base64 may be broken into lines at any character.
            base64_patterns += [r"\s*".join(map(re.escape, text)) for text in base64_texts]
        if base64_patterns:
            self._patterns.append(re.compile("|".join(base64_patterns)))
        self.placeholder = next(text for text in _PLACEHOLDERS if not self.count(text))

    def count(self, text: str) -> int:
        """How often the text to forget is in another one, in any form."""
        return sum(len(pattern.findall(text)) for pattern in self._patterns)

    def remove_from(self, text: str) -> str:
        """Return `text` with the placeholder instead of each occurrence of the text to forget."""
        for pattern in self._patterns:
            text = pattern.sub(lambda _match: self.placeholder, text)
        return text

    def count_bytes(self, data: bytes) -> int:
        """How often the text is in the bytes of a file, in any form."""
        return self.count(data.decode("utf-8", "surrogateescape"))

    def remove_from_bytes(self, data: bytes) -> bytes:
        """The bytes of a file with a placeholder instead of the forgotten text."""
        text = data.decode("utf-8", "surrogateescape")
        return self.remove_from(text).encode("utf-8", "surrogateescape")

    def star_out(self, data: bytes) -> bytes:
        """The bytes of a file with stars instead of the text, in the same length."""
        text = data.decode("utf-8", "surrogateescape")
        for pattern in self._patterns:
            text = pattern.sub(
                lambda match: "*" * len(match[0].encode("utf-8", "surrogateescape")), text
            )
        return text.encode("utf-8", "surrogateescape")

    def remove_from_data(self, value: Any, name: str = "") -> Any:
        """The value of the field `name` without the text, as plain data. In arguments of tools also
        numbers and keys lose it. Fields that are needed to read the others stay as they are.
        """
        if isinstance(value, str):
            is_fixed = name in _FIXED_FIELDS or (name == "name" and _PLAIN_NAME.fullmatch(value))
            return value if is_fixed else self.remove_from(value)
        if isinstance(value, Mapping):
            return self._remove_from_fields(value, is_argument=name == _ARGUMENTS_KEY)
        if isinstance(value, Sequence):
            return [self.remove_from_data(item, name) for item in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and name == _ARGUMENTS_KEY:
            return self.placeholder if self.count(str(value)) else value
        return value

    def _remove_from_fields(self, value: Mapping[Any, Any], *, is_argument: bool) -> dict[Any, Any]:
        """A mapping without the text. Keys lose it only in arguments of tools: other keys have a
        meaning to ouro.
        """
        fields = {}
        for key, field_value in value.items():
            if is_argument:
                fields[self.remove_from(key)] = self.remove_from_data(field_value, _ARGUMENTS_KEY)
            else:
                fields[key] = self.remove_from_data(field_value, key)
        if fields.get("signature") and fields.get("text") != value.get("text"):
            fields["signature"] = ""  # it is the signature of a text that has changed
        return fields


def _pattern_of(text: str) -> str:
    """A pattern that matches a text also in its escaped forms, with any space between its words, and
    a long text also if a line ends inside a word.
    """
    break_in_word = _LINE_BREAK_IN_WORD if len(text) >= _MIN_WRAPPED_CHARACTERS else ""
    return _ESCAPED_SPACE.join(
        break_in_word.join(map(_pattern_of_character, word)) for word in text.split()
    )


def _pattern_of_character(character: str) -> str:
    """A pattern that matches a character as it is, and as HTML, JSON and URLs escape it."""
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
        # As in JSON: one or two units of UTF-16.
        utf_16 = character.encode("utf-16-be", "surrogatepass")
        units = [utf_16[start : start + 2].hex() for start in range(0, len(utf_16), 2)]
        forms.append("".join(rf"\\+u{unit}" for unit in units))
    return forms[0] if len(forms) == 1 else f"(?:{'|'.join(forms)})"


def _base64_forms(data: bytes) -> list[str]:
    """The texts by which `data` is recognized in the base64 text of something that contains it.
    There are three, because three bytes become four characters: `data` may begin at the first,
    second or third of such bytes. Each text has only characters that depend on `data` alone. Texts
    that are too short are left out.
    """
    forms: list[str] = []
    for bytes_before in range(3):
        # Two bytes after it, because its last character may depend on what follows.
        encoded = base64.b64encode(bytes(bytes_before) + data + b"\0\0").decode()
        # A character holds 6 bits: the first and the last one may hold bits of what is around.
        start = math.ceil(bytes_before * 8 / 6)
        end = (bytes_before + len(data)) * 8 // 6
        common_part = encoded[start:end]
        if len(common_part) >= _MIN_BASE64_CHARACTERS:
            in_url = common_part.replace("+", "-").replace("/", "_")
            forms += dict.fromkeys((common_part, in_url))
    return forms


class PlaceCount(msgspec.Struct):
    """How often the text is in one place."""

    place: str
    count: int


class ForgetReport(msgspec.Struct):
    """What was searched and found, and what could not be changed."""

    places: list[PlaceCount] = []
    """All that were searched, also those without the text."""
    left: list[str] = []
    """Where the text remains, and what the user can do about it."""
    sessions: list[str] = []
    """The folders of sessions that hold it."""
    unsearched: list[str] = []
    """What was not searched, and why."""

    @property
    def count(self) -> int:
        return sum(place.count for place in self.places)

    def add(self, place: str, count: int) -> int:
        """Add `count` to the number for a place, which is listed even if it is 0. Returns `count`."""
        counted = next((counted for counted in self.places if counted.place == place), None)
        if counted is None:
            counted = PlaceCount(place, count=0)
            self.places.append(counted)
        counted.count += count
        return count


def regular_files(folder: Path) -> Iterator[Path]:
    """Yield the user's regular files below a folder, folder by folder, sorted; links are not
    followed. A file that another process has just removed is left out.
    """
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                yield path


def forget_in_file(path: Path, forgotten: ForgottenText, report: ForgetReport) -> None:
    """Replace a text file with one without the text to forget, which only the user can read. A
    binary file is not changed, but reported.
    """
    data = path.read_bytes()
    try:
        if "\0" in data.decode():
            raise ValueError("NUL bytes")
    except ValueError:
        report.left.append(f"{path}: it is not text. Look at it, and remove it yourself.")
        return
    with open_folder(path.parent) as folder:
        replace_file(folder, path.name, forgotten.remove_from_bytes(data))
