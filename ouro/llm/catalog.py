"""Catalog: which models exist, which are usable and why not, and how to construct one."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from ouro.errors import NoModelError
from ouro.llm.known_models import KNOWN, NEEDS_LITELLM, OUTPUT_SHARE, find_known_spec, find_model, find_nearest
from ouro.llm.model import Effort, Endpoint, Model, ModelChoice, ModelSpec, Prices
from ouro.llm.models_file import ModelEntry, ModelsFile, make_private, read_models_file
from ouro.llm.providers import (
    HOSTED,
    LOCAL,
    PROVIDERS,
    Provider,
    ServerModels,
    WireName,
    base_url,
    find_local_servers,
    is_address,
    is_for_chat,
    is_litellm_provider,
    provider_of,
)
from ouro.utils.runtime import get_models_path, tilde

if TYPE_CHECKING:
    from ouro.llm.embeddings import EmbeddingModel

Role = Literal["compact", "classify", "retrieve", "embed"]
LOCAL_WINDOW = 32_768
"""The window of a local model, in tokens, if its server does not report one."""
COMMAND_TIMEOUT = 30.0
"""Seconds: a password manager may have to ask for a fingerprint."""


class Catalog:
    """All models that this user has, by their litellm names."""

    def __init__(self, file: ModelsFile | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._file = file or ModelsFile()
        self._environ = os.environ if environ is None else environ
        self._keys = _Keys(self._environ)
        self._servers: Mapping[Provider, ServerModels] | None = None
        self.notices: tuple[str, ...] = ()
        """Warnings from reading the file."""

    @classmethod
    def from_files(cls) -> Catalog:
        """The models of ~/.ouro/models.yaml and of the environment. Raises as `read_models_file`."""
        path = get_models_path()
        catalog = cls(read_models_file(path))
        catalog.notices = tuple(filter(None, [make_private(path)]))
        return catalog

    def default(self) -> str:
        """The model to start with: named in models.yaml, the first usable there, one with a key, one on this machine.

        Local servers are asked only if nothing else is configured.

        Raises:
            NoModelError: no model is set up.
        """
        if self._file.default:
            return self._resolve_in_file(self._file.default, "default")
        found = next((name for name in self._names_in_file() if not self.unusable(name)), "")
        found = found or next((provider.first_model for provider in self._providers_with_key()), "")
        found = found or next(iter(self._local_models()), "")
        if found:
            return found
        raise NoModelError(
            "No model is set up.",
            "`ouro models --setup` sets one up; or set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or start "
            "Ollama, LM Studio, llama.cpp or vLLM on this machine. `ouro demo` shows ouro without a model.",
        )

    def role(self, role: Role) -> str:
        """The full name of the model of a role in models.yaml; empty if it names none. Raises as `resolve`."""
        named = getattr(self._file, role)
        return self.resolve(named) if named else ""

    def choices(self) -> tuple[ModelChoice, ...]:
        """All models, usable ones first. Asks the local servers: up to 0.6 s."""
        names = [*self._names_in_file(), *self._known_models_with_key(), *self._local_models()]
        with_key = self._providers_with_key()
        without = [provider.first_model for provider in HOSTED if provider not in with_key]
        listed = [
            ModelChoice(name, not (reason := self.unusable(name)), reason, self._origin(name))
            for name in dict.fromkeys([*names, *without])
        ]
        return tuple(sorted(listed, key=lambda candidate: not candidate.usable))

    def servers(self) -> Mapping[Provider, ServerModels]:
        """The local model servers that answer; asked once."""
        if self._servers is None:
            self._servers = find_local_servers(self._environ)
        return self._servers

    def silent(self) -> tuple[tuple[str, str], ...]:
        """The local servers that did not answer: name and URL."""
        silent = (provider for provider in LOCAL if provider not in self.servers())
        return tuple((provider.title, base_url(provider, self._environ)) for provider in silent)

    def resolve(self, name: str) -> str:
        """The full name of what `name` means: `sonnet`, `gpt-5`, `anthropic/claude-sonnet-5`.

        Raises:
            NoModelError: no model or several match; the hint lists the nearest.
        """
        if name in self._names_in_file() or (provider_of(name) and name.partition("/")[2] not in {"", "*"}):
            return name
        own = [self._names_in_file(), self._known_models_with_key()]
        if found := find_model(name, own):
            return found
        others = [[*self._local_models()], [spec.name for spec in KNOWN.values()]]
        if found := find_model(name, others):
            return found
        if "/" in name and is_litellm_provider(name.partition("/")[0]):
            return name
        every = [known for group in (*own, *others) for known in group]
        near = find_nearest(name, every)
        meant = f" Did you mean {' or '.join(f'`{model}`' for model in near)}?" if near else ""
        raise NoModelError(f"No model `{name}`.{meant} See models.yaml, or `ouro models` for all.")

    def _resolve_in_file(self, name: str, key: str) -> str:
        """Resolve a name in models.yaml; an error names its key."""
        try:
            return self.resolve(name)
        except NoModelError as error:
            raise NoModelError(f"`{key}` of models.yaml: {error.message}", error.hint) from error

    def spec(self, name: str) -> ModelSpec:
        """The facts about a model: from models.yaml, else its server, else the built-in table. Raises as `resolve`."""
        name = self.resolve(name)
        entry = self._entry(name)
        provider = provider_of(name)
        spec = entry.apply_to(
            find_known_spec(name) or _guess_spec(name, provider, self._local_models() if self._servers else {})
        )
        if entry.window and not entry.max_output:
            spec = replace(spec, max_output=min(spec.max_output, entry.window // OUTPUT_SHARE))
        return spec

    def fallbacks(self, name: str) -> list[str]:
        """The usable models to ask if this one does not answer, in order. Raises as `resolve`."""
        name = self.resolve(name)
        fallbacks = self._entry(name).fallbacks or self._file.fallbacks
        named = [self._resolve_in_file(fallback, "fallbacks") for fallback in fallbacks]
        return [fallback for fallback in dict.fromkeys(named) if fallback != name and not self.unusable(fallback)]

    def unusable(self, name: str) -> str:
        """Why a model (full name) is not usable; empty if it is."""
        entry, provider = self._entry(name), provider_of(name)
        if missing := self._keys.missing(entry, provider):
            return missing
        if (url := self._url(name)) and not is_address(url):
            return f"`{url}` is not an address of a server"
        if self._wire(name) == "litellm" and find_spec("litellm") is None:
            return "needs the package litellm, which is not installed"
        is_listed = provider and provider.local and name not in self._file.models and is_for_chat(name)
        if provider and is_listed and self._servers is not None and name not in self._local_models():
            return f"{provider.title} does not offer it"
        return ""

    def route(self, name: str) -> tuple[WireName, Endpoint]:
        """The wire and the endpoint of a model (full name); fetches its key.

        Raises:
            NoModelError: its key is missing or could not be fetched.
        """
        if reason := self.unusable(name):
            hint = f"Set it, or write a key for this model into {tilde(get_models_path())} (`ouro models --setup`)."
            raise NoModelError(f"{name} cannot be used: {reason}.", hint if reason.endswith("not set") else "")
        entry, provider, wire, url = self._entry(name), provider_of(name), self._wire(name), self._url(name)
        if wire == "litellm" and provider and not provider.local and url == provider.base_url:
            url = ""  # litellm knows it
        key, source = self._keys.find(name, entry, provider)
        return wire, Endpoint(url.rstrip("/"), key, key_source=source)

    def make(self, name: str, effort: Effort = "off") -> Model:
        """Construct a model. Opens no connection, imports no litellm. Raises as `resolve` and `route`."""
        name = self.resolve(name)
        (wire, endpoint), spec = self.route(name), self.spec(name)
        if wire == "anthropic":
            from ouro.llm.anthropic import AnthropicWire

            return AnthropicWire(spec, endpoint, effort=effort)
        if wire == "openai":
            from ouro.llm.openai import OpenAIWire

            return OpenAIWire(spec, endpoint, effort=effort)
        from ouro.llm.litellm_model import LiteLLMModel

        return LiteLLMModel(spec, endpoint, effort=effort)

    def embeddings(self, name: str) -> EmbeddingModel:
        """Construct an embedding model. Opens no connection, starts no process. Raises as `resolve` and `route`."""
        name = self.resolve(name)
        (wire, endpoint), spec = self.route(name), self.spec(name)
        if wire == "openai":
            from ouro.llm.embeddings import EmbeddingWire

            return EmbeddingWire(spec, endpoint)
        if wire == "litellm":
            from ouro.llm.litellm_model import LiteLLMEmbeddings

            return LiteLLMEmbeddings(spec, endpoint)
        raise NoModelError(f"{name} cannot give vectors: its provider has none.", "Name another embedding model.")

    def key_values(self) -> tuple[str, ...]:
        """The values of all keys, for the secret mask; grows when `make` runs a key command."""
        return self._keys.values(self._file.models.values())

    def _names_in_file(self) -> list[str]:
        """The models in the file, in its order; without patterns such as `anthropic/*`."""
        return [name for name in self._file.models if not name.endswith("/*")]

    def _entry(self, name: str) -> ModelEntry:
        """The entry of a model in the file, merged over the entry of its provider (`anthropic/*`)."""
        common = self._file.models.get(f"{name.partition('/')[0]}/*", ModelEntry())
        return self._file.models.get(name, ModelEntry()).merge_over(common)

    def _wire(self, name: str) -> WireName:
        entry, provider = self._entry(name), provider_of(name)
        if entry.via == "litellm":
            return "litellm"
        if provider is None:
            is_litellms = entry.via != "direct" and is_litellm_provider(name.partition("/")[0])
            return "openai" if entry.api_base and not is_litellms else "litellm"
        return "litellm" if NEEDS_LITELLM.match(name) and entry.via != "direct" else provider.wire

    def _url(self, name: str) -> str:
        """The URL of a model, from models.yaml or its provider; empty if only litellm knows it."""
        provider = provider_of(name)
        return self._entry(name).api_base or (base_url(provider, self._environ) if provider else "")

    def _providers_with_key(self) -> list[Provider]:
        return [provider for provider in HOSTED if not self._keys.missing(self._entry(f"{provider.name}/*"), provider)]

    def _known_models_with_key(self) -> list[str]:
        usable = self._providers_with_key()
        known = [spec.name for provider in usable for spec in KNOWN.values() if provider_of(spec.name) == provider]
        return list(dict.fromkeys([*known, *(provider.first_model for provider in usable)]))

    def _local_models(self) -> Mapping[str, int | None]:
        """The models of the local servers, with their windows."""
        return {name: window for server in self.servers().values() for name, window in server.models.items()}

    def _origin(self, name: str) -> str:
        if name in self._file.models:
            return "models.yaml"
        provider = provider_of(name)
        if provider and f"{provider.name}/*" in self._file.models:
            return "models.yaml"
        if provider is None or provider.local:
            return base_url(provider, self._environ) if provider else ""
        return next((variable for variable in provider.key_variables if self._environ.get(variable)), "")


class _Keys:
    """Finds the key for a model in the environment and the user's own models.yaml, nowhere else."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._fetched: dict[str, str] = {}

    def find(self, name: str, entry: ModelEntry, provider: Provider | None) -> tuple[str, str]:
        """The key for a model, and its source; empty if there is none or none is needed.

        Raises:
            NoModelError: the command that prints the key failed.
        """
        if entry.api_key:
            return entry.api_key, "`api_key` in models.yaml"
        if command := entry.api_key_command:
            if command not in self._fetched:
                self._fetched[command] = _run_key_command(name, command)
            return self._fetched[command], f"`{command}`"
        found = [variable for variable in _variables(entry, provider) if self._value(variable)]
        return (self._value(found[0]), found[0]) if found else ("", "")

    def missing(self, entry: ModelEntry, provider: Provider | None) -> str:
        """Why there is no key, without running a key command; empty if one is set or none is needed."""
        variables = () if entry.api_key or entry.api_key_command else _variables(entry, provider)
        return f"{variables[0]} is not set" if variables and not any(map(self._value, variables)) else ""

    def values(self, entries: Iterable[ModelEntry]) -> tuple[str, ...]:
        """The values of all keys so far; none may be written anywhere."""
        entries = list(entries)
        variables = {name for provider in PROVIDERS.values() for name in provider.key_variables}
        variables |= {entry.api_key_env for entry in entries}
        values = [*(entry.api_key for entry in entries), *map(self._value, sorted(variables)), *self._fetched.values()]
        return tuple(dict.fromkeys(filter(None, values)))

    def _value(self, variable: str) -> str:
        return self._environ.get(variable, "").strip()


