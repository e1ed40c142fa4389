"""AdaptiveModel: a model whose requests change as its server refuses them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, NamedTuple

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelError,
    RateLimited,
    ToolsRefused,
    WireRefused,
)
from ouro.llm.model import Chunk, Effort, Endpoint, ModelSpec, NoticeChunk, ToolSpec
from ouro.llm.request_shape import hide_images, request_size, shape_request, visible_images
from ouro.llm.server_facts import ServerFacts, notice_about
from ouro.messages import Message, PerMessage

if TYPE_CHECKING:
    from ouro.llm.refusals import Refused

MAX_ADAPTATIONS = 8
"""Changes to a request after refusals."""
CHANGED = (
    "{} takes the request only in another form: {}. `ouro models show {}` lists what was learned."
)
PICTURE_REFUSED = "{} refused a picture: it is described, not sent."
CALLS_REFUSED = "{} refused tool calls of earlier messages: they are sent as text."


class ModelRequest(NamedTuple):
    """A request: its path on the server, its headers and its body."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class AdaptiveModel(ABC):
    """A model behind a server; the subclass knows the protocol.

    What the server refuses changes the request, by the table in `refusals.py`; what was learned is
    in `facts`. A subclass writes the request that it prefers: `shape_request` leaves out and
    renames fields.
    """

    other_wire = ""
    """The name of the wire that can be used instead; a refusal that names it raises WireRefused."""
    limit_names: tuple[str, ...] = ()
    """The names that the limit of an answer may have; empty: the protocol has one."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        facts: ServerFacts | None = None,
    ) -> None:
        self.facts = facts or ServerFacts()
        self._configured_spec = spec
        self.spec = self.facts.spec(spec)
        self._version = self.facts.version
        self._accepted = PerMessage(self._accepted_form)
        self._endpoint = endpoint
        self._effort = effort
        self._model = spec.name.partition("/")[2] or spec.name
        """Its name on the wire."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        """The chunks of an answer. A refused request is changed and sent again, up to
        MAX_ADAPTATIONS times.
        """
        notices: list[str] = []
        for attempt in count_from(1):
            self._use_new_facts()
            sent = self._accepted(messages) if self.facts.withholds else messages
            begun, request = False, self.prepare(sent, tools)
            try:
                async with aclosing(self._stream_answer(request)) as chunks:
                    async for chunk in chunks:
                        if not begun:
                            begun = True
                            self.facts.keep()
                            for notice in notices:
                                yield NoticeChunk(notice)
                        yield chunk
                return
            except ModelError as error:
                if begun:
                    raise
                is_last = attempt > MAX_ADAPTATIONS
                if notice := self._adapt_to_error(error, request.body, sent, is_last=is_last):
                    notices.append(notice)

    def prepare(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> ModelRequest:
        """The request in the form that the server is known to accept."""
        request = self._request(messages, tools)
        return request._replace(body=shape_request(request.body, self.facts))

    @abstractmethod
    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request in the form that this protocol prefers."""

    @abstractmethod
    def _stream_answer(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The chunks of the answer to a request. Raises ModelError."""

    def _rebuild_format(self) -> None:
        """Make again what depends on `spec` and `facts`: one of them has changed."""
        self._accepted = PerMessage(self._accepted_form)

    def _remaining_thinking_styles(self) -> tuple[str, ...]:
        """The ways to ask for thinking that are left, the next one first."""
        return ()

    def _use_new_facts(self) -> None:
        """Use what this model, or a copy of it, has learned."""
        if self._version != self.facts.version:
            self._version = self.facts.version
            self.spec = self.facts.spec(self._configured_spec)
            self._rebuild_format()

    def _adapt_to_error(
        self,
        error: ModelError,
        body: Mapping[str, Any],
        messages: Sequence[Message],
        *,
        is_last: bool,
    ) -> str:
        """Change the request as its refusal asks; returns what the user should know about that.

        Raises:
            ModelError: there is nothing to change: the error, or ContextTooLong if it means that.
            ToolsRefused: the tools have to be described in the prompt.
            WireRefused: the model has to be reached by another wire.
        """
        from ouro.llm.overflow import is_too_long

        if error.answer is None or isinstance(error, AuthenticationFailed | RateLimited) or is_last:
            self.facts.drop()
            raise error
        from ouro.llm import refusals  # with its tables, only for a server that refuses a request

        pictures = visible_images(messages, self.facts) if self.spec.images else []
        refused = refusals.Refused(
            error.answer,
            body,
            self.facts,
            bool(pictures),
            self._remaining_thinking_styles(),
            self.other_wire,
            self.limit_names,
        )
        share = request_size(messages, body) / self.spec.window
        notice = self._find_adaptation(refused, error, messages, pictures, share)
        if notice is not None:
            return notice
        self.facts.drop()
        if is_too_long(error.answer, share):
            long = ContextTooLong(error.message, error.hint)
            long.answer = error.answer
            raise long from error
        raise error

    def _find_adaptation(
        self,
        refused: Refused,
        error: ModelError,
        messages: Sequence[Message],
        pictures: Sequence[set[int]],
        share: float,
    ) -> str | None:
        """Change what the refusal is about, the surest sign first. Returns a notice for the user,
        which may be empty; None if it is not known what to change.

        Args:
            pictures: those that are sent, of each message.
            share: of the context window that the request fills.
        """
        from ouro.llm import refusals
        from ouro.llm.overflow import is_too_long

        calls_refused = CALLS_REFUSED.format(self._endpoint.address)
        if refusals.refuses_signature(refused) and not self.facts.refuses_signatures:
            self.facts.refuse_signatures()
            return ""
        if refusals.refuses_calls(refused) and self._describe_calls(refused, messages):
            return calls_refused
        rules = refusals.RULES_OF_SIZE if isinstance(error, ContextTooLong) else None
        if changes := refusals.find_changes(refused, rules):
            return self._adapt_request(changes, error)
        if self._hide_pictures(refused, pictures, share):
            return PICTURE_REFUSED.format(self._endpoint.address)
        may_be_about_calls = refusals.speaks_of_calls(refused) and not is_too_long(
            refused.answer, share
        )
        if may_be_about_calls and self._describe_calls(refused, messages):
            return calls_refused
        return None

    def _adapt_request(self, changes: Mapping[str, str], error: ModelError) -> str:
        """Try these changes. Returns a notice for the user, empty if they make no difference to the
        user. Raises ToolsRefused or WireRefused if the caller has to send the request in another
        way.
        """
        assert error.answer is not None
        self.facts.try_changes(changes, error.answer.text)
        self._use_new_facts()
        if "tools" in changes:
            raise ToolsRefused(error.message, error.hint) from error
        if "wire" in changes:
            raise WireRefused(error.message, error.hint) from error
        known = notice_about(changes)
        return CHANGED.format(self._endpoint.address, known, self.spec.name) if known else ""

    def _describe_calls(self, refused: Refused, messages: Sequence[Message]) -> bool:
        """Send as text the calls that the server would refuse each time; returns whether there are
        any.
        """
        from ouro.llm.calls_as_text import find_calls_to_describe

        calls = find_calls_to_describe(messages, refused.answer.text)
        self.facts.try_describing(calls)
        return bool(calls)

    def _hide_pictures(self, refused: Refused, pictures: Sequence[set[int]], share: float) -> bool:
        """Send no picture that the server would refuse each time; returns whether one is hidden
        now.
        """
        from ouro.llm.overflow import NEAR_THE_WINDOW, is_too_long
        from ouro.llm.refusals import refuses_one_picture

        status = refused.answer.status
        if not pictures or status not in (400, 413, 415, 422):
            return False
        is_too_many_bytes = status == 413 and share < NEAR_THE_WINDOW
        if refuses_one_picture(refused) or is_too_many_bytes:
            self.facts.try_hiding(pictures[-1])
            return True
        # Not every server says what it dislikes: a request without pictures shows it.
        if is_too_long(refused.answer, share):
            return False
        self.facts.try_hiding(set[int]().union(*pictures))
        return True

    def _accepted_form(self, message: Message) -> Message:
        """The message without the pictures and calls that this server refused."""
        described = message
        if calls := self.facts.described_calls:
            from ouro.llm.calls_as_text import calls_as_text

            described = calls_as_text(message, calls)
        return hide_images(described, self.facts.hidden)
