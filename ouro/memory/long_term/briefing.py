"""Briefing: what the model is told of long-term memory, once as a whole and then as it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ouro.memory.long_term.block import Place, Texts, format_block, format_changes, mark_of, told_versions
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.receipt import ReceiptLine, fitted, receipt_lines, with_note
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.messages import Context, Message

ROOM = 2
"""A scope fills at most so many times its threshold of the prompt."""
MARK = "mark"
"""The key beside the scopes under which a session keeps what its mark is made of."""


class Briefing:
    """Of one session. Everything blocks: use from a thread.

    The block is made of what the session began with, also when it is taken up again, so that a provider's cache holds;
    how memory differs by now is worked out against what the messages that are sent tell of it.

    Args:
        began_with: the versions that the session began with, by scope, and what its mark is made of.
        threshold: tokens of a scope above which it is consolidated.
        price: of so many tokens in each request, read from the cache, in US dollars; None where it is not known.
    """

    def __init__(
        self,
        scopes: Sequence[ScopeMemory],
        session_id: str,
        began_with: Mapping[str, str],
        threshold: int,
        price: Callable[[int], float | None] = lambda _tokens: None,
    ) -> None:
        self._scopes = scopes
        self._session_id = session_id
        self._mark = mark_of(began_with.get(MARK) or session_id)
        self._room = ROOM * threshold
        self.threshold = threshold
        self.price = price
        self._began_with = began_with
        self._begun: dict[Scope, Texts] = {}
        self._known: dict[tuple[str, str], Texts] = {}

    def block(self) -> str:
        """For the system prompt, from what the session began with; empty where no scope is in use."""
        self._begun = {scope.scope: _begun(scope, self._began_with) for scope in self._scopes}
        places = [Place(scope.scope, scope.store.folder) for scope in self._scopes]
        shown = {scope: with_note(*fitted(texts, self._room)) for scope, texts in self._begun.items()}
        return format_block(places, shown, self._mark, self._session_id) if places else ""

    def lines(self) -> tuple[ReceiptLine, ...]:
        """What became of each entry that was considered for the block."""
        return tuple(
            line
            for scope in self._scopes
            for line in receipt_lines(scope.loaded, *fitted(self._begun[scope.scope], self._room), scope.doubted)
        )

    def changes(self, sent: Sequence[Message]) -> str:
        """How memory differs from what stands in the prompt and in `sent`; empty where it does not."""
        contexts = [part.text for message in sent for part in message.parts_of(Context)]
        told = told_versions(contexts, self._mark)
        before = {scope.scope: self._told(scope, told.get(scope.scope, "")) for scope in self._scopes}
        now = {scope.scope: scope.texts for scope in self._scopes}
        versions: dict[Scope, str] = {scope.scope: scope.version for scope in self._scopes}
        self._known.update({(scope, versions[scope]): texts for scope, texts in now.items()})
        return format_changes(before, now, versions, self._mark)

    def _told(self, scope: ScopeMemory, version: str) -> Texts:
        texts = self._known.get((scope.scope, version))
        if texts is None and version:
            texts = scope.text_of(version)
        return self._begun[scope.scope] if texts is None else texts


def _begun(scope: ScopeMemory, began_with: Mapping[str, str]) -> Texts:
    texts = scope.text_of(began_with[scope.scope]) if scope.scope in began_with else None
    return scope.texts if texts is None else texts
