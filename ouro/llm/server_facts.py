"""ServerFacts: the facts about one model at one endpoint. FactStore: facts that refusals taught, on
disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ouro.llm.model import ModelSpec
from ouro.llm.portable import THINKING_NAMES
from ouro.utils.files import lock_file, write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import read_state
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir

MAX_AGE = timedelta(days=30)
"""How long a learned fact holds: a server may accept tomorrow what it refuses today."""
LOCK_TIMEOUT = 0.5
"""Seconds to wait for another ouro that writes the file."""
MAX_QUOTE = 300
"""Characters of a refusal that are kept with what it taught."""
LIMIT_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The names of the field that limits an answer."""
ESSENTIAL = frozenset(
    ("model", "messages", "input", "system", "instructions", "stream", "tools", *LIMIT_NAMES)
)
"""Fields that a request is never sent without."""
MEANINGS: Mapping[str, str] = {
    "without": "`{key}` is left out",
    "effort": "effort `{key}` is sent as `{value}`",
    "output_limit": "the limit of an answer is sent as `{value}`",
    "max_output": "an answer has at most {value} tokens",
    "window": "the window has {value} tokens",
    "images": "pictures are described, not sent",
    "thinking_back": "thinking is sent back: {value}",
    "thinking_name": "thinking is sent back as `{value}`, as it comes",
    "thinking_style": "thinking is asked for as `{value}`",
    "system_role": "the system prompt is sent as `{value}`",
    "roles": "messages of the same role are joined",
    "tools": "tools are described in the prompt, and calls are text",
    "tool_schema": "tool schemas are sent in a simple form",
    "call_ids": "ids of calls have {value} letters and digits",
    "call_signatures": "calls of other models are sent with a placeholder as signature",
    "result_names": "results name their tool",
    "empty_content": "a message without text is sent with an empty text",
    "wire": "the model is reached by `{value}`",
    "path": "requests are sent to `/{value}`, which the address does not have",
}
"""Every kind of fact, and what it means. A fact can only make a request smaller or name a field
differently: no kind permits anything, names a host, or changes TLS.
"""
_VALUE_FORMS: Mapping[str, str] = {
    "without": "",
    "effort": r"[a-z]{0,12}",
    "output_limit": "|".join(LIMIT_NAMES),
    "max_output": r"[1-9]\d{0,8}",
    "window": r"[1-9]\d{2,8}",
    "images": "no",
    "thinking_back": "yes|all|no",
    "thinking_name": "|".join(THINKING_NAMES),
    "thinking_style": "adaptive|budget|none",
    "system_role": "system|developer|user",
    "roles": "joined",
    "tools": "text",
    "tool_schema": "simple",
    "call_ids": r"\d{1,3}",
    "call_signatures": "placeholder",
    "result_names": "yes",
    "empty_content": "yes",
    "wire": "chat|responses",
    "path": "v1",
}
"""Every kind of fact -> a regular expression for its value."""
_FACT_KEY = late_pattern(r"[a-z_]+(?:\.[A-Za-z0-9_.-]{1,60})?")
"""Matches a key: the kind, and for some kinds a name: `without.stream_options`."""


class Fact(msgspec.Struct, frozen=True):
    """A fact that a refusal taught."""

    value: str
    date: str
    """The day on which it was learned, as `2026-11-28`."""
    refusal: str = ""
    """The beginning of the refusal that taught it."""