def _variables(entry: ModelEntry, provider: Provider | None) -> tuple[str, ...]:
    """The variables that may hold the key.

    An entry with an `api_base` of its own never gets the provider's key: it belongs to another server.
    """
    if entry.api_key_env:
        return (entry.api_key_env,)
    return provider.key_variables if provider and not entry.api_base else ()


def _run_key_command(name: str, command: str) -> str:
    """The first line that a key command prints."""
    hint = "See models.yaml."
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, timeout=COMMAND_TIMEOUT, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, ValueError) as error:
        raise NoModelError(f"The key for {name} could not be fetched: `{command}`: {error}.", hint) from error
    except subprocess.TimeoutExpired as error:
        raise NoModelError(f"`{command}` gave no key for {name} within {COMMAND_TIMEOUT:.0f} s.", hint) from error
    key = done.stdout.decode(errors="replace").strip()
    if done.returncode or not key:
        reason = done.stderr.decode(errors="replace").strip()[:200] or "it printed nothing"
        raise NoModelError(f"`{command}` gave no key for {name} (exit {done.returncode}): {reason}", hint)
    return key.splitlines()[0].strip()


def _guess_spec(name: str, provider: Provider | None, local: Mapping[str, int | None]) -> ModelSpec:
    """Conservative values for an unknown model; only a local model has a known price, zero."""
    if provider is None or not provider.local:
        return ModelSpec(name)
    window = local.get(name) or LOCAL_WINDOW
    return ModelSpec(name, window, window // OUTPUT_SHARE, Prices(0, 0))
