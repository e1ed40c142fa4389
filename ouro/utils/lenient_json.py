"""Read JSON: of other programs, where a value of an unexpected type counts as absent, and of ouro's
own state. Write it, with paths that are not UTF-8.
"""

from __future__ import annotations

import json
import os
import re
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ouro.errors import ConfigError
from ouro.utils.decoding import decode_json
from ouro.utils.files import open_regular
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import has_bytes, readable_bytes

_Answer = TypeVar("_Answer", bound=msgspec.Struct)
_State = TypeVar("_State")
MAX_COUNT = 1 << 53
"""The greatest JSON number that is exact."""
MAX_BYTES = 1_000_000
"""Maximum bytes of a file."""
MAX_DEPTH = 100
"""Maximum levels of a call's arguments: from about 900 on, JSON can be read but not written."""
_COMMENT = late_pattern(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = late_pattern(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def parse_json(text: str) -> Any:
    """The value of a JSON text, which may have comments and trailing commas, as editors write them.
    Raises ValueError, RecursionError.
    """
    text = text.removeprefix("\ufeff")
    try:
        return json.loads(text)
    except ValueError:
        # Group 1 is a string, which stays as it is.
        without_comments = _COMMENT.sub(lambda match: match[1] or _line_ends(match[0]), text)
        return json.loads(_LAST_COMMA.sub(lambda match: match[1] or " ", without_comments))


def _line_ends(comment: str) -> str:
    """A blank, and the line ends of a comment: an error after it names the right line."""
    return " " + "\n" * comment.count("\n")


def read_json(path: Path, *, is_plain: bool = False) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file. Raises ConfigError: it cannot be read,
    is too large, or is not an object.

    Args:
        is_plain: whether it must have no comments, because it will be written again.
    """
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{tilde(path)} is larger than {MAX_BYTES:,} bytes.")
        text = data.decode(json.detect_encoding(data))
        table = json.loads(text) if is_plain else parse_json(text)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{tilde(path)} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{tilde(path)} is not JSON: {error}.") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{tilde(path)}: an object is expected, not {type(table).__name__}.")
    return table


def read_state(path: Path, kind: type[_State]) -> _State:
    """The value of `kind` that ouro has saved as JSON. Returns an empty value if there is no file,
    or if the file cannot be read; the latter is logged.
    """
    try:
        with open_regular(path, os.O_NOFOLLOW) as file:
            data = file.read()
        return decode_json(data, kind) if data.strip() else kind()
    except FileNotFoundError:
        return kind()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("%s cannot be read, and counts as empty: %s", path, error)
        return kind()


def dump_json(value: Any, *, is_ascii: bool = False, **options: Any) -> str:
    """`value` as JSON that each reader accepts: a byte of a path that is not UTF-8 is written as `\\xff`.
    Python would write a lone surrogate, which cannot be encoded, and which many readers refuse.

    `is_ascii`: whether all other characters are escaped.
    """
    text = json.dumps(value, ensure_ascii=is_ascii, **options)
    # A raw byte is `\udcff` in text of ASCII, and the character itself in other text.
    if "\\udc" not in text and not has_bytes(text):
        return text
    return json.dumps(_readable(json.loads(text)), ensure_ascii=is_ascii, **options)


def _readable(value: Any) -> Any:
    """A copy of a JSON value in whose texts and keys raw bytes are written as `\\xff`."""
    if isinstance(value, str):
        return readable_bytes(value)
    if isinstance(value, dict):
        return {readable_bytes(key): _readable(item) for key, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def dictionary(value: Any) -> dict[str, Any]:
    """`value` if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


def arguments_object(value: Any) -> dict[str, Any] | None:
    """`value` if it is an object, as the arguments of a tool call are, with at most MAX_DEPTH levels;
    otherwise None. Without recursion, so that no depth can crash it.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = [
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        ]
        level = list(chain.from_iterable(nested))
        if not level:
            break
    return value if isinstance(value, dict) and not level else None


def dictionaries(value: Any) -> list[dict[str, Any]]:
    """The dictionaries in a list; empty if it is not a list."""
    if not isinstance(value, list | tuple):
        return []
    return [item for item in value if isinstance(item, dict)]


def string(value: Any) -> str:
    """`value` if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def text_or_json(value: Any) -> str:
    """A text unchanged, None as an empty text, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def count(value: Any) -> int | None:
    """A whole number >= 0, also written as `12.0`; otherwise None."""
    number = amount(value)
    return int(number) if number is not None and number.is_integer() else None


def amount(value: Any) -> float | None:
    """A finite number >= 0; otherwise None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < MAX_COUNT else None


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a model's answer, which allows no other fields."""
    _, schemas_by_name = msgspec.json.schema_components([kind])
    return {**schemas_by_name[kind.__name__], "additionalProperties": False}


def decode_answer(answer: str, kind: type[_Answer]) -> _Answer | None:
    """A model's answer by a JSON schema, also with text around the JSON; None if it does not match."""
    start, end = answer.find("{"), answer.rfind("}")
    try:
        return decode_json(answer[start : end + 1].encode(), kind)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
