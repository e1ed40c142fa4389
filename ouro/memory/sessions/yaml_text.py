"""Write plain data as readable YAML, and read untrusted YAML as plain data.

No library is used to write: block literals are needed also for lines with trailing spaces (every
diff has them), anchors must never appear, and the first save must not wait for an import. Reading
builds values from the parser's events: what could grow without limit (aliases, tags, depth) is
refused before a value is made of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import readable_bytes
from ouro.utils.yaml import read_events

MAX_DEPTH = 64
"""The most levels of lists and mappings that are read."""
MAX_DIGITS = 100
_MAX_INLINE_WIDTH = 110

_SURROGATES = late_pattern("[\ud800-\udfff]")
_UNPRINTABLE = late_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NEEDS_NO_QUOTES = late_pattern(
    r"[A-Za-z_/][\w./@+-]*(?: [\w./@+-]+){0,12}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    re.ASCII,
)
"""Text that every reader of YAML takes for a string: words, a time, an id."""
_WORDS_OF_YAML = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = late_pattern(r"[-+]?[0-9]+")
_FLOAT = late_pattern(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOATS = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}


class BadYamlError(ValueError):
    """Text that is not YAML, or uses a refused feature; the message names it with its line."""


def replace_surrogates(text: str) -> str:
    """`text` with `\\xff` for each byte of a path that is not UTF-8, and U+FFFD for each other lone
    surrogate: YAML cannot hold them.
    """
    return text if text.isascii() else _SURROGATES.sub("\ufffd", readable_bytes(text))


def dump(data: Mapping[str, Any]) -> str:
    """A mapping as the lines of one YAML document, without its marks; small values are on one line."""
    return "\n".join(_mapping_lines(data, "")) + "\n"


def dump_inline(value: Any) -> str:
    """A value on one line: `{a: 1, b: [x, y]}`."""
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{_scalar(key)}: {dump_inline(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(dump_inline(item) for item in value) + "]"
    return _scalar(value)


def _mapping_lines(data: Mapping[str, Any], pad: str) -> list[str]:
    """The lines of a mapping, each indented by `pad`."""
    lines: list[str] = []
    for key, value in data.items():
        first, *rest = _value_lines(value, pad, pad)
        lines.append(f"{pad}{_scalar(key)}:{first}")
        lines.extend(rest)
    return lines


def _list_lines(items: Sequence[Any], pad: str) -> list[str]:
    """The lines of a list, each indented by `pad`. A mapping begins on the line of its `-`."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, Mapping) and item and not _fits_inline(item):
            inner = _mapping_lines(item, pad + "  ")
            inner[0] = f"{pad}- {inner[0].lstrip(' ')}"
        else:
            first, *rest = _value_lines(item, pad, pad + "  ")
            inner = [f"{pad}-{first}", *rest]
        lines.extend(inner)
    return lines


def _value_lines(value: Any, pad: str, list_pad: str) -> list[str]:
    """The text after `key:` or `-`: the rest of that line, then the following lines."""
    if isinstance(value, str):
        return _string_lines(value, pad + "  ")
    if isinstance(value, Mapping) and value and not _fits_inline(value):
        return ["", *_mapping_lines(value, pad + "  ")]
    if isinstance(value, Sequence) and value and not _fits_inline(value):
        return ["", *_list_lines(value, list_pad)]
    return [" " + dump_inline(value)]


def _fits_inline(value: Any) -> bool:
    return _inline_width(value) <= _MAX_INLINE_WIDTH


def _inline_width(value: Any) -> int:
    """The approximate characters of `value` on one line; very large if it needs several lines."""
    if isinstance(value, Mapping):
        return _sum_widths(list(chain.from_iterable(value.items())))
    if isinstance(value, Sequence) and not isinstance(value, str):
        if any(isinstance(item, Mapping) for item in value):
            return _MAX_INLINE_WIDTH + 1
        return _sum_widths(value)
    if isinstance(value, str):
        return _MAX_INLINE_WIDTH + 1 if "\n" in value else len(value) + 2
    return 8


def _sum_widths(items: Sequence[Any]) -> int:
    """The approximate characters of a list or mapping on one line; counting ends above the limit."""
    total = 2
    for item in items:
        total += _inline_width(item) + 1
        if total > _MAX_INLINE_WIDTH:
            break
    return total


