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
    """Returns `text` without lone surrogates, which YAML cannot hold: one that stands for a byte of
    a path that is not UTF-8 becomes `\\xff`, any other U+FFFD.
    """
    return text if text.isascii() else _SURROGATES.sub("\ufffd", readable_bytes(text))


def dump(data: Mapping[str, Any]) -> str:
    """Returns a mapping as the lines of one YAML document, without its marks. Small lists and
    mappings in it are on one line each.
    """
    return "\n".join(_mapping_lines(data, pad="")) + "\n"


def dump_inline(value: Any) -> str:
    """Returns a value on one line, such as `{a: 1, b: [x, y]}`."""
    if isinstance(value, Mapping):
        fields = [f"{_scalar(key)}: {dump_inline(item)}" for key, item in value.items()]
        return "{" + ", ".join(fields) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(dump_inline(item) for item in value) + "]"
    return _scalar(value)


def _mapping_lines(data: Mapping[str, Any], pad: str) -> list[str]:
    """Returns the lines of a mapping, each indented by `pad`."""
    lines: list[str] = []
    for key, value in data.items():
        first, *rest = _value_lines(value, pad, pad)
        lines.append(f"{pad}{_scalar(key)}:{first}")
        lines.extend(rest)
    return lines


def _list_lines(items: Sequence[Any], pad: str) -> list[str]:
    """Returns the lines of a list, each indented by `pad`. A mapping that needs several lines
    begins on the line of its `-`.
    """
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
    """Returns the lines of a value after `key:` or `-`: first the rest of that line, then the
    following lines.

    Args:
        pad: the indentation of that line.
        list_pad: the indentation of the items, if the value is a list.
    """
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
    """Returns the approximate number of characters of a value on one line; over the limit if it
    needs several lines.
    """
    if isinstance(value, Mapping):
        return _sum_widths(list(chain.from_iterable(value.items())))
    if isinstance(value, Sequence) and not isinstance(value, str):
        if any(isinstance(item, Mapping) for item in value):
            return _MAX_INLINE_WIDTH + 1
        return _sum_widths(value)
    if isinstance(value, str):
        return _MAX_INLINE_WIDTH + 1 if "\n" in value else len(value) + 2
    return 8  # a number, true, false or null


def _sum_widths(items: Sequence[Any]) -> int:
    """Returns the approximate number of characters of a list or mapping on one line. Counting ends
    above the limit.
    """
    total = 2  # the brackets
    for item in items:
        total += _inline_width(item) + 1
        if total > _MAX_INLINE_WIDTH:
            break
    return total


def _string_lines(text: str, pad: str) -> list[str]:
    """Returns the lines of a string after `key:`, as `_value_lines` does: one line, a literal
    block, or a quoted text if a block cannot hold it. `pad` is the indentation of the following
    lines.
    """
    text = replace_surrogates(text)
    if "\n" not in text:
        return [" " + _scalar(text)]
    if _UNPRINTABLE.search(text):
        return _quoted_lines(text, pad)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # the mark says that the text ends with a newline
    return [" " + _block_mark(text), *(pad + line if line else "" for line in lines)]


def _block_mark(text: str) -> str:
    """Returns the mark before a text that is written as a literal block. It has three parts:

    - `|`;
    - `2`, the indentation of the block, if the text begins with white space: then a reader cannot
      find the indentation itself;
    - `-` if the text has no newline at its end, nothing if it has one, `+` if it has several or
      nothing else.
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
    """Returns the lines of a quoted text, after `key:`, with a line for each line of the text.
    `pad` is the indentation of the following lines.
    """
    first, *rest = [_escape(line) for line in text.split("\n")]
    # YAML ignores spaces at the beginning of a line, unless a backslash is before them.
    rest = [pad + ("\\" if line.startswith(" ") else "") + line for line in rest]
    lines = [f' "{first}', *rest]
    return [line + "\\n\\" for line in lines[:-1]] + [lines[-1] + '"']


def _scalar(value: Any) -> str:
    """Returns a single value as it is written on one line. A text is written without quotes if
    every reader of YAML reads it as a text then.
    """
    if isinstance(value, str):
        text = replace_surrogates(value)
        has_meaning = text.lower() in _WORDS_OF_YAML
        if len(text) < 200 and not has_meaning and _NEEDS_NO_QUOTES.fullmatch(text):
            return text
        return f'"{_escape(text)}"'
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return _float_text(value)
    return str(value)


def _float_text(value: float) -> str:
    """Returns a float as a text that all readers of YAML take for a float."""
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, e, exponent = repr(value).partition("e")
    if e and "." not in mantissa:
        mantissa += ".0"  # readers of YAML 1.1 take `1e-05` for a word
    return mantissa + e + exponent


def _escape(line: str) -> str:
    """Returns a line as it is written between double quotes."""
    text = json.dumps(line, ensure_ascii=False)[1:-1]
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def load(text: bytes) -> Any:
    """Returns the plain data of one YAML document.

    Raises:
        BadYamlError: not YAML, more than one document, or a refused feature: anchors, aliases,
            tags, more than 64 levels, keys that are repeated or not words, numbers of over 100
            digits.
    """
    try:
        values = read_events(
            text,
            _make_scalar,
            sequence=lambda items, _start: items,
            mapping=_make_mapping,
            refuse=_error_of_event,
            max_depth=MAX_DEPTH,
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
    """Returns a dict from a list of keys and values in turn; `start` is the event that began it.
    Raises BadYamlError for a key that is not a string, or comes twice.
    """
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys):
        raise _bad_yaml_error(start, "a key that is not a word")
    mapping = dict(zip(keys, items[1::2], strict=True))
    if len(mapping) != len(keys):
        raise _bad_yaml_error(start, "a key that comes twice")
    return mapping


def _make_scalar(event: Any) -> Any:
    """Returns the value of an event for a single value: a string if it has quotes, otherwise what
    it looks like. Raises BadYamlError for a number of over 100 digits.
    """
    text: str = event.value
    is_word = text[:1].isalpha() and text not in _CONSTANTS
    if event.style or is_word:
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
    """Returns the error for an event of the parser that `read_events` does not allow."""
    import yaml  # loaded by the parser already

    if isinstance(event, yaml.DocumentStartEvent):
        return BadYamlError("not one document")
    if isinstance(event, yaml.AliasEvent):
        return _bad_yaml_error(event, "an alias")
    if isinstance(event, yaml.ScalarEvent):
        return _bad_yaml_error(event, "an anchor or a tag")
    return _bad_yaml_error(event, "an anchor, a tag or over 64 levels")


def _bad_yaml_error(event: Any, reason: str) -> BadYamlError:
    """Returns the error that names the line of an event, and what is wrong with it (`reason`)."""
    line = event.start_mark.line + 1
    return BadYamlError(f"line {line}: {reason}, which ouro never writes and does not read")
