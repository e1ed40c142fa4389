"""ouro's MCP client as the conformance suite starts it: connect to the given address, log in if
asked, call all tools.

`python -m tests.mcp_conformance` runs the suite.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

HOME = Path(tempfile.mkdtemp(prefix="ouro-conformance-"))
os.environ |= {
    "OURO_HOME": str(HOME / ".ouro"),
    "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
}

from ouro.errors import OuroError  # noqa: E402 (after the environment)
from ouro.mcp import Host, McpServers, Registry, elicitation  # noqa: E402
from ouro.mcp.servers import LoginRequired  # noqa: E402
from ouro.settings import McpServerSettings  # noqa: E402

ARGUMENTS = {"a": 5, "b": 3}


async def no_answer(_question):
    return ()


async def on_question(server, kind, about):
    return (
        {"text": "42", "model": "test"}
        if kind == "sample"
        else await elicitation(server, about, no_answer)
    )


def browse(url: str) -> None:
    threading.Thread(
        target=lambda: urllib.request.urlopen(url, timeout=10).read(), daemon=True
    ).start()


async def main(url: str) -> int:
    host = Host(HOME, dict(os.environ), (), lambda text, _level: print(text), on_question)
    client = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    known = {name: client[name] for name in ("client_id", "client_secret") if name in client}
    settings = McpServerSettings(url=url, timeout_seconds=60, **known)
    servers = McpServers(Registry({"one": settings}), host)
    one = servers.by_name["one"]
    try:
        servers.start()
        await servers.wait_until_started()
        if one.state == "login":
            await one.login(browse)
        one = await servers.connect("one")
        given = {call["name"]: call["arguments"] for call in client.get("toolCalls", ())}
        for tool in one.tools:
            properties = tool.schema.get("properties", {})
            known = {**ARGUMENTS, "schema": one.tools[0].schema}
            arguments = given.get(
                tool.name, {name: known[name] for name in properties.keys() & known.keys()}
            )
            try:
                print(await one.call(tool.name, arguments, print))
            except LoginRequired as error:
                print(error)
                await one.login(browse)
                print(await one.call(tool.name, arguments, print))
    except OuroError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        await servers.close()
        await asyncio.sleep(0.3)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
