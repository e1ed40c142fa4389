"""Catalog: which models exist, which are usable, or why not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from ouro.errors import NoModelError
from ouro.llm.model import (
    Effort,
    EmbeddingModel,
    Endpoint,
    Model,
    ModelChoice,
    ModelSpec,
    Prices,
    Role,
    secret_headers,
)
from ouro.llm.models_file import ModelEntry, ModelsFile, make_private, read_models_file
from ouro.llm.providers import (
    HOSTED,
    KNOWN_NAMES,
    LOCAL,
    OUTPUT_SHARE,
    PROVIDERS,
    Provider,
    ServerModels,
    WireName,
    base_url,
    find_known_spec,
    find_local_servers,
    find_model,
    find_nearest,
    is_address,
    is_for_chat,
    is_litellm_provider,
    provider_of,
    speaks_responses,
)
from ouro.llm.server_facts import Fact, FactStore, ServerFacts, server_key
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import get_models_path, get_server_facts_path, home_secret, tilde

LOCAL_WINDOW = 32_768
"""The window of a local model, in tokens, if its server does not report one."""
REQUEST_PATHS = ("/chat/completions", "/responses", "/messages")
"""The paths to which requests are sent, after the address of a server."""
_NO_FILE = (0, 0)
_VARIABLE = late_pattern(r"\$\{(\w{1,200})\}")
"""Matches a variable in the value of a header: `${GATEWAY_TOKEN}`."""


class Catalog:
    """All models that this user has, by their litellm names."""

    def __init__(
        self,
        file: ModelsFile | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        project: str = "",
        facts: FactStore | None = None,
    ) -> None:
        """Store the arguments; keys and servers are looked up when they are needed.

        Args:
            file: the user's models.yaml; None: there is none.
            environ: the variables that may hold keys; None: those of this process.
            project: the folder whose sessions share a cache at the provider.
            facts: where ouro saves what the refusals of servers teach.
        """
        self._facts = facts
        self._file = file or ModelsFile()
        self._environ = os.environ if environ is None else environ
        self._fetched_keys: dict[str, str] = {}
        """Key command, or account of the keyring -> the key."""
        self._key_listeners: list[Callable[[Sequence[str]], None]] = []
        self._servers: Mapping[Provider, ServerModels] | None = None
        """The local servers that answered; None: they were not asked yet."""
        self._project = project
        self._path: Path | None = None
        """Where the file was read; None: it was given."""
        self._file_version = _NO_FILE
        self.notices: tuple[str, ...] = ()

    @classmethod
    def from_files(cls, project: str = "") -> Catalog:
        """The models of ~/.ouro/models.yaml and of the environment. The file becomes private, since
        it holds keys; `notices` says so if other users could read it. `project` is the folder whose
        sessions share a cache at the provider; empty: none. Raises ConfigError.
        """
        catalog = cls(project=project, facts=FactStore(get_server_facts_path()))
        catalog._path = get_models_path()
        catalog.reload()
        catalog.notices = tuple(filter(None, [make_private(catalog._path)]))
        return catalog

    def reload(self) -> None:
        """Read models.yaml if it has changed: the user may have written a key or a model into it
        while a session runs. A broken file changes nothing. Raises ConfigError.
        """
        if self._path is None:
            return
        version = _file_version(self._path)
        if version != self._file_version:
            self._file = read_models_file(self._path)
            self._file_version = version

    def default(self) -> str:
        """The model to start with: the default of models.yaml, else the first usable one there, else
        one of a provider with a key, else one on this machine.

        Local servers are asked only if nothing else is configured.

        Raises:
            NoModelError: no model is set up.
        """
        if self._file.default:
            return self._resolve_in_file(self._file.default, "default")
        for name in self._names_in_file():
            if not self.why_unusable(name):
                return name
        providers = self._providers_with_key()
        if providers:
            return providers[0].first_model
        local_models = self._local_models()
        if local_models:
            return next(iter(local_models))
        error = NoModelError(
            "No model is set up.",
            "`ouro models --setup` sets one up; or set a key such as ANTHROPIC_API_KEY or"
            " OPENAI_API_KEY, or start Ollama, LM Studio, llama.cpp or vLLM on this machine. `ouro"
            " demo` shows ouro without a model.",
        )
        error.is_nothing_set_up = True
        raise error

    def model_for(self, role: Role) -> str:
        """The full name of the model of a role in models.yaml; empty if it names none. Raises
        NoModelError.
        """
        name = getattr(self._file, role)
        return self.resolve(name) if name else ""

    def choices(self) -> tuple[ModelChoice, ...]:
        """All models, usable ones first. Asks the local servers, again each time: up to 0.6 s."""
        self._servers = find_local_servers(self._environ)
        names = [*self._names_in_file(), *self._known_models_with_key(), *self._local_models()]
        with_key = self._providers_with_key()
        without = [provider.first_model for provider in HOSTED if provider not in with_key]
        choices = [self._make_choice(name) for name in dict.fromkeys([*names, *without])]
        return tuple(sorted(choices, key=lambda choice: not choice.usable))

    def _make_choice(self, name: str) -> ModelChoice:
        """A model for a list, with the reason if it cannot be used."""
        reason = self.why_unusable(name)
        return ModelChoice(
            name,
            usable=not reason,
            reason=reason,
            origin=self._origin_of(name),
            lacks_key=bool(self._missing_key(name)),
        )

    def servers(self) -> Mapping[Provider, ServerModels]:
        """The local model servers that answer. They are asked only if they were not asked before."""
        if self._servers is None:
            self._servers = find_local_servers(self._environ)
        return self._servers

    def silent_servers(self) -> tuple[tuple[str, str], ...]:
        """The local servers that did not answer: name and URL."""
        silent = (provider for provider in LOCAL if provider not in self.servers())
        return tuple((provider.title, base_url(provider, self._environ)) for provider in silent)

    def resolve(self, name: str) -> str:
        """The full name of the model that `name` means. A full name, such as
        `anthropic/claude-sonnet-5`, is returned unchanged. A part of a name, such as `sonnet`, is
        looked for among the configured models, then among those of local servers and of the
        built-in table. If nothing matches, a name whose provider litellm knows is returned
        unchanged, too.

        Raises:
            NoModelError: no model matches; the message names the nearest. Or several match.
        """
        prefix, _, model = name.partition("/")
        is_full_name = provider_of(name) and model not in {"", "*"}
        if name in self._names_in_file() or is_full_name:
            return name
        configured = [self._names_in_file(), self._known_models_with_key()]
        match = find_model(name, configured)
        if match:
            return match
        others = [[*self._local_models()], KNOWN_NAMES]  # asks servers, so they come later
        match = find_model(name, others)
        if match:
            return match
        if "/" in name and is_litellm_provider(prefix):
            return name
        similar = find_nearest(name, list(chain(*configured, *others)))
        hint = f" Did you mean {' or '.join(f'`{model}`' for model in similar)}?" if similar else ""
        raise NoModelError(f"No model `{name}`.{hint} See models.yaml, or `ouro models` for all.")

    def _resolve_in_file(self, name: str, key: str) -> str:
        """The full name of a model that models.yaml names at `key`. Raises NoModelError, which names
        the key, too.
        """
        try:
            return self.resolve(name)
        except NoModelError as error:
            raise NoModelError(f"`{key}` of models.yaml: {error.message}", error.hint) from error

    def spec(self, name: str) -> ModelSpec:
        """The facts about a model: the fields that models.yaml names, else the built-in table, else
        litellm's table, else what its server or a guess says. Raises NoModelError.
        """
        name = self.resolve(name)
        entry = self._entry_of(name)
        known_spec = find_known_spec(name) or self._listed_spec(name)
        spec = entry.apply_to(known_spec or self._guess_spec(name))
        if entry.window and not entry.max_output:
            # The answer must leave room for the messages in a window that the user made smaller.
            spec = replace(spec, max_output=min(spec.max_output, entry.window // OUTPUT_SHARE))
        return spec

    def _is_own_server(self, name: str) -> bool:
        """Whether a model is on a server of the user: prices in tables are not about it."""
        provider = provider_of(name)
        return bool(self._entry_of(name).api_base) or bool(provider and provider.local)

    def _listed_spec(self, name: str) -> ModelSpec | None:
        """The facts in litellm's table; None for a server of the user, whose models only share the
        name.
        """
        if self._is_own_server(name):
            return None
        from ouro.llm.listed_models import find_listed_spec  # most sessions do not need it

        return find_listed_spec(name)

    def _guess_spec(self, name: str) -> ModelSpec:
        """Conservative values for an unknown model. Only a local model has a known price: zero."""
        provider = provider_of(name)
        if provider is None or not provider.local:
            return ModelSpec(name)
        # Servers that were not asked yet are not asked now: that takes time.
        windows = self._local_models() if self._servers else {}
        window = windows.get(name) or LOCAL_WINDOW
        return ModelSpec(
            name, window, max_output=window // OUTPUT_SHARE, prices=Prices(input=0, output=0)
        )

    def fallbacks(self, name: str) -> list[str]:
        """The usable models to ask if this one does not answer, in order. Raises NoModelError."""
        name = self.resolve(name)
        fallbacks = self._entry_of(name).fallbacks or self._file.fallbacks
        names = [self._resolve_in_file(fallback, "fallbacks") for fallback in fallbacks]
        return [
            fallback
            for fallback in dict.fromkeys(names)
            if fallback != name and not self.why_unusable(fallback)
        ]

    def why_unusable(self, name: str) -> str:
        """Why a model (full name) is not usable; empty if it is."""
        missing_key = self._missing_key(name)
        if missing_key:
            return missing_key
        unset = self._unset_header_variable(name)
        if unset:
            return f"the variable {unset} of its `headers` is not set"
        url = self._url_of(name)
        if url and not is_address(url):
            return f"`{url}` is not an address of a server"
        provider = provider_of(name)
        if self._wire_of(name) == "litellm" and not _is_installed("litellm"):
            return "needs the package litellm, which is not installed"
        if provider and provider.local and self._is_known_to_be_missing(name):
            return f"{provider.title} does not offer it"
        return ""

    def _is_known_to_be_missing(self, name: str) -> bool:
        """Whether a model of a local server is not there: the servers were asked, and did not list it
        although they list models for chat. A model in models.yaml counts as there.
        """
        if self._servers is None or name in self._file.models:
            return False
        return is_for_chat(name) and name not in self._local_models()

    def route(self, name: str) -> tuple[WireName, Endpoint]:
        """The wire and the endpoint of a model (full name); fetches its key.

        Raises:
            NoModelError: its key is missing or could not be fetched.
        """
        reason = self.why_unusable(name)
        if reason:
            hint = ""
            if self._missing_key(name):
                hint = (
                    f"Set it, or write a key for this model into {tilde(get_models_path())} (`ouro"
                    " models --setup`)."
                )
            raise NoModelError(f"{name} cannot be used: {reason}.", hint)
        provider, wire, url = provider_of(name), self._wire_of(name), self._url_of(name)
        if wire == "litellm" and provider and not provider.local and url == provider.base_url:
            url = ""  # litellm knows the URL
        key, source = self._find_key(name)
        entry = self._entry_of(name)
        can_change = not entry.api_key and (entry.api_key_command or entry.api_key_keyring)
        renew = partial(self._renew_key, name) if can_change else None
        address = _without_path_of_requests(url)
        return wire, Endpoint(
            address, key, key_source=source, headers=self._headers_of(name), renew_key=renew
        )

    def make(self, name: str, effort: Effort = "off", *, patience: float = 0) -> Model:
        """Construct a model. Opens no connection, imports no litellm. Raises NoModelError.

        Args:
            patience: seconds to wait for the begin of an answer, if more than usual.
        """
        name = self.resolve(name)
        wire, endpoint = self.route(name)
        spec = replace(self.spec(name), on_this_machine=endpoint.is_loopback)
        if patience:
            endpoint = endpoint.with_patience(patience)
        if wire == "anthropic":
            from ouro.llm.anthropic import AnthropicWire

            return AnthropicWire(spec, endpoint, effort=effort, facts=self._server_facts(name))
        if wire == "openai":
            return self._make_openai(spec, endpoint, effort)
        from ouro.llm.litellm_model import LiteLLMModel

        return LiteLLMModel(spec, endpoint, effort=effort, facts=self._server_facts(name))

    def _make_openai(self, spec: ModelSpec, endpoint: Endpoint, effort: Effort) -> Model:
        """A model that uses OpenAI's protocols. If models.yaml names one of the two, only this one
        is used; otherwise both may be used, and the one that the address probably has is tried
        first. A server of the user is also asked about the abilities of the model, unless
        models.yaml names the protocol.
        """
        from ouro.llm.openai_model import OpenAIModel, WireChoice

        entry, facts = self._entry_of(spec.name), self._server_facts(spec.name)
        wires: tuple[WireChoice, ...] = ("chat", "responses")
        if speaks_responses(endpoint.base_url):
            wires = ("responses", "chat")
        model = OpenAIModel(
            spec,
            endpoint,
            effort=effort,
            wires=(entry.wire,) if entry.wire else wires,
            cache_key=_cache_key(self._project) if self._project else "",
            service_tier=entry.service_tier or "",
            facts=facts,
        )
        if entry.wire:
            return model.wire
        if not self._is_own_server(spec.name):
            return model
        from ouro.llm.local_model import LocalModel

        fixed = entry.fixed_fields
        return LocalModel(spec, endpoint, model, effort=effort, facts=facts, fixed=fixed)

    def server_of(self, name: str) -> str:
        """The key of a model (full name) in the store of facts."""
        return server_key(self._url_of(name), name.partition("/")[2] or name)

    def find_learned_facts(self, name: str) -> Mapping[str, Fact]:
        """The facts that refusals have taught about a model (full name) at its endpoint."""
        return self._facts.read(self.server_of(name)) if self._facts else {}

    def forget(self, name: str) -> None:
        """Forget the facts that refusals have taught about a model (full name)."""
        if self._facts:
            self._facts.forget(self.server_of(name))

    def _server_facts(self, name: str) -> ServerFacts:
        """The facts about a model at its endpoint. Those of its provider do not hold for another
        server.
        """
        provider = provider_of(name)
        has_own_server = bool(self._entry_of(name).api_base)
        provider_facts = dict(provider.facts) if provider and not has_own_server else {}
        facts = ServerFacts(provider_facts, self._facts, self.server_of(name))
        facts.names_end = provider is not None and not provider.local and not has_own_server
        return facts

    def embeddings(self, name: str) -> EmbeddingModel:
        """Construct an embedding model. Opens no connection, starts no process. Raises NoModelError."""
        name = self.resolve(name)
        wire, endpoint = self.route(name)
        spec = self.spec(name)
        if wire == "openai":
            from ouro.llm.openai_embeddings import EmbeddingWire

            return EmbeddingWire(spec, endpoint)
        if wire == "litellm":
            from ouro.llm.litellm_model import LiteLLMEmbeddings

            return LiteLLMEmbeddings(spec, endpoint)
        raise NoModelError(f"{name} is not an embedding model.", "Name another one.")

    def key_values(self) -> tuple[str, ...]:
        """The values of all keys, for the secret mask; grows when `make` runs a key command."""
        entries = self._file.models.values()
        variables = {entry.api_key_env for entry in entries}
        for provider in PROVIDERS.values():
            variables.update(provider.key_variables)
        keys = [
            *(entry.api_key for entry in entries),
            *map(self._read_variable, sorted(variables)),
            *self._fetched_keys.values(),
            *chain.from_iterable(map(self._secrets_in_headers, self._file.models)),
        ]
        return tuple(dict.fromkeys(filter(None, keys)))

    def on_new_key(self, learn_keys: Callable[[Sequence[str]], None]) -> None:
        """Call `learn_keys` with all keys whenever one is read again in the middle of a session."""
        self._key_listeners.append(learn_keys)

    def _names_in_file(self) -> list[str]:
        """The models in the file, in its order; without patterns such as `anthropic/*`."""
        return [name for name in self._file.models if not name.endswith("/*")]

    def _entry_of(self, name: str) -> ModelEntry:
        """The entry of a model in the file, merged over the entry of its provider (`anthropic/*`)."""
        common = self._file.models.get(f"{name.partition('/')[0]}/*", ModelEntry())
        return self._file.models.get(name, ModelEntry()).merge_over(common)

    def _wire_of(self, name: str) -> WireName:
        """The wire of a model. It is litellm if models.yaml says `via: litellm` for the model, else
        the wire of its provider.

        If ouro does not know the provider, it is litellm, too, with one exception: a model with its
        own server (`api_base`) is reached by OpenAI's protocol if models.yaml says `via: direct`,
        if litellm does not know the provider either, or if it is Azure's address for that protocol.
        """
        entry, provider = self._entry_of(name), provider_of(name)
        if entry.via == "litellm":
            return "litellm"
        if provider is not None:
            return provider.wire
        if not entry.api_base:
            return "litellm"
        prefix = name.partition("/")[0]
        has_v1 = prefix == "azure" and entry.api_base.rstrip("/").endswith("/openai/v1")
        is_direct = entry.via == "direct" or has_v1 or not is_litellm_provider(prefix)
        return "openai" if is_direct else "litellm"

    def _url_of(self, name: str) -> str:
        """The URL of a model, from models.yaml or its provider; empty if only litellm knows it."""
        provider = provider_of(name)
        default = base_url(provider, self._environ) if provider else ""
        return self._entry_of(name).api_base or default

    def _providers_with_key(self) -> list[Provider]:
        """The providers on the internet for which there is a key."""
        return [provider for provider in HOSTED if not self._missing_key(f"{provider.name}/*")]

    def _known_models_with_key(self) -> list[str]:
        """The recommended models of the providers that have a key."""
        providers = self._providers_with_key()
        names: list[str] = []
        for provider in providers:
            names += [name for name in KNOWN_NAMES if provider_of(name) == provider]
        return list(dict.fromkeys([*names, *(provider.first_model for provider in providers)]))

    def _local_models(self) -> Mapping[str, int | None]:
        """The models of the local servers, with their windows; None if a server does not report
        one.
        """
        models: dict[str, int | None] = {}
        for server in self.servers().values():
            models |= server.models
        return models

    def _origin_of(self, name: str) -> str:
        """The source of a model for lists: `models.yaml`, the variable with the key of its provider,
        or the URL of a local server; empty if none is known.
        """
        if name in self._file.models:
            return "models.yaml"
        provider = provider_of(name)
        if provider and f"{provider.name}/*" in self._file.models:
            return "models.yaml"
        if provider is None or provider.local:
            return base_url(provider, self._environ) if provider else ""
        return next(
            (variable for variable in provider.key_variables if self._environ.get(variable)), ""
        )

    def _find_key(self, name: str) -> tuple[str, str]:
        """The key for a model, and its source; empty if there is none or none is needed.

        It comes only from the environment, or from where the user's own models.yaml says; never
        from a file of the project.

        Raises:
            NoModelError: the command that prints the key failed.
        """
        entry = self._entry_of(name)
        if entry.api_key:
            return entry.api_key, "`api_key` in models.yaml"
        command, account = entry.api_key_command, entry.api_key_keyring
        if command:
            from ouro.llm.stored_keys import run_key_command  # most keys are in a variable

            if command not in self._fetched_keys:
                self._fetched_keys[command] = run_key_command(name, command)
            return self._fetched_keys[command], f"`{command}`"
        if account:
            from ouro.llm.stored_keys import read_key

            # An empty key is looked for again: it may have been stored meanwhile.
            self._fetched_keys[account] = self._fetched_keys.get(account) or read_key(account)
            return self._fetched_keys[account], f"the keyring (`{account}`)"
        for variable in self._key_variables(name):
            key = self._read_variable(variable)
            if key:
                return key, variable
        return "", ""

    def _renew_key(self, name: str, refused: str) -> str:
        """The key for a model from its command or the keyring, after a server refused a key. If another
        session of this process has renewed it already, that key is returned. Blocks.

        Raises:
            NoModelError: the command that prints the key failed.
        """
        entry = self._entry_of(name)
        source = entry.api_key_command or entry.api_key_keyring
        if self._fetched_keys.get(source) == refused:
            del self._fetched_keys[source]
        key, _ = self._find_key(name)
        for learn_keys in self._key_listeners:
            learn_keys(self.key_values())
        return key

    def _missing_key(self, name: str) -> str:
        """Why a model has no key; empty if it has one or needs none. A key command is not run, and
        counts as a key.
        """
        variables = self._key_variables(name)
        if not variables or any(map(self._read_variable, variables)):
            return ""
        return f"{variables[0]} is not set"

    def _key_variables(self, name: str) -> tuple[str, ...]:
        """The variables that may hold the key; empty if models.yaml has the key, or none is needed."""
        entry, provider = self._entry_of(name), provider_of(name)
        if entry.api_key or entry.api_key_command or entry.api_key_keyring:
            return ()
        if entry.api_key_env:
            return (entry.api_key_env,)
        # The key of the provider is never sent to another server.
        if provider is None or entry.api_base:
            return ()
        return provider.key_variables

    def _headers_of(self, name: str) -> dict[str, str]:
        """The headers that models.yaml sets for a model, with the values of their variables."""
        return {
            header: _VARIABLE.sub(lambda match: self._read_variable(match[1]), value)
            for header, value in self._entry_of(name).headers.items()
        }

    def _secrets_in_headers(self, name: str) -> list[str]:
        """The values in the headers of a model that may be keys: those of variables, and those of
        headers whose names say so.
        """
        texts = self._entry_of(name).headers.values()
        variables = chain.from_iterable(map(_VARIABLE.findall, texts))
        return [*map(self._read_variable, variables), *secret_headers(self._headers_of(name))]

    def _unset_header_variable(self, name: str) -> str:
        """A variable that the headers of a model need and that is not set; empty if there is none."""
        texts = self._entry_of(name).headers.values()
        variables = chain.from_iterable(map(_VARIABLE.findall, texts))
        return next((name for name in variables if not self._read_variable(name)), "")

    def _read_variable(self, name: str) -> str:
        """The value of an environment variable; empty if it is not set."""
        return self._environ.get(name, "").strip()


def _without_path_of_requests(url: str) -> str:
    """The address of a server without the path of its requests, with which it is often copied from a
    documentation: `https://host/v1/chat/completions`.
    """
    url = url.rstrip("/")
    for path in REQUEST_PATHS:
        url = url.removesuffix(path)
    return url


def _file_version(path: Path) -> tuple[int, int]:
    """The time of the last change and the size of a file; _NO_FILE if there is none."""
    try:
        status = path.stat()
    except OSError:
        return _NO_FILE
    return status.st_mtime_ns, status.st_size


def _is_installed(package: str) -> bool:
    """Whether a package can be imported, found out without importing it."""
    from importlib.machinery import PathFinder  # imported late: few models need a package

    return PathFinder.find_spec(package) is not None


def _cache_key(project: str) -> str:
    """A key that is the same for all sessions of a project, and from which its path cannot be read."""
    path = project.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(path, key=home_secret(), digest_size=16).hexdigest()
