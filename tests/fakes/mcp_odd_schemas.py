"""A real MCP server on stdio with one good tool, and one whose schema is deep, circular or huge.

Run as a program: the kind of the schema, its size, and `inputSchema` or `outputSchema`.
"""

from __future__ import annotations

import json
import sys


def schema(kind: str, size: int) -> str:
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


def tools(kind: str, size: int, field: str) -> str:
    first = '"inputSchema":{"type":"object"},' if field == "outputSchema" else ""
    odd = f'{{"name":"odd","description":"x",{first}"{field}":{schema(kind, size)}}}'
    return '{"tools":[{"name":"good","inputSchema":{"type":"object"}},' + odd + "]}"


def main(kind: str, size: str, field: str) -> None:
    answers = {
        "initialize": '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}',
        "tools/list": tools(kind, int(size), field),
        "tools/call": '{"content":[{"type":"text","text":"the good text"}],"structuredContent":{"a":"' + "a" * 40 + '!"}}',
    }  # fmt: skip
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") in answers:
            number = json.dumps(message["id"])
            result = answers[message["method"]]
            sys.stdout.write('{"jsonrpc":"2.0","id":' + number + ',"result":' + result + "}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
