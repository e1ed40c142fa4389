"""models.yaml: the models, keys and prices of the user; read, and changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import astuple, replace

from ouro.errors import ConfigError
from ouro.llm.model import ModelSpec, Prices
from ouro.llm.providers import is_address
from ouro.utils.files import write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import get_models_path, tilde
from ouro.utils.yaml import parse_table, read_section, read_yaml
from ouro.utils.yaml_nodes import YamlTable

KEY_FIELDS = ("api_key", "api_key_env", "api_key_command", "api_key_keyring")
"""The fields that say where the key is; an entry has at most one of them."""
HEADER = "# Models and keys of ouro; models.yaml.example in its repository shows all keys.\n\n"
"""The first lines of a new file."""
_HEADER_NAME = late_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_OWN_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection")
"""Headers on which the transport depends: they cannot be set."""
WRITTEN_FIELDS = (*KEY_FIELDS, "api_base", "window")
"""The fields that ouro writes; users write the others."""


class ModelEntry(msgspec.Struct, frozen=True):
    """The entry of one model; None and empty mean "not set"."""

    api_key: str = ""
    api_key_env: str = ""
    """The variable that holds the key."""
    api_key_command: str = ""
    """A command that prints the key; run when the model is first used, without a shell."""
    api_key_keyring: str = ""
    """The account in the keyring of the system, written by `ouro models login`."""
    api_base: str = ""
    """The address of the server; empty: that of the provider."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Further headers of each request, such as those of a gateway; `${NAME}` in a value is the
    variable. An empty value leaves a header of ouro out.
    """
    via: Literal["direct", "litellm"] | None = None
    """Whether the provider is asked directly or by litellm; None: directly if ouro can."""
    wire: Literal["responses", "chat"] | None = None
    """Which of OpenAI's protocols the server speaks; None: OpenAI's own servers get Responses, and
    a server that names the other one gets that.
    """
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    """Sent with each request to Responses."""
    window: int | None = None
    max_output: int | None = None
    prices: Prices | None = None
    images: bool | None = None
    tools: bool | None = None
    thinking: bool | None = None
    patches: bool | None = None
    text_tools: Literal["auto", "on", "off"] | None = None
    fallbacks: tuple[str, ...] = ()
    """The models to ask, in this order, if the model does not answer."""

    __repr__ = object.__repr__  # a traceback may be logged, and must not contain the key

    def merge_over(self, common: ModelEntry) -> ModelEntry:
        """This entry, with the fields of `common` that it does not set. The key of `common` is left
        out if this entry has one, or a server of its own: that must not get the key, nor the
        headers.
        """
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        own_values = {
            name: value for name, value in values.items() if value not in (None, "", (), {})
        }
        has_own_key = any(field in own_values for field in KEY_FIELDS)
        has_own_server = self.api_base not in ("", common.api_base)
        if has_own_key or has_own_server:
            common = replace(common, **dict.fromkeys(KEY_FIELDS, ""))
        headers = self.headers if has_own_server else {**common.headers, **self.headers}
        return replace(common, **{**own_values, "headers": headers})

    @property
    def fixed_fields(self) -> frozenset[str]:
        """The fields of the spec that this entry sets."""
        return frozenset(self._spec_values())

    def apply_to(self, spec: ModelSpec) -> ModelSpec:
        """The facts about a model, with the fields that this entry sets."""
        return replace(spec, **self._spec_values())

    def _spec_values(self) -> dict[str, Any]:
        """The fields of the spec that this entry sets, with their values."""
        values = {name: getattr(self, name, None) for name in ModelSpec.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None}


class ModelsFile(msgspec.Struct, frozen=True):
    """The content of models.yaml."""

    default: str = ""
    """The model of a new session."""
    compact: str = ""
    """The model that writes summaries and titles; empty: the model of the session."""
    classify: str = ""
    """The model that decides what becomes a note; empty: the model that compacts."""
    retrieve: str = ""
    """The model that writes a hypothetical note for recall (HyDE); empty: recall does not use a
    model.
    """
    embed: str = ""
    """The model that turns texts into vectors; empty: the local one, if it is installed."""
    plan: str = ""
    """The model that answers in plan mode; empty: the model of the session."""
    fallbacks: tuple[str, ...] = ()
    """The fallbacks for models without their own."""
    prices_url: str = ""
    """Where `ouro models update` fetches windows and prices; empty: from litellm's repository."""
    models: Mapping[str, ModelEntry] = msgspec.field(default_factory=dict)
    """Model name -> entry; `anthropic/*` is the entry for all models of a provider."""


def read_models_file(path: Path) -> ModelsFile:
    """Read models.yaml; empty if the file does not exist.

    Raises:
        ConfigError: it is not valid; the message names file and line.
    """
    name = tilde(path)
    table = read_yaml(path, name)
    models = table.entries.get("models")
    if isinstance(models, YamlTable):
        _refuse_key_files(models, name)
    file = read_section(table, ModelsFile, name)
    if not isinstance(models, YamlTable):
        return file
    for model, entry in file.models.items():
        _check_entry(entry, f"{name}:{models.key_lines[model]}: `{model}`")
    return file


