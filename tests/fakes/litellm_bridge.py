"""The Responses API that litellm makes of chat completions, as a server on loopback.

`python -m fakes.litellm_bridge URL` serves `/v1/responses` over the chat completions at URL, and
prints its own URL on the first line. litellm's proxy does the same with the same function; its web
framework is not installed with litellm.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ouro.llm.litellm_worker import load_litellm


def make_app(url: str) -> Starlette:
    litellm = load_litellm()

    async def respond(request: Request) -> Response:
        body = await request.json()
        # A provider whose Responses litellm makes of chat: for hosted_vllm it asks /responses.
        body["model"] = f"lm_studio/{body['model']}"
        try:
            answer = await litellm.aresponses(**body, api_base=url, api_key="none")
        except Exception as error:
            status = getattr(error, "status_code", 500)
            return JSONResponse({"error": {"message": str(error)}}, status)
        return StreamingResponse(_events(answer), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/responses", respond, methods=["POST"])])


async def _events(answer: Any) -> AsyncIterator[str]:
    async for event in answer:
        yield f"data: {json.dumps(event.model_dump(mode='json', exclude_none=True))}\n\n"


def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", flush=True)
    uvicorn.Server(uvicorn.Config(make_app(sys.argv[1]), log_level="warning")).run([listener])


if __name__ == "__main__":
    main()
