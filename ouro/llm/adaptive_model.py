"""AdaptiveModel: a model whose requests change as its server refuses them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ModelError,
    NoModelError,
    ProviderAnswer,
    RateLimited,
    ToolsRefused,
    WireRefused,
)
from ouro.llm.model import Chunk, Effort, Endpoint, ModelSpec, NoticeChunk, ToolSpec
from ouro.llm.request_shape import hide_images, request_size, shape_request, visible_images
from ouro.llm.server_facts import ServerFacts, notice_about
from ouro.messages import Message, PerMessage
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.llm.rejected_requests import Refused

_NOT_FOUND = 404
MAX_ADAPTATIONS = 8
"""Maximum changes to a request after refusals."""
CHANGED = (
    "{} takes the request only in another form: {}. `ouro models show {}` lists what was learned."
)
"""The notice about a changed request: server, change, model."""
IMAGE_REFUSED = "{} refused a picture: it is described, not sent."
CALLS_REFUSED = "{} refused tool calls of earlier messages: they are sent as text."


class ModelRequest(NamedTuple):
    """A request: its path on the server, its headers and its body."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class AdaptiveModel(ABC):
    """A model behind a server; the subclass knows the protocol.

    A refusal of the server changes the request, by the table in `rejected_requests.py`; the facts that it
    taught are in `facts` (None: nothing is known of the server yet). A subclass writes the request
    that it prefers: `shape_request` leaves out and renames fields.
    """

    usual_path = ""
    """The path of requests at most servers with this protocol; empty: the protocol names it itself."""
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
        """The version of the facts that are in use."""
        self._in_accepted_form = PerMessage(self._form_accepted)
        """Returns a message in the form that the server accepts; each is computed once."""
        self._endpoint = endpoint
        self._effort = effort
        self._model = spec.name.partition("/")[2] or spec.name
        """The name of the model on the wire."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of an answer. A refused request is changed and sent again, up to
        MAX_ADAPTATIONS times; the first chunks of the answer are then notices about the changes.
        """
        notices: list[str] = []
        has_renewed_key = False
        for attempt in count_from(1):
            self._use_new_facts()
            sent_messages = (
                self._in_accepted_form(messages) if self.facts.sends_substitutes else messages
            )
            request = self.prepare(sent_messages, tools)
            has_begun = False
            try:
                async with aclosing(self._stream_answer(request)) as chunks:
                    async for chunk in chunks:
                        if not has_begun:
                            has_begun = True
                            self.facts.keep_trials()  # an answer proves that the changes were right
                            for notice in notices:
                                yield NoticeChunk(notice)
                        yield chunk
                return
            except ModelError as error:
                if has_begun:
                    raise
                is_about_key = isinstance(error, AuthenticationFailed)
                if is_about_key and not has_renewed_key and await self._renew_key():
                    has_renewed_key = True
                    continue
                # Raises the error if nothing can be changed, or no further attempt is allowed.
                notice = self._adapt_to_error(
                    error, request.body, sent_messages, is_last=attempt > MAX_ADAPTATIONS
                )
                if notice:
                    notices.append(notice)

    async def _renew_key(self) -> bool:
        """Read the key again, because the server has refused it: keys of a command expire. Returns
        whether there is another key now.
        """
        renew, refused_key = self._endpoint.renew_key, self._endpoint.api_key
        if renew is None:
            return False
        try:
            key = await asyncio.to_thread(renew, refused_key)
        except NoModelError as error:
            log.warning("the key was refused, and cannot be read again: %s", error)
            return False
        self._endpoint = replace(self._endpoint, api_key=key)
        return key != refused_key

    def prepare(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> ModelRequest:
        """The request in the form that the server is known to accept."""
        request = self._request(messages, tools)
        return request._replace(body=shape_request(request.body, self.facts))

    @abstractmethod
    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request in the form that this protocol prefers."""

    @abstractmethod
    def _stream_answer(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of the answer to a request. Raises ModelError."""

    def _rebuild_format(self) -> None:
        """Make again what depends on `spec` and `facts`, because one of them has changed."""
        self._in_accepted_form = PerMessage(self._form_accepted)

    def _remaining_thinking_styles(self) -> tuple[str, ...]:
        """The ways to ask for thinking that were not refused, the next one first; empty if the
        protocol has only one.
        """
        return ()

    def _use_new_facts(self) -> None:
        """Use the facts that this model, or a copy of it, has learned."""
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
        """Change the next requests as a refusal asks. Returns a notice for the user; empty if the
        user does not see a difference.

        If nothing can be changed, the changes that are on trial are undone, and the error is
        raised. An error without an answer of the server, a wrong key and a rate limit are no
        reasons for a change.

        Args:
            body, messages: those of the refused request.
            is_last: whether no further attempt is allowed: then nothing is changed.

        Raises:
            ModelError: nothing can be changed. This is `error`, or a ContextTooLong if the refusal
                means that the request is too long.
            ToolsRefused: the tools have to be described in the prompt.
            WireRefused: the model has to be reached by another wire.
        """
        from ouro.llm.overflow import is_too_long

        if error.answer is None or isinstance(error, AuthenticationFailed | RateLimited) or is_last:
            self.facts.drop_trials()
            raise error
        if self._try_usual_path(error.answer):
            return ""
        # With its tables, it is loaded only for a server that refuses a request.
        from ouro.llm import rejected_requests

        images = visible_images(messages, self.facts) if self.spec.images else []
        refused = rejected_requests.Refused(
            error.answer,
            body,
            self.facts,
            has_images=bool(images),
            thinking_styles=self._remaining_thinking_styles(),
            other_wire=self.other_wire,
            limit_names=self.limit_names,
        )
        size = request_size(messages, body)
        window_share = size / self.spec.window
        notice = self._try_adaptation(refused, error, messages, images, window_share)
        if notice is not None:
            return notice
        self.facts.drop_trials()
        if is_too_long(error.answer, window_share):
            self._learn_window(error.answer.text, size)
            too_long = ContextTooLong(error.message, error.hint)
            too_long.answer = error.answer
            raise too_long from error
        raise error

    def _learn_window(self, refusal: str, size: int) -> None:
        """Use the window that the refusal of a request of `size` tokens names, if it is smaller than
        the known one: the next request is made smaller before it is refused.
        """
        from ouro.llm.overflow import find_window

        window = find_window(refusal, size)
        if window and window < self.spec.window:
            log.info("%s has a window of %d tokens", self.spec.name, window)
            self.facts.limit_window(window)
            self._use_new_facts()

    def _try_usual_path(self, answer: ProviderAnswer) -> bool:
        """Send the next request to `/v1`, on trial, if there is nothing at an address without a path.
        Returns whether it is tried. Most servers have their requests there.
        """
        has_path = urlsplit(self._endpoint.base_url).path.strip("/")
        is_not_found = answer.status == _NOT_FOUND
        if has_path or not is_not_found or not self.usual_path or self.facts.has("path"):
            return False
        self.facts.try_changes({"path": self.usual_path}, answer.text)
        return True

    def _try_adaptation(
        self,
        refused: Refused,
        error: ModelError,
        messages: Sequence[Message],
        images: Sequence[set[int]],
        window_share: float,
    ) -> str | None:
        """Change what the refusal is about. The rules with the most certain signs are tried first.
        Returns a notice for the user, which may be empty; None if it is not known what to change.

        Args:
            images: the hashes of the images that are sent, for each message that has any.
            window_share: the share of the window that the request fills.
        """
        from ouro.llm import rejected_requests
        from ouro.llm.overflow import is_too_long

        calls_refused = CALLS_REFUSED.format(self._endpoint.address)
        if rejected_requests.refuses_signature(refused) and not self.facts.refuses_signatures:
            self.facts.refuse_signatures()
            return ""
        if rejected_requests.refuses_calls(refused) and self._describe_calls(refused, messages):
            return calls_refused
        # A request that is too long can only be helped by the rules of size. None stands for all
        # rules.
        rules = rejected_requests.RULES_OF_SIZE if isinstance(error, ContextTooLong) else None
        changes = rejected_requests.find_changes(refused, rules)
        if changes:
            return self._adapt_request(changes, error)
        if self._hide_images(refused, images, window_share):
            return IMAGE_REFUSED.format(self._endpoint.address)
        is_long = is_too_long(refused.answer, window_share)
        may_be_about_calls = rejected_requests.speaks_of_calls(refused) and not is_long
        if may_be_about_calls and self._describe_calls(refused, messages):
            return calls_refused
        return None

    def _adapt_request(self, changes: Mapping[str, str], error: ModelError) -> str:
        """Use these changes in the next requests, on trial. Returns a notice for the user; empty if
        the user does not see a difference.

        Raises:
            ToolsRefused: the tools have to be described in the prompt.
            WireRefused: the model has to be reached by another wire.
        """
        assert error.answer is not None
        self.facts.try_changes(changes, error.answer.text)
        self._use_new_facts()
        if "tools" in changes:
            raise ToolsRefused(error.message, error.hint) from error
        if "wire" in changes:
            raise WireRefused(error.message, error.hint) from error
        change = notice_about(changes)
        return CHANGED.format(self._endpoint.address, change, self.spec.name) if change else ""

    def _describe_calls(self, refused: Refused, messages: Sequence[Message]) -> bool:
        """Replace the calls that the server refused by texts in the next requests, on trial.
        Returns whether there are such calls.
        """
        from ouro.llm.refused_calls_as_text import find_calls_to_describe

        calls = find_calls_to_describe(messages, refused.answer.text)
        self.facts.try_describing(calls)
        return bool(calls)

    def _hide_images(
        self, refused: Refused, images: Sequence[set[int]], window_share: float
    ) -> bool:
        """Leave images out of the next requests, on trial. If the refusal is about one image or
        about the number of bytes, these are the images of the newest message; if it does not say
        what is wrong, all images. Returns False, and leaves nothing out, if there are no images or
        if the refusal is certainly about something else. Arguments as in `_try_adaptation`.
        """
        from ouro.llm.overflow import NEAR_THE_WINDOW, is_too_long
        from ouro.llm.rejected_requests import refuses_one_picture

        status = refused.answer.status
        if not images or status not in (400, 413, 415, 422):
            return False
        is_too_many_bytes = status == 413 and window_share < NEAR_THE_WINDOW
        if refuses_one_picture(refused) or is_too_many_bytes:
            self.facts.try_hiding(images[-1])  # of the newest message: older ones were accepted
            return True
        # Not every server says what it refuses: a request without images shows it.
        if is_too_long(refused.answer, window_share):
            return False
        self.facts.try_hiding(set[int]().union(*images))
        return True

    def _form_accepted(self, message: Message) -> Message:
        """The message with texts instead of the images and calls that this server refused."""
        if self.facts.described_calls:
            from ouro.llm.refused_calls_as_text import calls_as_text

            message = calls_as_text(message, self.facts.described_calls)
        return hide_images(message, self.facts.hidden)
