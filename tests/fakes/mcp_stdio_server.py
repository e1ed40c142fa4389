"""A real MCP server on stdio, protocol 2025-11-25, with every fault; without the SDK, so that it
starts fast.

Run as a program: the first argument is a JSON object: `tools` (names), `describe` (another
description), `start` (`hang`, `exit`, `garbage`, `flood`, `line`), `count` (the number of further
tools), `prompt` (the name of its prompt), `instructions`, `loose` (further tools without names), `odd` (the kind, the size and the field of an odd schema: its tools are then the
only ones).
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import signal
import sys
import time
from pathlib import Path

GIVEN = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
OUT = sys.stdout.buffer
LIES = {
    "a property": {"type": "object", "properties": {"x": {"type": "banana"}}},
    "all": {"type": "banana", "properties": 3},
}
BIG = 100 * 1024 * 1024
numbers = iter(range(1000, 10_000))
state = {"describe": os.environ.get("DESCRIBE") or GIVEN.get("describe", "Say a text back.")}

if touched := os.environ.get("TOUCH"):
    with contextlib.suppress(OSError):
        Path(touched).touch()


def send(message):
    OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    OUT.flush()


def ask(method, params):
    """Ask the client, and wait for its answer."""
    number = next(numbers)
    send({"id": number, "method": method, "params": params})
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("id") == number:
            return message.get("result", message.get("error"))
    return None


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def tool(name, description, properties=None, **more):
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def tools():
    found = [
        tool(
            "echo",
            state["describe"],
            {"text": {"type": "string"}},
            annotations={"readOnlyHint": True},
        ),
        tool("fail", "Fail."),
        tool("slow", "Report progress for a while.", {"steps": {"type": "integer"}}),
        tool("image", "Give a picture."),
        tool("blocks", "Give blocks that no protocol has."),
        tool("grow", "Get another tool."),
        *([tool("grown", "A new tool.")] if state.get("grown") else []),
        tool("structured", "Give structured content.", outputSchema={"type": "object"}),
        tool("summary", "Give structured content, and only a summary as text."),
        tool("chatty", "Print a log on standard output.", {"lines": {"type": "integer"}}),
        tool("big", "Give a text of so many characters.", {"size": {"type": "integer"}}),
        tool("line", "Send one line of 100 MB."),
        tool("garbage", "Print what is no message."),
        tool("ansi", "Give terminal control sequences."),
        tool("die", "End in the middle of a call."),
        tool("hang", "Never answer."),
        tool("ask", "Ask the user."),
        tool("sample", "Ask the model."),
        tool("roots", "List the roots."),
        tool("environment", "Give the environment."),
        tool("change", "Change the description of echo, and say so.", {"to": {"type": "string"}}),
        *(
            tool(f"tool_{number}", f"Does the thing number {number}. " * 8)
            for number in range(GIVEN.get("count", 0))
        ),
    ]
    if "loose" in GIVEN:
        found += [{"name": f"loose_{at}", **item} for at, item in enumerate(GIVEN["loose"])]
    if "lie" in GIVEN:
        found.append({"name": "lie", "description": "Lies.", "inputSchema": LIES[GIVEN["lie"]]})
    return [item for item in found if item["name"] in GIVEN.get("tools", [item["name"]])]


def picture():
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def call(name, arguments, meta):
    match name:
        case "echo":
            return text(arguments.get("text", ""))
        case "fail":
            return text("It went wrong.", isError=True)
        case "slow":
            for step in range(arguments.get("steps", 3)):
                params = {
                    "progressToken": meta.get("progressToken"),
                    "progress": step,
                    "message": f"step {step}",
                }
                send({"method": "notifications/progress", "params": params})
                time.sleep(arguments.get("pause", 0.15))
            return text("done")
        case "image":
            good = {"type": "image", "data": picture(), "mimeType": "image/png"}
            content = [good, {"type": "image", "data": "bm9uZQ==", "mimeType": "image/png"}]
            return {"content": content, "structuredContent": {"content": content}}
        case "blocks":
            odd = [{"type": "hologram"}, {"type": "text"}, "x"]
            return {"content": [*text("before")["content"], *odd, *text("after")["content"]]}
        case "grow":
            state["grown"] = "yes"
            send({"method": "notifications/tools/list_changed"})
            return text("grown")
        case "structured":
            return {"content": [], "structuredContent": {"answer": 42}}
        case "summary":
            items = [{"id": 7731, "name": "yeast"}]
            return text("1 item was found.", structuredContent={"items": items})
        case "chatty":
            for number in range(arguments["lines"]):
                OUT.write(f"INFO {number}\n".encode())
            return text("printed")
        case "big":
            return text("words " * (arguments["size"] // 6))
        case "line":
            for _ in range(100):
                OUT.write(b"x" * (BIG // 100))
            OUT.write(b"\n")
            return text("after the line")
        case "garbage":
            for _ in range(5_000):
                OUT.write(b"not a message\n")
            OUT.flush()
            return text("after the garbage")
        case "ansi":
            return text("\x1b]0;title\x07\x1b[31mred\x1b[0m \u202eevil\x00")
        case "die":
            os._exit(3)
        case "hang":
            sys.stderr.write("the call hangs\n")
            sys.stderr.flush()
            signal.pause()
        case "ask":
            schema = {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "title": "Your name"},
                    "colour": {"type": "string", "enum": ["red", "blue"]},
                    "size": {"type": "integer"},
                    "sure": {"type": "boolean"},
                },
                "required": ["name"],
            }
            return text(
                json.dumps(
                    ask("elicitation/create", {"message": "Who is it?", "requestedSchema": schema})
                )
            )
        case "sample":
            messages = [{"role": "user", "content": {"type": "text", "text": "What is 6 times 7?"}}]
            asked = {"messages": messages, "maxTokens": 50, "systemPrompt": "Be brief."}
            return text(json.dumps(ask("sampling/createMessage", asked)))
        case "roots":
            return text(json.dumps(ask("roots/list", {})))
        case "environment":
            return text(json.dumps(dict(os.environ)))
        case "change":
            state["describe"] = arguments["to"]
            send({"method": "notifications/tools/list_changed"})
            return text("changed")
    return text(f"{name} ran")


def answer(method, params):
    match method:
        case "initialize":
            can = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
            info = {"name": "fake", "version": "1.0"}
            return {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": info,
                    "instructions": GIVEN.get("instructions", "")}  # fmt: skip
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return call(params["name"], params.get("arguments") or {}, params.get("_meta") or {})
        case "resources/list":
            return {"resources": [{"uri": "note://one", "name": "The first note"}]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"the content of {params['uri']}"}]}
        case "prompts/list":
            arguments = [{"name": "topic", "required": True}]
            return {
                "prompts": [
                    {
                        "name": GIVEN.get("prompt", "explain"),
                        "description": "Explain a topic",
                        "arguments": arguments,
                    }
                ]
            }
        case "prompts/get":
            words = f"Explain {params['arguments']['topic']} in one line."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}
    return None


def main():
    sys.stderr.write("the fake server starts\n")
    match GIVEN.get("start"):
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pause()
        case "exit":
            sys.stderr.write("no such database\n")
            sys.exit(7)
        case "garbage":
            while True:
                OUT.write(b"hello\n")
        case "line":
            while True:
                OUT.write(b"x" * 65536)
        case "flood":
            while True:
                sys.stderr.write("noise " * 1000 + "\n")
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        found = answer(message["method"], message.get("params") or {})
        if found is None:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": message["id"], "result": found})


def odd_schema(kind: str, size: int) -> str:
    """The schema as JSON: written by hand, because `json.dumps` refuses the deep ones."""
    match kind:
        case "deep":
            return '{"type":"object","properties":{"a":' * size + "{}" + "}}" * size
        case "items":
            return (
                '{"type":"object","properties":{"a":' + '{"items":' * size + "{}" + "}" * (size + 2)
            )
        case "lists":
            return '{"type":"object","properties":{"a":{"enum":' + "[" * size + "]" * size + "}}}"
        case "circle":
            circle = '"$defs":{"b":{"$ref":"#/$defs/c"},"c":{"$ref":"#/$defs/b"}}'
            return '{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},' + circle + "}"
        case "doubling":
            step = '"d{0}":{{"allOf":[{{"$ref":"#/$defs/d{1}"}},{{"$ref":"#/$defs/d{1}"}}]}}'
            steps = ",".join(step.format(number, number + 1) for number in range(size))
            last = f'"d{size}":{{}}'
            return (
                '{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{'
                + f"{steps},{last}"
                + "}}"
            )
        case "pattern":
            return '{"type":"object","properties":{"a":{"pattern":"^(a+)+$"}}}'
        case "wide":
            fields = ",".join(f'"p{number}":{{"type":"string"}}' for number in range(size))
            return '{"type":"object","properties":{' + fields + "}}"
        case "text":
            return '{"type":"object","description":"' + "x" * size + '"}'
    return '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'


def odd_tools(kind: str, size: int, field: str) -> str:
    """One good tool, and one whose schema is deep, circular or huge, as JSON."""
    first = '"inputSchema":{"type":"object"},' if field == "outputSchema" else ""
    odd = f'{{"name":"odd","description":"x",{first}"{field}":{odd_schema(kind, size)}}}'
    return '{"tools":[{"name":"good","inputSchema":{"type":"object"}},' + odd + "]}"


def serve_odd_tools(kind: str, size: int, field: str) -> None:
    """Answer with texts, because `json.dumps` refuses the deep schemas."""
    answers = {
        "initialize": '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}',
        "tools/list": odd_tools(kind, size, field),
        "tools/call": '{"content":[{"type":"text","text":"the good text"}],"structuredContent":{"a":"' + "a" * 40 + '!"}}',
    }  # fmt: skip
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        # A client waits 10 s for a server that ignores what it does not know.
        known = answers.get(message["method"])
        unknown = '"error":{"code":-32601,"message":"Method not found"}'
        outcome = unknown if known is None else f'"result":{known}'
        number = json.dumps(message["id"])
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{number},{outcome}}}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    if "odd" in GIVEN:
        serve_odd_tools(*GIVEN["odd"])
    else:
        main()