class ServerFacts:
    """The facts about a model at an endpoint; copies of a model share it.

    A change after a refusal is on trial until a request with it succeeds: `keep_trials` saves
    it, `drop_trials` undoes it.
    """

    def __init__(
        self,
        given: Mapping[str, str] | None = None,
        store: FactStore | None = None,
        server: str = "",
    ) -> None:
        """Read the facts that were learned before.

        Args:
            given: the facts of providers.json.
            store: where facts are saved; None: nowhere.
            server: the key of the server in the store.
        """
        self._given = dict(given or {})
        self._store = store
        self._server = server
        self._learned = dict(store.read(server)) if store else {}
        self._reported: Mapping[str, Any] = {}
        """What the server says about the model in its own API, as fields of the spec."""
        self._trial: dict[str, Fact] = {}
        """The facts on trial."""
        self.version = 0
        """A number that grows with each change."""
        self.hidden: set[int] = set()
        """Hashes of the images that the server refused, in this session."""
        self._hidden_on_trial: set[int] = set()
        self.described_calls: set[str] = set()
        """Ids of the calls that it refused, in this session: they are sent as text."""
        self._described_on_trial: set[str] = set()
        self._session_window = 0
        """The window that it named when it refused a request in this session; 0: none."""
        self.refuses_signatures = False
        """Whether it refused a signature of thinking in this session."""
        self.names_end = False
        """Whether it says at the end of a text that it is complete, as known or seen in this session."""
        self.ends_silently = False
        """Whether it ended an answer without saying that it is complete, in this session."""

    def get(self, key: str) -> str:
        """The value of a fact: on trial, else learned, else given; empty if it is not known."""
        fact = self._trial.get(key) or self._learned.get(key)
        return fact.value if fact else self._given.get(key, "")

    def has(self, key: str) -> bool:
        """Whether a fact is known."""
        return key in self._trial or key in self._learned or key in self._given

    def is_known(self, key: str, value: str) -> bool:
        """Whether a fact with this value is known, so that a refusal cannot teach it."""
        return self.has(key) and self.get(key) == value

    @property
    def is_empty(self) -> bool:
        """Whether there are no facts."""
        return not (self._given or self._learned or self._trial)

    def names_of_kind(self, kind: str) -> Iterator[str]:
        """Yield the name in the key of each fact of a kind: `stream_options` for the kind `without`
        and the key `without.stream_options`.
        """
        for key in {**self._given, **self._learned, **self._trial}:
            kind_of_key, _, name = key.partition(".")
            if kind_of_key == kind:
                yield name

    def try_changes(self, changes: Mapping[str, str], refusal: str) -> None:
        """Use these facts in the next requests, on trial. `refusal` is what taught them."""
        today = datetime.now(UTC).date().isoformat()
        quote = " ".join(refusal.split())[:MAX_QUOTE]
        self._trial |= {key: Fact(value, today, quote) for key, value in changes.items()}
        self.version += 1

    def report(self, fields: Mapping[str, Any]) -> None:
        """Use what the server says about the model in its own API."""
        self._reported = fields
        self.version += 1

    def try_hiding(self, images: Iterable[int]) -> None:
        """Describe the images with these hashes instead of sending them, in this session, on trial."""
        self._hidden_on_trial |= set(images) - self.hidden
        self.hidden |= self._hidden_on_trial
        self.version += 1

    def try_describing(self, calls: Iterable[str]) -> None:
        """Send the calls with these ids as text, in this session, on trial."""
        self._described_on_trial |= set(calls) - self.described_calls
        self.described_calls |= self._described_on_trial
        self.version += 1

    @property
    def sends_substitutes(self) -> bool:
        """Whether an image or a call is sent in another form than it has in the session."""
        return bool(self.hidden or self.described_calls)

    def limit_window(self, window: int) -> None:
        """Use no more than these tokens of the window, in this session."""
        self._session_window = window
        self.version += 1

    def refuse_signatures(self) -> None:
        """Send no signed thinking any more, in this session."""
        self.refuses_signatures = True
        self.version += 1

    def keep_trials(self) -> None:
        """Keep and save the changes on trial: a request with them has succeeded."""
        self._hidden_on_trial.clear()
        self._described_on_trial.clear()
        if not self._trial:
            return
        proven, self._trial = self._trial, {}
        self._learned |= proven
        if self._store:
            self._store.save(self._server, proven)

    def drop_trials(self) -> None:
        """Undo the changes on trial: they did not help."""
        if self._trial or self._hidden_on_trial or self._described_on_trial:
            self._trial.clear()
            self.hidden -= self._hidden_on_trial
            self._hidden_on_trial.clear()
            self.described_calls -= self._described_on_trial
            self._described_on_trial.clear()
            self.version += 1

    def spec(self, spec: ModelSpec) -> ModelSpec:
        """The spec of a model, changed as this server offers it: with what the server says, and what
        its refusals have taught.
        """
        spec = replace(spec, **self._reported)
        window, max_output = self.get("window"), self.get("max_output")
        windows = [int(window or 0), self._session_window]
        spec = replace(spec, window=min([spec.window, *filter(None, windows)]))
        if max_output:
            spec = replace(spec, max_output=min(spec.max_output, int(max_output)))
        if self.get("images") == "no":
            spec = replace(spec, images=False)
        if self.get("tools") == "text" and spec.text_tools == "auto":
            spec = replace(spec, text_tools="on")
        return spec


