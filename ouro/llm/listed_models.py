"""Windows, prices and abilities of the models that are listed in the table of the installed litellm, or
in a newer copy that the user has fetched.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import ConfigError
from ouro.llm.model import ModelSpec, Prices
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import amount, count, dictionary, string
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir, get_price_table_path

INSTALLED = "model_prices_and_context_window_backup.json"
"""The name of the table in the package litellm."""
DEFAULT_ADDRESS = (
    "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json"
)
MAX_TABLE = 30_000_000
"""Maximum bytes of a fetched table; litellm's has 3 MB."""
MIN_ROWS = 100
"""A fetched table with prices for fewer models is refused."""
FETCH_TIMEOUT = 30.0
MILLION = 1_000_000
CHAT_MODES = ("chat", "responses", "completion", "")
"""The modes of models that a session can use; empty: the table does not say."""
UNPREFIXED = ("openai", "anthropic", "bedrock", "bedrock_converse", "cohere_chat")
"""Providers whose models the table lists without the name of the provider."""
_PRICE_ABOVE = late_pattern(r"input_cost_per_token_above_(\d+)k_tokens")
"""Matches the key of a higher price for requests above a length:
`input_cost_per_token_above_200k_tokens`.
"""
Rows = dict[str, msgspec.Raw]
"""The rows of a table by the name of the model, in JSON that is not decoded yet."""


def find_listed_spec(name: str) -> ModelSpec | None:
    """The facts of the table about a model; None if the table does not have it, or if it is not a
    model for chat.

    Args:
        name: the name that litellm uses, as `PROVIDER/MODEL`. Most rows have it in lower case; of
            some providers the table has only `MODEL`.
    """
    rows = _load_rows()
    row = _decode_row(rows, name.lower()) or _decode_row(rows, name)
    if not row:
        prefix, _, model = name.partition("/")
        row = _decode_row(rows, model)
        # Another provider may have a model of the same name.
        is_same_provider = string(row.get("litellm_provider")).startswith(prefix)
        if prefix not in UNPREFIXED or not is_same_provider:
            return None
    if string(row.get("mode")) not in CHAT_MODES:
        return None
    return _row_as_spec(name, row)


def fetch_table(address: str = "") -> tuple[Path, int]:
    """Fetch a newer table from an address; returns where it is, and its number of models. Blocks.

    Raises:
        ConfigError: the address does not answer with such a table; the one in use stays.
    """
    from urllib.request import Request, urlopen

    address = address or DEFAULT_ADDRESS
    if not address.startswith(("https://", "http://127.0.0.1", "http://localhost", "file://")):
        raise ConfigError(
            f"{address} is not a safe address for prices.", "It begins with https://."
        )
    try:
        request = Request(address, headers={"Accept": "application/json"})  # noqa: S310 (see above)
        with urlopen(request, timeout=FETCH_TIMEOUT) as answer:  # noqa: S310
            data = answer.read(MAX_TABLE + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{address} cannot be read: {error}.") from error
    rows = _decode_table(data) if len(data) <= MAX_TABLE else {}
    if sum(b"_cost_per_token" in bytes(row) for row in rows.values()) < MIN_ROWS:
        raise ConfigError(f"{address} has no table of models in litellm's format.")
    path = get_price_table_path()
    ensure_private_dir(path.parent)
    write_private(path, data)
    _load_rows.cache_clear()
    return path, len(rows)


@lru_cache(1)
def _load_rows() -> Rows:
    """The rows of the fetched table, else of the installed one; empty if there is neither. They are
    not decoded: reading the names of 4,000 models takes 5 ms.
    """
    for path in (get_price_table_path(), _find_installed_table()):
        if path is None:
            continue
        try:
            rows = _decode_table(path.read_bytes())
        except OSError:
            continue
        if rows:
            return rows
    return {}


def _find_installed_table() -> Path | None:
    """The table in the installed litellm; None if it is not installed."""
    package = find_spec("litellm")  # not imported: that takes seconds
    return Path(package.origin).parent / INSTALLED if package and package.origin else None


def _decode_table(data: bytes) -> Rows:
    """The rows of a table. If it cannot be read, there are none, and a line in the log says so."""
    try:
        return decode_json(data, Rows)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("the table of models cannot be read: %s", error)
        return {}


def _decode_row(rows: Rows, name: str) -> dict[str, Any]:
    """The row of a model; empty if there is none."""
    return dictionary(msgspec.json.decode(rows[name])) if name in rows else {}


def _row_as_spec(name: str, row: dict[str, Any]) -> ModelSpec:
    """The facts in the row of a model; the usual values where it has none."""
    from ouro.llm.providers import MAX_OUTPUT, OUTPUT_SHARE

    usual = ModelSpec(name)
    max_tokens = count(row.get("max_tokens"))  # of the window, or of an answer
    window = count(row.get("max_input_tokens")) or max_tokens or usual.window
    # The window ends where the provider charges more: no session costs more without a decision.
    matches = map(_PRICE_ABOVE.fullmatch, row)
    price_steps = [int(match[1]) * 1000 for match in matches if match]
    window = min([window, *price_steps])
    max_output = count(row.get("max_output_tokens")) or max_tokens or usual.max_output
    return ModelSpec(
        name,
        window,
        max_output=min(max_output, window // OUTPUT_SHARE, MAX_OUTPUT),
        prices=_row_prices(row),
        images=row.get("supports_vision") is True,
        tools=row.get("supports_function_calling") is not False,
        thinking=row.get("supports_reasoning") is True,
    )


def _row_prices(row: dict[str, Any]) -> Prices | None:
    """The prices of a row; None if the price of the input or of the output is missing."""
    input_price = _price_per_million(row, "input_cost_per_token")
    output_price = _price_per_million(row, "output_cost_per_token")
    if input_price is None or output_price is None:
        return None
    return Prices(
        input=input_price,
        output=output_price,
        cached=_price_per_million(row, "cache_read_input_token_cost"),
        # In the table 0 means: writing to the cache costs the same as other input, which is None
        # here.
        cache_written=_price_per_million(row, "cache_creation_input_token_cost") or None,
    )


def _price_per_million(row: dict[str, Any], key: str) -> float | None:
    """A price in US dollars for a million tokens; None if the row does not have it."""
    price = amount(row.get(key))
    return None if price is None else round(price * MILLION, 6)
