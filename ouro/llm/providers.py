"""Providers: URL, key variable and protocol of each, the models known of them, and the servers on
this machine.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ouro.errors import NoModelError
from ouro.llm.model import ModelSpec, Prices
from ouro.utils.decoding import decode_json
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import count, dictionaries, dictionary, string

TIMEOUT = 0.6
"""Seconds for all local servers together: a local answer takes milliseconds."""
REMOTE_TIMEOUT = 5.0
"""Seconds for a server that the user configured: it may be remote."""
MAX_ANSWER = 1_000_000
"""Maximum bytes of an answer that are read."""
NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts", "bge-", "clip")
"""Words in the names of models that are not for text."""

WireName = Literal["openai", "anthropic", "litellm"]


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One provider of providers.json, by the prefix that its models have in litellm names."""

    name: str
    title: str
    """The name for users."""
    base_url: str
    key_variables: tuple[str, ...] = ()
    """The variables for the key; the first that is set counts. Empty: no key is needed."""
    flagship: str = ""
    """The model to start with if only a key is known."""
    wire: WireName = "openai"
    base_variables: tuple[str, ...] = ()
    """Environment variables that set another URL."""
    litellm_prefix: str = ""
    """Its name in litellm, if it differs."""
    local: bool = False
    """Whether it is a server on this machine."""
    facts: tuple[tuple[str, str], ...] = ()
    """What its own server is known to need, in the words of `server_facts.py`: this saves a
    refusal.
    """

    @property
    def first_model(self) -> str:
        """The full name of the model to start with."""
        return f"{self.name}/{self.flagship}"


_ALL = decode_json(Path(__file__).with_suffix(".json").read_bytes(), tuple[Provider, ...])
HOSTED = tuple(provider for provider in _ALL if not provider.local)
"""The providers on the internet."""
LOCAL = tuple(provider for provider in _ALL if provider.local)
"""The servers of models on this machine."""
PROVIDERS = {provider.name: provider for provider in _ALL}


def is_for_chat(name: str) -> bool:
    """Whether the name of a model says nothing else, such as a model for vectors."""
    return not any(word in name.lower() for word in NOT_FOR_CHAT)


def provider_of(name: str) -> Provider | None:
    """The provider that the name of a model begins with; None if it is unknown."""
    return PROVIDERS.get(name.partition("/")[0]) if "/" in name else None


def speaks_responses(url: str) -> bool:
    """Whether Responses is the first choice at an address: at OpenAI itself, and at Azure's newer
    addresses (`https://NAME.openai.azure.com/openai/v1`).
    """
    parts = urlsplit(url) if is_address(url) else urlsplit("")
    host = parts.hostname or ""
    is_azure = host.endswith(".azure.com") and parts.path.rstrip("/") == "/openai/v1"
    return is_azure or host == "api.openai.com" or host.endswith(".api.openai.com")


def is_litellm_provider(name: str) -> bool:
    """Whether the pinned litellm has a provider of this name. It is looked up in a list, without
    importing litellm.
    """
    file = Path(__file__).with_name("litellm_providers.txt")
    return name in file.read_text(encoding="utf-8").splitlines()


class ServerModels(msgspec.Struct, frozen=True):
    """The models that a server reports."""

    url: str
    models: Mapping[str, int | None] = {}
    """litellm name (`ollama_chat/qwen3-coder:30b`) -> window in tokens; None if the server does not
    report it.
    """
    problem: str = ""
    """Why it lists none: `nothing answers (Connection refused)`."""
    needs_key: bool = False
    """Whether it refused the request without a key, or with this key."""


def is_address(url: str) -> bool:
    """Whether `url` can be the address of a server: `http://HOST…` or `https://HOST…`, with a valid
    port.
    """
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def base_url(provider: Provider, environ: Mapping[str, str]) -> str:
    """The URL of a provider: its default, or the value of its environment variable."""
    values = (environ.get(name, "").strip() for name in provider.base_variables)
    own_url = next(filter(None, values), "")
    if not own_url:
        return provider.base_url
    return _local_url(own_url, provider) if provider.local else own_url.rstrip("/")