class FactStore:
    """The learned facts of all servers, in one private file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, server: str) -> Mapping[str, Fact]:
        """The facts about a server that are valid and at most 30 days old."""
        return {
            key: fact
            for key, fact in self._read_all().get(server, {}).items()
            if _is_valid(key, fact)
        }

    def find(self, model: str) -> dict[str, Mapping[str, Fact]]:
        """The valid facts about a model by server. Servers without any are left out."""
        facts_by_server: dict[str, Mapping[str, Fact]] = {}
        for server in self._read_all():
            if server.partition(" ")[2] != model:  # see `server_key`
                continue
            facts = self.read(server)
            if facts:
                facts_by_server[server] = facts
        return facts_by_server

    def save(self, server: str, facts: Mapping[str, Fact]) -> None:
        """Add facts about a server."""
        self._update_file(server, facts)

    def forget(self, server: str) -> None:
        """Remove all facts about a server."""
        self._update_file(server, facts=None)

    def _update_file(self, server: str, facts: Mapping[str, Fact] | None) -> None:
        """Add facts, or remove those of a server if `facts` is None. A failure is only logged:
        facts can be learned again.
        """
        try:
            ensure_private_dir(self._path.parent)
            with lock_file(self._path.with_suffix(".lock"), LOCK_TIMEOUT):
                all_facts = {key: dict(value) for key, value in self._read_all().items()}
                if facts is None:
                    all_facts.pop(server, None)
                else:
                    all_facts.setdefault(server, {}).update(facts)
                write_private(self._path, msgspec.json.format(msgspec.json.encode(all_facts)))
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)

    def _read_all(self) -> dict[str, dict[str, Fact]]:
        """The saved facts of each server, also invalid and old ones."""
        return read_state(self._path, dict[str, dict[str, Fact]])


def notice_about(changes: Mapping[str, str]) -> str:
    """A text for the user about the first change that makes a difference for the user; empty if
    none does.

    Args:
        changes: what a refusal has taught: the keys and values of new facts.
    """
    for key, value in changes.items():
        kind, _, name = key.partition(".")
        if kind in ("images", "tools"):
            return MEANINGS[kind]
        # An effort that asks for thinking is replaced by one that does not.
        is_thinking_off = value in ("", "none") and name not in ("none", "minimal")
        if kind == "effort" and is_thinking_off:
            return "the model works without thinking"
    return ""


def server_key(base_url: str, model: str) -> str:
    """The key of a model at an endpoint: the address, without a user or password, a space, and the
    name of the model.
    """
    parts = urlsplit(base_url)
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')} {model}"


def describe_fact(key: str, fact: Fact) -> str:
    """A fact in words: `` `stream_options` is left out``."""
    kind, _, name = key.partition(".")
    if kind == "effort" and not fact.value:
        return f"effort `{name}` is left out"
    return MEANINGS[kind].format(key=name, value=fact.value)


def _is_valid(key: str, fact: Fact) -> bool:
    """Whether a saved fact is one that ouro itself could have learned, and not too old. A fact such
    as `without.FIELD` is about a field or an effort, so only these two kinds have a name; a request
    is never sent without an essential field.
    """
    kind, _, name = key.partition(".")
    if kind not in MEANINGS or not _FACT_KEY.fullmatch(key) or name in ESSENTIAL:
        return False
    needs_name = kind in ("without", "effort")
    if needs_name != bool(name) or not re.fullmatch(_VALUE_FORMS[kind], fact.value):
        return False
    try:
        day = date.fromisoformat(fact.date)
    except ValueError:
        return False
    return datetime.now(UTC).date() - day <= MAX_AGE
