"""Connection: one MCP server in the worker. Connects, lists, calls; questions and reports of the
server are events.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from ouro import __version__
from ouro.mcp.content import (
    MAX_TEXT,
    block_text,
    describe_tool,
    read_contents,
    replace_invalid_blocks,
    structured_text,
)
from ouro.mcp.http import LoginNeeded, http_client, http_timeout, login_provider
from ouro.mcp.schemas import TOO_DEEP, complete_schemas, content_problem, size_problem
from ouro.mcp.stdio import ServerEnded, is_too_deep, stdio_transport
from ouro.utils.certificates import complete_tls_context
from ouro.utils.json_object import JsonObject

MAX_PAGES = 100
"""Maximum pages of a list."""
MAX_TOOLS = 2_000
"""Maximum items of a list."""
LIST_PAUSE = 0.3
"""Seconds in which several notifications of a changed list count as one."""
PROBE_SECONDS = 5.0
"""Seconds to answer a ping, after a request was cancelled before its answer."""
_MAX_SUBSCRIPTIONS = 3
_SUBSCRIPTION_PAUSE = 5.0
"""Seconds before a lost subscription is renewed."""
REPORT_PAUSE = 0.1
"""Seconds between two progress events of one call; the last one is always sent."""
_LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
"""The field of each list in a result -> its method."""
_LIST_CHANGES = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
)
"""The notifications about a changed list."""
_Result = TypeVar("_Result")
_PROMPT_FIELDS = {"name": True, "description": True, "arguments": {"__all__": {"name", "required"}}}
"""The fields of a prompt that are sent on."""

warnings.filterwarnings("ignore", category=DeprecationWarning, module="mcp")


class Connection:
    """One server, in the worker.

    Args:
        request: what `servers.py` sends to open it: name, command or url, environment, folder, limits.
        emit: sends an event to `servers.py`.
    """

    def __init__(self, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
        self._request = request
        self._emit = emit
        self._changed = asyncio.Event()
        """Set when a list has changed, or the server has ended."""
        self._ended = asyncio.Event()
        """Set when the server has ended."""
        self._end_reason = ""
        """Why the server has ended; empty until then."""
        self._output_schemas: dict[str, JsonObject] = {}
        """The schemas of structured content, by the name of the tool."""
        self._questions: dict[int, asyncio.Future[Any]] = {}
        """The questions of the server, by number; a future gets the answer."""
        self._client: Client | None = None
        """The client of the SDK; None if there is no connection."""
        self._left_out: dict[str, None] = {}
        """Invalid items of its lists, as lines for the user."""
        self._is_refused = False
        """Whether the server has answered 401, or wants a login with more rights."""
        self._is_session_unknown = False
        """Whether the server has answered 404 to a request of this session."""
        self._requests = 0
        """The number of requests that run."""
        self._may_hang = False
        """Whether a request was cancelled before its answer, and none was answered since."""

    async def run(self) -> None:
        """Connect, and emit the lists of the server and other events until it ends or this is
        cancelled. If it ends, raises the error that is the reason.
        """
        asks = self._request["asks"]
        try:
            async with (
                asyncio.timeout(self._request["timeout"]) as limit,
                Client(
                    self._transport(),
                    client_info=types.Implementation(name="ouro", version=__version__),
                    list_roots_callback=self._list_roots,
                    message_handler=self._on_message,
                    logging_callback=self._on_log,
                    log_level="info",
                    elicitation_callback=self._on_elicit if asks else None,
                    sampling_callback=self._on_sample if asks else None,
                    cache=None,
                ) as client,
            ):
                self._client = client
                # The SDK would drop a result whose structured content does not match.
                client.session.validate_tool_result = _accept_result  # type: ignore[method-assign]
                await self._serve(client, limit)
        except Exception:
            if self._is_refused or self._end_reason:
                raise self._end_error() from None
            raise
        finally:
            self._client = None

    @property
    def client(self) -> Client:
        """The client of the SDK. Raises ServerEnded if there is no connection."""
        if self._client is None:
            raise ServerEnded("It is not connected.")
        return self._client

    async def handle(
        self, method: str, request: JsonObject, emit: Callable[[JsonObject], None]
    ) -> None:
        """Carry out a request to the open server, and emit its result: `call` a tool, `read` a
        resource, or get a `prompt`. The request `answer` is the answer to a question of the server,
        and is passed on to it.
        """
        match method:
            case "answer":
                question = self._questions.get(request["number"])
                if question is not None and not question.done():
                    question.set_result(request["value"])
            case "call":
                await self._call(request["tool"], request["arguments"], emit)
            case "read":
                resource = await self._send(lambda: self.client.read_resource(request["uri"]))
                emit({"result": read_contents(resource.contents)})
            case "prompt":
                prompt = await self._send(
                    lambda: self.client.get_prompt(request["name"], request["arguments"])
                )
                texts = [block_text(message.content) for message in prompt.messages]
                emit({"result": {"text": "\n\n".join(filter(None, texts))[:MAX_TEXT]}})

    async def _call(
        self, tool: str, arguments: JsonObject, emit: Callable[[JsonObject], None]
    ) -> None:
        """Call a tool: emit its progress, then its result. Structured content that the other content
        does not say is added to the text, and so is a warning if it does not match its schema.
        """
        progress = _ProgressReports(emit)
        try:
            result = await self._send(
                lambda: self.client.call_tool(tool, arguments, progress_callback=progress.report)
            )
        finally:
            progress.emit_last()
        content = read_contents(result.content)
        if result.structured_content is not None:
            structured = await asyncio.to_thread(
                structured_text, result.structured_content, result.content
            )
            content["text"] = "\n\n".join(filter(None, (content["text"], structured)))
        schema = self._output_schemas.get(tool)
        if schema is not None and not result.is_error:
            problem = await asyncio.to_thread(content_problem, schema, result.structured_content)
            if problem:
                content["text"] += f"\n[warning: the structured content does not fit: {problem}]"
        emit({"result": {**content, "failed": result.is_error}})

    async def _send(self, request: Callable[[], Awaitable[_Result]]) -> _Result:
        """Send a request and return the answer. If a request was cancelled before its answer came,
        the server may hang: then it is first asked for a sign of life.

        Raises:
            LookupError: the server has ended, and can be started again.
            ServerEnded: it ended meanwhile, or does not answer and ouro did not start it.
            LoginNeeded: it wants a login, or one with more rights.
            MCPError: it answered with an error.
        """
        # While another request runs, its answer will show whether the server hangs.
        if self._may_hang and not self._requests and not self._end_reason:
            await self._probe()
        if self._end_reason:
            raise LookupError(self._end_reason)
        task = asyncio.ensure_future(request())
        self._requests += 1
        try:
            # To cancel a request takes a moment. With the shield, `_may_hang` is set before that,
            # so that the next request knows it.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._may_hang = True
            raise
        except MCPError as error:
            if reason := self._reason_to_connect_again(error):
                self._end(reason)
                raise LookupError(self._end_reason) from None
            if error.code == types.CONNECTION_CLOSED:
                self._end("the connection was closed")
            if self._end_reason:
                raise self._end_error() from None
            raise
        finally:
            self._requests -= 1
            await _cancel(task)

    def _reason_to_connect_again(self, error: MCPError) -> str:
        """Why a request has failed which a new connection can carry out; empty if it has failed for
        another reason.
        """
        if self._has_forgotten_session(error):
            return "it does not know the session any more"
        if self._is_refused and self._request["renews_headers"]:
            return "it does not accept the headers any more"
        return ""

    def _has_forgotten_session(self, error: MCPError) -> bool:
        """Whether the error of a request means that an HTTP server has ended the session: then it
        has not carried out the request. It may also answer 404 to a method that it does not have.
        """
        is_unknown, self._is_session_unknown = self._is_session_unknown, False
        return is_unknown and error.code != types.METHOD_NOT_FOUND

    async def _probe(self) -> None:
        """Ask a server that may hang for a sign of life.

        Raises:
            LookupError: there was none, and ouro has ended the server: it can be started again.
            ServerEnded: there was none, and ouro did not start the server.
        """
        # At most half of the time that the request has which waits for this.
        seconds = min(PROBE_SECONDS, self._request["timeout"] / 2)
        try:
            async with asyncio.timeout(seconds):
                with suppress(MCPError):  # an error counts as an answer
                    version = self.client.protocol_version
                    # The protocol of 2026 does not have a ping.
                    if version > "2026":
                        await self.client.session.send_discover(version)
                    else:
                        await self.client.send_ping()
        except TimeoutError:
            reason = "it does not answer since a call was cancelled"
            if not self._request["command"]:
                raise ServerEnded(f"The server cannot be used: {reason}.") from None
            self._end(reason)
            raise LookupError(reason) from None
        self._may_hang = False

    async def _serve(self, client: Client, limit: asyncio.Timeout) -> None:
        """Emit the lists of the server, and emit them again whenever they change. When the server
        ends, raises ServerEnded.

        Args:
            limit: the time limit of the connection; it is lifted when the first lists are there.
        """
        listener = asyncio.create_task(self._listen(client))
        try:
            while not self._end_reason:
                self._changed.clear()
                async with asyncio.timeout(self._request["timeout"]):
                    self._emit({"ready": await self._list_until_end(client)})
                limit.reschedule(None)
                await self._changed.wait()
                if not self._end_reason:
                    await asyncio.sleep(LIST_PAUSE)
            raise ServerEnded(self._end_reason)
        finally:
            await _cancel(listener)

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[tuple[_CheckedStream, Any]]:
        """In this context the server runs, or is connected; yields its two streams. Invalid items
        are removed from the lists that it sends.
        """
        request = self._request
        async with AsyncExitStack() as stack:
            transport: AbstractAsyncContextManager[Any]
            if command := request["command"]:
                transport = stdio_transport(
                    command,
                    environment=request["environment"],
                    cwd=request["cwd"],
                    emit=self._emit,
                    on_end=self._end,
                )
            else:
                transport = await self._http_transport(stack)
            incoming, outgoing = await stack.enter_async_context(transport)
            yield _CheckedStream(incoming, self._drop_invalid), outgoing

    async def _http_transport(self, stack: AsyncExitStack) -> AbstractAsyncContextManager[Any]:
        """The transport to a server with a URL, not opened yet. `stack` closes its HTTP client."""
        request = self._request
        provider = await login_provider(request, self._emit, self._on_refusal)
        timeout = http_timeout(request["timeout"])
        make_client = partial(
            http_client,
            tls=await asyncio.to_thread(complete_tls_context),
            on_refused=self._on_refusal,
            on_unknown_session=self._on_unknown_session,
            log=self._log,
        )
        if request["transport"] == "sse":
            return sse_client(
                request["url"],
                request["headers"],
                auth=provider,
                timeout=timeout.connect or 30.0,
                httpx_client_factory=make_client,
            )
        client = await stack.enter_async_context(make_client(request["headers"], timeout, provider))
        return streamable_http_client(request["url"], http_client=client)

    def _drop_invalid(self, result: JsonObject) -> None:
        """Remove the invalid items from a result that is a list, and replace the invalid blocks of the
        result of a call, because the SDK would refuse the whole result. The schemas of tools are
        completed before.
        """
        if isinstance(blocks := result.get("content"), list):
            replace_invalid_blocks(blocks)
        if isinstance(tools := result.get("tools"), list):
            complete_schemas(tools)
        for field in _LISTS.keys() & result.keys():
            if isinstance(items := result[field], list):
                result[field] = [item for item in items if self._admit_item(field, item, result)]

    def _admit_item(self, field: str, item: Any, result: JsonObject) -> bool:
        """Decide whether an item of the list `field` can be used, and return that. If not, the
        reason is recorded for the user. If only its output schema is too large, this schema is
        removed from the item, and the item can be used.

        Args:
            result: the whole result, with the list.
        """
        if isinstance(item, dict):
            if problem := size_problem(item.get("inputSchema")):
                what = f"{field} `{str(item.get('name'))[:100]}`"
                self._left_out[f"{what}: its schema cannot be used: {problem}"] = None
                return False
            if size_problem(item.get("outputSchema")):
                del item["outputSchema"]
        try:
            # The SDK checks only whole results: this one has no other item.
            validate_server_result(
                _LISTS[field], self.client.protocol_version, {**result, field: [item]}
            )
        except ValidationError as error:
            faults_of_item = [fault for fault in error.errors() if fault["loc"][:1] == (field,)]
            if not faults_of_item:  # something else in the result is wrong
                return True
            first_fault = faults_of_item[0]
            name = item.get("name") if isinstance(item, dict) else None
            path = ".".join(map(str, first_fault["loc"][2:]))  # after the list and the index
            self._left_out[f"{field} `{name or '?'}`: {path}: {first_fault['msg']}"[:300]] = None
            return False
        except (KeyError, ValueError):  # a version or a list that the SDK does not check
            pass
        return True

    async def _listen(self, client: Client) -> None:
        """Subscribe to changed lists, and set `_changed` for each. A subscription that ends is
        renewed, at most twice. Only a server of the 2026 protocol needs one: older servers send
        notifications without it, and this returns.
        """
        for _ in range(_MAX_SUBSCRIPTIONS):
            try:
                async with client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                ) as changes:
                    async for _change in changes:
                        self._note_change()
            except (ListenNotSupportedError, MCPError):
                return
            except SubscriptionLost:
                await asyncio.sleep(_SUBSCRIPTION_PAUSE)
                self._note_change()  # a change meanwhile was not reported

    async def _list_until_end(self, client: Client) -> JsonObject:
        """The lists of the server, as `_list_offers` returns them. If the server ends meanwhile,
        raises ServerEnded at once.
        """
        listing = asyncio.ensure_future(self._list_offers(client))
        end = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((listing, end), return_when=asyncio.FIRST_COMPLETED)
            if listing.done():
                return listing.result()
            raise ServerEnded(self._end_reason)
        finally:
            await _cancel(listing)
            await _cancel(end)

    async def _list_offers(self, client: Client) -> JsonObject:
        """What the server offers, as plain data in the form of ServerListing: all tools, resources
        and prompts, and facts about the server.
        """
        self._left_out.clear()
        start = time.monotonic()
        capabilities = client.server_capabilities
        tools = await _list_all(client.list_tools, "tools") if capabilities.tools else []
        latency = time.monotonic() - start
        resources = (
            await _list_all(client.list_resources, "resources") if capabilities.resources else []
        )
        templates: Sequence[Any] = ()
        if capabilities.resources:
            with suppress(MCPError):  # this is optional, and not every server answers
                templates = await _list_all(client.list_resource_templates, "resource_templates")
        prompts = await _list_all(client.list_prompts, "prompts") if capabilities.prompts else []
        self._is_session_unknown = False  # a 404 was about a list that the server does not have
        info = client.server_info
        return {
            "version": f"{info.name} {info.version}" if info else "",
            "protocol": client.protocol_version,
            "instructions": client.instructions or "",
            "latency": latency,
            "left_out": list(self._left_out),
            "tools": await self._describe_tools(tools),
            "resources": (
                [{"uri": str(item.uri), "name": item.name} for item in resources]
                + [
                    {"uri": item.uri_template, "name": item.name, "is_template": True}
                    for item in templates
                ]
            ),
            "prompts": [
                prompt.model_dump(include=_PROMPT_FIELDS, exclude_none=True) for prompt in prompts
            ],
        }

    async def _describe_tools(self, tools: Sequence[types.Tool]) -> list[JsonObject]:
        """The tools as plain data. Their output schemas are kept to check results."""
        self._output_schemas = {
            tool.name: tool.output_schema for tool in tools if tool.output_schema is not None
        }
        descriptions = []
        for tool in tools:
            descriptions.append(describe_tool(tool))
            await asyncio.sleep(0)  # so that other servers and time limits are not delayed
        return descriptions

    async def _on_message(self, message: Any) -> None:
        """Called with each message of the server that is not an answer, and with errors of the
        transport. If it says that a list has changed, `_changed` is set. If a message cannot be
        read, the server is ended.
        """
        if isinstance(message, _LIST_CHANGES):
            self._note_change()
        elif isinstance(message, Exception):
            self._log(f"transport: {message}")
            if is_too_deep(message):
                self._end(f"it sent a message that cannot be read: {TOO_DEEP}")

    def _note_change(self) -> None:
        """A list has changed: it is requested again, and until then the known one is old."""
        self._emit({"changed": True})
        self._changed.set()

    async def _on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._log(f"{params.level}: {params.data}")

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        """The folders that the server may work in."""
        return types.ListRootsResult(
            roots=[
                types.Root(uri=root, name=root.rpartition("/")[2])
                for root in self._request["roots"]
            ]
        )

    async def _on_elicit(self, context: ClientRequestContext, params: Any) -> types.ElicitResult:
        """Ask the user what the server wants to know; returns the answer."""
        answer = await self._ask("elicit", params.model_dump(by_alias=True, mode="json"))
        return types.ElicitResult(**answer)

    async def _on_sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Let a model of the user answer a prompt of the server. Returns the answer, or an error if
        the user does not allow it.
        """
        question = {
            "system": params.system_prompt or "",
            "messages": [
                {"role": item.role, "text": "\n\n".join(map(block_text, item.content_as_list))}
                for item in params.messages
            ],
        }
        answer = await self._ask("sample", question)
        if "refused" in answer:
            return types.ErrorData(code=-1, message=answer["refused"])
        content = types.TextContent(type="text", text=answer["text"])
        return types.CreateMessageResult(role="assistant", content=content, model=answer["model"])

    async def _ask(self, kind: str, about: JsonObject) -> Any:
        """Emit a question of the server as an event, and return the answer, which comes by
        `handle`.

        Args:
            kind: `elicit` (a question to the user) or `sample` (a prompt for a model).
            about: its parameters.
        """
        number = len(self._questions) + 1
        self._questions[number] = asyncio.get_running_loop().create_future()
        self._emit({"ask": kind, "number": number, "about": about})
        return await self._questions[number]

    def _on_refusal(self) -> None:
        """Note that the server wants a login."""
        self._is_refused = True

    def _on_unknown_session(self) -> None:
        """Note that the server has answered 404 to a request of this session."""
        self._is_session_unknown = True

    def _end(self, reason: str) -> None:
        """Record why the server has ended, unless a reason is recorded already, and wake what waits
        for it.
        """
        if not self._end_reason:
            self._end_reason = f"The server stopped: {reason}."
        self._ended.set()
        self._changed.set()

    def _end_error(self) -> Exception:
        """The error to raise about a server that has ended, or wants a login."""
        if self._is_refused and self._request["renews_headers"]:
            return ServerEnded(self._end_reason or "It does not accept its `headers_helper` (401).")
        if self._is_refused:
            name = self._request["name"]
            return LoginNeeded(
                f"Run `ouro mcp login {name}`, and `/mcp on {name}` in open sessions."
            )
        return ServerEnded(self._end_reason)

    def _log(self, text: str) -> None:
        """Emit a line of the log."""
        self._emit({"log": text[:500]})