def find_local_servers(
    environ: Mapping[str, str], timeout: float = TIMEOUT
) -> dict[Provider, ServerModels]:
    """Ask all servers in LOCAL in parallel; returns those that answered within `timeout` seconds with
    a list of models, in the order of LOCAL.
    """
    deadline = time.monotonic() + timeout
    answers: dict[Provider, ServerModels] = {}

    def ask(provider: Provider, url: str) -> None:
        """Add the models of a server to `answers`, if it answers."""
        models = _parse_models(_fetch_json(url + "/models", timeout).value, provider.name)
        if models is None:
            return
        answers[provider] = ServerModels(url, models)  # counts if the next answer is late
        if models and provider.name in _LOADED_MODELS_API:
            models = _with_loaded_windows(models, provider, url, timeout)
            answers[provider] = ServerModels(url, models)

    # Daemon threads: a server that never ends its answer must not block the exit of the program.
    threads = [
        threading.Thread(target=ask, args=(provider, base_url(provider, environ)), daemon=True)
        for provider in LOCAL
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    in_time = dict(answers)  # a late thread may still add one
    return {provider: in_time[provider] for provider in LOCAL if provider in in_time}


def list_models_at(address: str, key: str = "") -> ServerModels:
    """The models (`openai/…`) of the OpenAI-compatible server at an address that a user typed. If
    the server lists none, the result says why. Blocks.

    A missing `http://` or `https://` is added. The address is tried with and without `/v1`. If it
    has a path, it is first tried as it is, else first with `/v1`. `key` is sent with the requests;
    empty: none is.
    """
    url = _add_scheme(address.strip().rstrip("/"))
    has_path = "/" in url.partition("://")[2]
    candidates = (url, f"{url}/v1") if has_path else (f"{url}/v1", url)
    failures: list[ServerModels] = []
    for candidate in candidates:
        answer, problem = _fetch_json(candidate + "/models", REMOTE_TIMEOUT, key)
        models = _parse_models(answer, "openai")
        if models is not None:
            return ServerModels(candidate, models, "" if models else "it lists no models")
        problem = problem or "the answer is not a list of models"
        needs_key = problem in ("HTTP 401", "HTTP 403")
        failures.append(ServerModels(candidate, problem=problem, needs_key=needs_key))
        has_answered = problem.startswith(("HTTP", "the answer"))
        if needs_key or not has_answered:  # the other form would fail in the same way
            break
    for failure in failures:
        if failure.needs_key:
            return failure
    return failures[0]


def _add_scheme(address: str) -> str:
    """The address with a scheme, if it has none: `http://` for this machine and the local network,
    else `https://`. An empty address stays empty.
    """
    if "://" in address or not address:
        return address
    host_and_port = address.partition("/")[0]
    host = host_and_port.rpartition(":")[0] or host_and_port
    try:
        is_local_network = ip_address(host.strip("[]")).is_private
    except ValueError:  # it is a name
        is_local_network = "." not in host or host.endswith(".local")
    scheme = "http" if is_local_network else "https"
    return f"{scheme}://{address}"


def _local_url(value: str, provider: Provider) -> str:
    """A whole URL from the possible forms of OLLAMA_HOST: `0.0.0.0`, `:11500`, `gpu-box:11434`, or a
    URL. A missing host is this machine; a missing port is the provider's usual port; a missing path
    is `/v1`. A value that is no address is returned unchanged.
    """
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        return value  # it is not an address: no server answers, and its models are not usable
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - it listens everywhere, also on this machine
        host = "127.0.0.1"
    if not port:
        port = 443 if parts.scheme == "https" else urlsplit(provider.base_url).port
    path = parts.path.rstrip("/") or "/v1"
    shown_host = f"[{host}]" if ":" in host else host  # an IPv6 address
    return f"{parts.scheme}://{shown_host}:{port}{path}"


class _JsonAnswer(NamedTuple):
    """What a server answered."""

    value: Any = None
    """The JSON value; None if there is none."""
    problem: str = ""
    """Why there is none; also empty for an answer that is not JSON."""


def _fetch_json(url: str, timeout: float, key: str = "") -> _JsonAnswer:
    """Fetch the JSON value at `url`. Returns the value, or why there is none. An answer that is not
    JSON, or not HTTP, is returned without a value and without a problem. Proxies are not used.
    `key` is sent with the request; empty: none is. Blocks.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    if not is_address(url):
        return _JsonAnswer(problem="this is not an address")
    headers = {"Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    try:
        connection = connect(parts.hostname or "", parts.port, timeout=timeout)
        try:
            connection.request("GET", parts.path, headers=headers)
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER)
            if answer.status != 200:
                return _JsonAnswer(problem=f"HTTP {answer.status}")
            return _JsonAnswer(json.loads(data))
        finally:
            connection.close()
    except OSError as error:
        reason = error.strerror or error or type(error).__name__
        return _JsonAnswer(problem=f"nothing answers ({reason})")
    except (HTTPException, ValueError, RecursionError):  # not a model server
        return _JsonAnswer()


def _parse_models(answer: Any, prefix: str) -> dict[str, int | None] | None:
    """The models for chat in a list in OpenAI's format: their names, with this prefix, and windows. A
    window is None if the row does not say it; the result is None if the answer is not such a list.
    """
    rows = dictionary(answer).get("data")
    if not isinstance(rows, list):
        return None
    windows: dict[str, int | None] = {}
    for row in dictionaries(rows):
        name = string(row.get("id"))
        if not name or not name.isprintable() or not is_for_chat(name):
            continue
        # vLLM, LM Studio, and llama.cpp have names of their own for it.
        meta = dictionary(row.get("meta"))
        window = row.get("max_model_len") or row.get("loaded_context_length")
        window = window or meta.get("n_ctx") or meta.get("n_ctx_train")
        is_valid = isinstance(window, int) and window > 0
        windows[f"{prefix}/{name}"] = window if is_valid else None
    return windows


class _LoadedModelsApi(NamedTuple):
    """Where a server lists the loaded models in its own API, and the keys of the answer."""

    path: str
    list_key: str
    name_key: str
    window_key: str


_LOADED_MODELS_API = {
    "ollama_chat": _LoadedModelsApi("/api/ps", "models", "model", "context_length"),
    "lm_studio": _LoadedModelsApi("/api/v0/models", "data", "id", "loaded_context_length"),
}
"""The servers that say with which window a model is loaded. Ollama silently cuts what is longer."""


def _with_loaded_windows(
    models: Mapping[str, int | None], provider: Provider, url: str, timeout: float
) -> dict[str, int | None]:
    """The models with their windows. A model that is loaded gets the window with which it was
    loaded, if the server reports it. If the server does not answer, nothing changes.
    """
    api = _LOADED_MODELS_API[provider.name]
    windows = dict(models)
    answer = dictionary(_fetch_json(url.removesuffix("/v1") + api.path, timeout).value)
    for row in dictionaries(answer.get(api.list_key)):
        loaded = f"{provider.name}/{row.get(api.name_key)}"
        if loaded in windows:
            windows[loaded] = count(row.get(api.window_key)) or windows[loaded]
    return windows


OUTPUT_SHARE = 6
"""An answer may take at most this share of the window, so that request and answer always fit."""
MAX_OUTPUT = 64_000
"""Maximum tokens of an answer, whatever the model allows."""
VERSION_SUFFIX = late_pattern(r"(-\d{4}-\d\d-\d\d|-20\d{6}|-\d{4}|-latest|:free|:beta)$")
"""Matches the version at the end of a name: `-2025-08-07`, `-latest`, `:free`."""


def find_known_spec(name: str) -> ModelSpec | None:
    """The facts about a recommended model of this name, ignoring versions and `openrouter/`; None
    if there is none.
    """
    tail = name.removeprefix("openrouter/")
    without_version = VERSION_SUFFIX.sub("", tail)
    # OpenRouter writes `claude-sonnet-4.5` for `claude-sonnet-4-5`.
    for candidate in (tail, without_version, without_version.replace(".", "-")):
        known = _KNOWN_BY_NAME.get(candidate.lower())
        if known is not None:
            return replace(known.make_spec(), name=name)
    return None


class KnownModel(NamedTuple):
    """A row of the list of recommended models."""

    name: str
    abilities: tuple[str, ...]
    figures: tuple[str, ...]
    """Window, longest answer and prices, where ouro differs from litellm's table; else empty."""

    def make_spec(self) -> ModelSpec:
        """The facts about the model, from this row or from litellm's table."""
        if not self.figures:
            from ouro.llm.listed_models import find_listed_spec  # 5 ms, for the model in use

            listed = find_listed_spec(self.name) or ModelSpec(self.name)
            return replace(listed, patches="patches" in self.abilities)
        window, max_output, prices = self.figures
        return ModelSpec(
            self.name,
            window=int(window),
            max_output=min(int(max_output), int(window) // OUTPUT_SHARE, MAX_OUTPUT),
            prices=Prices(*map(float, prices.split("/"))),
            images="images" in self.abilities,
            thinking="thinking" in self.abilities,
            patches="patches" in self.abilities,
        )


def _parse_known_model(row: str) -> KnownModel:
    """A row of known_models.txt: the name, three figures or none, then abilities."""
    name, *words = row.split()
    count_of_figures = 3 if words and words[0].isdecimal() else 0
    figures, abilities = words[:count_of_figures], words[count_of_figures:]
    return KnownModel(name, tuple(abilities), tuple(figures))


_KNOWN_ROWS = Path(__file__).with_name("known_models.txt").read_text(encoding="utf-8").splitlines()
KNOWN_MODELS = tuple(_parse_known_model(row) for row in _KNOWN_ROWS if not row.startswith("#"))
"""The recommended models. Of each provider the one to start with is first, then the newest one.

If a provider charges more beyond a length, the window ends there, so that no session silently costs
twice as much. `window:` in models.yaml overrides that.
"""
KNOWN_NAMES = tuple(row.name for row in KNOWN_MODELS)
_KNOWN_BY_NAME = {row.name.lower(): row for row in KNOWN_MODELS}


def find_model(word: str, groups: Iterable[Sequence[str]]) -> str | None:
    """The full name that `word` means; None if no name matches. A word that is a whole name wins, then
    one that is a name without its provider, then one that is a part of it. Of several matches the
    first of the earliest group wins: in a group the newest is first.

    Raises:
        NoModelError: models of several providers match.
    """
    lower_word = word.strip().lower()
    # Whole words, after which a version may follow directly: `qwen` in `qwen3`.
    part = re.compile(rf"(?<![a-z0-9]){re.escape(lower_word)}(?![a-z/])")
    comparisons: tuple[Callable[[str], object], ...] = (
        lambda name: lower_word == name,
        lambda name: lower_word in _short_names(name),
        lambda name: part.search(_without_provider(name)),
    )
    groups = [list(group) for group in groups]
    for fits in comparisons:
        for group in groups:
            matches = [name for name in group if fits(name.lower())]
            if len({name.partition("/")[0] for name in matches}) > 1:
                examples = ", ".join(f"`{name}`" for name in matches[:4])
                raise NoModelError(
                    f"`{word}` matches several models: {examples}.",
                    "Write the name with its provider.",
                )
            if matches:
                return matches[0]
    return None


MIN_LIKENESS = 0.72
"""Likeness from which a name may be meant: `opsu` and `opus` have 0.75; 0.6 has `nope` and `openai`."""


_PARTS_OF_MANY = {"latest", "preview"}
"""Parts that names of many makers have: `test` does not mean `devstral-latest`."""


def find_nearest(word: str, names: Sequence[str]) -> list[str]:
    """Up to three of the names, for a word that is none: those of a provider that the word may mean,
    else those with a similar spelling, the most similar first.
    """
    import difflib

    providers = {name.partition("/")[0] for name in names}
    meant_provider = difflib.get_close_matches(word.lower(), providers, n=1, cutoff=0.82)
    if meant_provider:
        return [name for name in names if name.startswith(f"{meant_provider[0]}/")][:3]
    # Each form in which a user may write a name -> the name: the whole name, the name without its
    # provider, and each word in that.
    name_of_form: dict[str, str] = {}
    for name in names:
        without_provider = _without_provider(name.lower())
        name_of_form.setdefault(name.lower(), name)
        name_of_form.setdefault(without_provider, name)
        for part in set(re.findall("[a-z]{4,}", without_provider)) - _PARTS_OF_MANY:
            name_of_form.setdefault(part, name)
    # More than three: several forms may be of the same name.
    similar_forms = difflib.get_close_matches(word.lower(), name_of_form, n=6, cutoff=MIN_LIKENESS)
    return list(dict.fromkeys(name_of_form[form] for form in similar_forms))[:3]


def _short_names(name: str) -> set[str]:
    """The name without its provider, and this also without its tag (`:30b`) or without its vendor."""
    tail = _without_provider(name)
    return {tail, tail.partition(":")[0], tail.rpartition("/")[2]}


def _without_provider(name: str) -> str:
    """The name without its provider; a name without one is returned as it is."""
    return name.partition("/")[2] or name