def _string_lines(text: str, pad: str) -> list[str]:
    """The text after `key:` for a string, and the following lines: on one line, in a literal block,
    or quoted if a block cannot hold it.
    """
    text = replace_surrogates(text)
    if "\n" not in text:
        return [" " + _scalar(text)]
    if _UNPRINTABLE.search(text):
        return _quoted_lines(text, pad)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # the mark says how the text ends
    return [" " + _block_mark(text), *(pad + line if line else "" for line in lines)]


def _block_mark(text: str) -> str:
    """The mark before a literal block: `|`, `2` if YAML cannot see the indentation, and how the
    text ends: `-` without a newline, `+` with several.
    """
    indentation = "2" if text[0] in " \t\n" else ""
    body = text.rstrip("\n")
    newlines = len(text) - len(body)
    if newlines == 0:
        return f"|{indentation}-"
    if newlines == 1 and body:
        return f"|{indentation}"
    return f"|{indentation}+"


def _quoted_lines(text: str, pad: str) -> list[str]:
    """A string that a literal block cannot hold: quoted, still one line for each of its own."""
    first, *rest = [_escape(line) for line in text.split("\n")]
    rest = [pad + ("\\" if line.startswith(" ") else "") + line for line in rest]
    lines = [f' "{first}', *rest]
    return [line + "\\n\\" for line in lines[:-1]] + [lines[-1] + '"']


def _scalar(value: Any) -> str:
    """A single value: without quotes if no reader of YAML can take it for something else."""
    if isinstance(value, str):
        text = replace_surrogates(value)
        if (
            _NEEDS_NO_QUOTES.fullmatch(text)
            and text.lower() not in _WORDS_OF_YAML
            and len(text) < 200
        ):
            return text
        return f'"{_escape(text)}"'
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return _float_text(value)
    return str(value)


def _float_text(value: float) -> str:
    """A float that all readers of YAML take for one."""
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, e, exponent = repr(value).partition("e")
    # YAML 1.1 readers read `1e-05` as a word.
    return mantissa + (".0" if e and "." not in mantissa else "") + e + exponent


def _escape(line: str) -> str:
    """The text of a line between double quotes."""
    text = json.dumps(line, ensure_ascii=False)[1:-1]
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def load(text: bytes) -> Any:
    """The plain data of one YAML document.

    Raises:
        BadYamlError: not YAML, more than one document, or a refused feature: anchors, aliases, tags,
            more than 64 levels, keys that are repeated or not words, numbers of over 100 digits.
    """
    try:
        values = read_events(
            text,
            _make_scalar,
            lambda items, _start: items,
            _make_mapping,
            _error_of_event,
            MAX_DEPTH,
        )
    except SyntaxError as error:
        raise BadYamlError(
            f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
        ) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadYamlError):
            raise
        raise BadYamlError(str(error)) from error
    if not values:
        raise BadYamlError("nothing in it")
    return values[0]


def _make_mapping(items: list[Any], start: Any) -> dict[str, Any]:
    """A dict from keys and values in turn. Raises BadYamlError for a key that is not a string, or
    comes twice.
    """
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys):
        raise _bad_yaml_error(start, "a key that is not a word")
    mapping = dict(zip(keys, items[1::2], strict=True))
    if len(mapping) != len(keys):
        raise _bad_yaml_error(start, "a key that comes twice")
    return mapping


def _make_scalar(event: Any) -> Any:
    """The value of an event: a string if it has quotes, else what it looks like. Raises
    BadYamlError for a number of over 100 digits.
    """
    text: str = event.value
    if event.style or (text[:1].isalpha() and text not in _CONSTANTS):
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise _bad_yaml_error(event, "a number of over 100 digits")
        return int(text)
    if text in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[text]
    return float(text) if _FLOAT.fullmatch(text) else text


def _error_of_event(event: Any) -> BadYamlError:
    """The error for an event of the parser that `read_events` does not allow."""
    import yaml  # loaded by the parser already

    if isinstance(event, yaml.DocumentStartEvent):
        return BadYamlError("not one document")
    if isinstance(event, yaml.AliasEvent):
        return _bad_yaml_error(event, "an alias")
    if isinstance(event, yaml.ScalarEvent):
        return _bad_yaml_error(event, "an anchor or a tag")
    return _bad_yaml_error(event, "an anchor, a tag or over 64 levels")


def _bad_yaml_error(event: Any, reason: str) -> BadYamlError:
    """The error that names the line of an event, and what is wrong with it."""
    line = event.start_mark.line + 1
    return BadYamlError(f"line {line}: {reason}, which ouro never writes and does not read")