class _ProgressReports:
    """Emits the progress of one call, at most once in REPORT_PAUSE."""

    def __init__(self, emit: Callable[[JsonObject], None]) -> None:
        self._emit = emit
        self._emitted_at = 0.0
        """When the last event was emitted (`time.monotonic`)."""
        self._waiting: JsonObject | None = None
        """The latest progress, if it was not emitted."""

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Called with each report of the server. Emits its message; if it has none, how far the
        call is. If the last event was emitted a moment ago, the report waits for the next one, or
        for the end of the call.
        """
        how_far = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        self._waiting = {"progress": (message or how_far)[:500]}
        if time.monotonic() - self._emitted_at >= REPORT_PAUSE:
            self._emitted_at = time.monotonic()
            self.emit_last()

    def emit_last(self) -> None:
        """Emit the latest progress, unless it was emitted already."""
        if self._waiting is not None:
            self._emit(self._waiting)
            self._waiting = None


class _CheckedStream(ObjectReceiveStream[Any]):
    """A stream of messages of a server. `check` may change each result before the SDK reads it: the
    SDK would refuse a whole list for one invalid item.
    """

    def __init__(
        self, incoming: ObjectReceiveStream[Any], check: Callable[[JsonObject], None]
    ) -> None:
        self._incoming = incoming
        self._check = check

    async def receive(self) -> Any:
        """The next message, or the error of the transport."""
        item = await self._incoming.receive()
        if (result := _result_of(item)) is not None:
            self._check(result)
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()


def _result_of(item: Any) -> JsonObject | None:
    """The result in an item of the stream, if the item is an answer; None for a request, a
    notification or an error.
    """
    message = getattr(item, "message", None)
    result = getattr(message, "result", None)
    return result if isinstance(result, dict) else None


async def _accept_result(name: str, result: types.CallToolResult) -> None:
    """Stands for the check of the SDK, which would drop a result that does not match its schema.
    `_call` only adds a warning to it.
    """


async def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _list_all(list_page: Any, field: str) -> list[Any]:
    """The items of all pages of a list, at most MAX_TOOLS.

    Args:
        list_page: the method of the client that returns a page.
        field: the field of a page with the items.
    """
    items: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        page = await list_page(cursor=cursor)
        items += getattr(page, field)
        cursor = page.next_cursor
        if not cursor or len(items) >= MAX_TOOLS:
            break
    return items[:MAX_TOOLS]