def _refuse_key_files(models: YamlTable, name: str) -> None:
    """Raises ConfigError for `api_key_file`, which users of other programs write."""
    for model, entry in models.entries.items():
        if isinstance(entry, YamlTable) and "api_key_file" in entry.entries:
            line = entry.key_lines["api_key_file"]
            raise ConfigError(
                f"{name}:{line}: `{model}`: there is no `api_key_file`.",
                "Write `api_key_command: cat FILE`.",
            )


def _check_entry(entry: ModelEntry, where: str) -> None:
    """Raises ConfigError if an entry contradicts itself or has a value that is not possible."""
    key_fields = [f"`{field}`" for field in KEY_FIELDS if getattr(entry, field)]
    if len(key_fields) > 1:
        raise ConfigError(f"{where} has {' and '.join(key_fields)}: keep one.")
    if entry.api_base and not is_address(entry.api_base):
        raise ConfigError(
            f"{where}: `api_base` must be like http://HOST:PORT/v1, not `{entry.api_base}`."
        )
    _check_headers(entry.headers, where)
    _check_size("window", entry.window, where)
    _check_size("max_output", entry.max_output, where)
    prices = astuple(entry.prices) if entry.prices else ()
    if any(price is not None and price < 0 for price in prices):
        raise ConfigError(f"{where}: `prices` cannot be below 0.")


def _check_headers(headers: Mapping[str, str], where: str) -> None:
    """Raises ConfigError for a header that HTTP does not allow, or that the transport sets itself."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise ConfigError(f"{where}: `headers` cannot have `{name}`.")
        if not (value.isascii() and value.isprintable()):
            raise ConfigError(f"{where}: the header `{name}` has a character that HTTP forbids.")


def _check_size(key: str, size: int | None, where: str) -> None:
    """Raises ConfigError if a size is set and not above 0."""
    if size is not None and size <= 0:
        raise ConfigError(f"{where}: `{key}` must be more than 0, not `{size}`.")


def _with_entry(
    text: str, name: str, values: Mapping[str, Any], path_name: str, *, is_new: bool
) -> str:
    """The text of models.yaml in which the entry `name` has these values; a field with an empty value
    is removed.

    Args:
        path_name: the file, in errors.
        is_new: whether the text has no such entry yet; then one without values is written as `{}`.
    """
    from ouro.utils.yaml_edit import as_scalar, with_value  # a start changes no models

    # Each is inserted at the beginning of the entry: the last one first keeps the order.
    for key, value in reversed(list(values.items())):
        scalar = as_scalar(value) if value else ""
        text = with_value(text, path=("models", name, key), value=scalar, name=path_name)
    if is_new and not any(values.values()):
        text = with_value(text, path=("models", name), value="{}", name=path_name)
    return text


def make_private(path: Path) -> str:
    """Make models.yaml private (0600), since it holds keys. Returns a notice if other users could read
    it, or still can; empty if they could not, or there is no file.
    """
    try:
        if not path.stat().st_mode & 0o077:
            return ""
    except OSError:
        return ""
    try:
        path.chmod(0o600)
    except OSError:
        return (
            f"{tilde(path)} can be read by others on this machine. It holds keys: run `chmod 600"
            f" {tilde(path)}`."
        )
    return f"{tilde(path)} could be read by others on this machine; its permissions are now 0600."


def write_models_file(name: str, entry: ModelEntry, default: str = "") -> Path:
    """Write a model (or `provider/*`) into models.yaml (0600), completely or not at all; everything
    else stays.

    Args:
        name: the litellm name, or `anthropic/*` for all models of a provider; empty: only the default is set.
        entry: its key, `api_base` and window; other fields of an existing entry stay unchanged.
        default: the model that new sessions start with; empty: unchanged.

    Raises:
        ConfigError: the file is broken, cannot be written, or has a layout that must be edited by hand.
    """
    from ouro.utils.yaml_edit import as_scalar, with_value

    path = get_models_path()
    expected = read_models_file(path)
    earlier_models, path_name = expected.models, tilde(path)
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        text = text or HEADER
        if name:
            changed = {key: getattr(entry, key) for key in WRITTEN_FIELDS}
            changed_entry = replace(earlier_models.get(name, ModelEntry()), **changed)
            expected = replace(expected, models={**earlier_models, name: changed_entry})
            text = _with_entry(
                text, name, values=changed, path_name=path_name, is_new=name not in earlier_models
            )
        if default:
            text = with_value(text, path=("default",), value=as_scalar(default), name=path_name)
            expected = replace(expected, default=default)
        # The new text must mean what is expected, so that an unusual layout loses no entry.
        with suppress(ConfigError):  # the line numbers of the new text have no meaning for the user
            if read_section(parse_table(text, path_name), ModelsFile, path_name) == expected:
                write_private(path, text)
                return path
    except OSError as error:
        raise ConfigError(f"{path_name} cannot be written: {error.strerror}.") from error
    raise ConfigError(
        f"{path_name} has a layout that cannot be changed automatically.",
        "Add the model with an editor.",
    )
