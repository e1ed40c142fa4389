"""A language server on stdin and stdout, with the framing of the protocol. Its language: `def NAME`
defines a name, `use NAME` is an error unless a file defines it, `wrong WORD` is an error.

Arguments: a JSON object. `mode`: what is odd about the server; `log`: a file for what it receives.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

OPTIONS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
MODE = OPTIONS.get("mode", "")
documents: dict[str, str] = {}
root = Path()


def send(message: dict) -> None:
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
    sys.stdout.buffer.flush()


def receive() -> dict | None:
    length = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return json.loads(sys.stdin.buffer.read(length)) if length else None


def note(text: str) -> None:
    if path := OPTIONS.get("log"):
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


def path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def texts() -> dict[str, str]:
    """The text of each file of the project: of an open document what the client has sent."""
    found = {path.as_uri(): path.read_text() for path in root.rglob("*.toy")}
    return found | documents


def places(word: str) -> list[tuple[str, int, int]]:
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    return [
        (uri, number, found.start())
        for uri, text in texts().items()
        for number, line in enumerate(text.split("\n"))
        for found in pattern.finditer(line)
    ]


def span(line: int, column: int, length: int) -> dict:
    return {
        "start": {"line": line, "character": column},
        "end": {"line": line, "character": column + length},
    }


def errors_of(uri: str) -> list[dict]:
    defined = set(re.findall(r"\bdef (\w+)", "\n".join(texts().values())))
    found = []
    for number, line in enumerate(documents[uri].split("\n")):
        for match in re.finditer(r"\b(wrong|use) (\w+)", line):
            if match[1] == "use" and match[2] in defined:
                continue
            message = f"{match[2]} is {'not defined' if match[1] == 'use' else 'wrong'}"
            found.append(
                {
                    "range": span(number, match.start(), 3),
                    "message": message,
                    "severity": 1,
                    "code": match[1],
                }
            )
    found.append({"range": span(0, 0, 1), "message": "a matter of taste", "severity": 2})
    return found


def odd_errors(uri: str) -> list:
    """Errors that are not valid, and a valid one."""
    return [
        {"range": {"start": {"line": -5, "character": "x"}}, "message": "nowhere", "severity": 1},
        {"range": None, "message": "none", "severity": 1},
        {"range": span(0, 0, 1), "message": {"odd": 1}, "severity": 1},
        {"range": span(0, 0, 1), "severity": 99, "message": "odd severity"},
        "text",
        *errors_of(uri),
        {
            "range": span(9_999_999, 9_999_999, 1),
            "message": "far away\u001b[31m" + "x" * 9_000,
            "severity": 1,
        },
    ]


def publish(uri: str) -> None:
    items = odd_errors(uri) if MODE == "odd" else errors_of(uri)
    if MODE == "many":
        items = (
            [
                {"range": span(n, 0, 1), "message": f"error {n} of {items}"[:60], "severity": 1}
                for n in range(500)
            ]
            if "wrong" in documents[uri]
            else []
        )
    if MODE == "elsewhere" and "wrong" in documents[uri]:
        for place in (
            "file:///etc/passwd",
            "untitled:1",
            "file://host/x",
            "http://x/y",
            7,
            "file:///x%00y",
        ):
            error = {"range": span(0, 0, 1), "message": "elsewhere", "severity": 1}
            send(
                {
                    "method": "textDocument/publishDiagnostics",
                    "params": {"uri": place, "diagnostics": [error]},
                }
            )
    params = {"uri": uri, "diagnostics": items}
    if not OPTIONS.get("no_versions"):
        params["version"] = versions.get(uri)
    send({"method": "textDocument/publishDiagnostics", "params": params})


versions: dict[str, int] = {}


def changed(uri: str, text: str, version: int) -> None:
    documents[uri], versions[uri] = text, version
    if MODE == "die on change" and "wrong" in text:
        os._exit(3)
    if MODE in ("silent", "pull"):
        return
    time.sleep(OPTIONS.get("slow", 0))
    for other in dict.fromkeys([uri, *documents]):
        publish(other)


def flood() -> None:
    while True:
        send({"method": "window/logMessage", "params": {"type": 3, "message": "x" * 1_000_000}})


def answer(method: str, params: dict) -> object:
    place = params.get("textDocument", {}).get("uri", "")
    word = ""
    if "position" in params:
        line = texts()[place].split("\n")[params["position"]["line"]]
        column = params["position"]["character"]
        word = re.match(r"\w*", line[column:])[0]
    match method:
        case "textDocument/diagnostic" if MODE == "pull":
            return {"kind": "full", "items": errors_of(place)}
        case "textDocument/definition":
            return [
                {"uri": uri, "range": span(line, column, len(word))}
                for uri, line, column in places(word)
                if texts()[uri].split("\n")[line].startswith(f"def {word}")
            ] + (
                [{"uri": "file:///usr/lib/toy/base.toy", "range": span(3, 0, 1)}]
                if MODE == "library"
                else []
            )
        case "textDocument/references":
            return [
                {"uri": uri, "range": span(line, column, len(word))}
                for uri, line, column in places(word)
            ]
        case "textDocument/documentSymbol":
            return [
                {"name": found[1], "kind": 12, "range": span(number, 0, 1), "selectionRange": span(number, 0, 1),
                 "children": [{"name": "inner", "kind": 13, "range": span(number, 0, 1)}]}
                for number, text in enumerate(documents[place].split("\n"))
                if (found := re.match(r"def (\w+)", text))
            ]  # fmt: skip
        case "workspace/symbol":
            return [
                {"name": name, "kind": 12, "location": {"uri": uri, "range": span(0, 0, 1)}}
                for uri, text in texts().items()
                for name in re.findall(r"^def (\w+)", text, re.MULTILINE)
                if params["query"] in name
            ]
        case "textDocument/rename":
            edits: dict[str, list] = {}
            for uri, number, column in places(word):
                edits.setdefault(uri, []).append(
                    {"range": span(number, column, len(word)), "newText": params["newName"]}
                )
            if MODE == "rename elsewhere":
                edits["file:///etc/hosts"] = [{"range": span(0, 0, 1), "newText": "evil"}]
            if MODE == "rename odd":
                edits[place].append({"range": span(4_000, 0, 1), "newText": "x"})
            if MODE == "rename files":
                return {"documentChanges": [{"kind": "delete", "uri": place}]}
            return {"changes": edits}
    raise LookupError(method)


def main() -> None:
    global root
    print("a server may print to stderr", file=sys.stderr, flush=True)
    if MODE == "garbage":
        for _ in range(2_000):
            sys.stdout.write("hello\r\n\r\n")
        sys.stdout.flush()
    if MODE == "huge":
        sys.stdout.write("Content-Length: 999999999999\r\n\r\n")
        sys.stdout.flush()
    while (message := receive()) is not None:
        method, number, params = (
            message.get("method"),
            message.get("id"),
            message.get("params") or {},
        )
        note(f"{method} {params.get('textDocument', {}).get('uri', '')}")
        if method == "initialize":
            root = path_of(params["rootUri"])
            if MODE == "mute":
                time.sleep(600)
            if MODE == "die":
                os._exit(5)
            send(
                {
                    "method": "window/logMessage",
                    "params": {"type": 3, "message": "the toy server starts"},
                }
            )
            capabilities = dict.fromkeys(
                (
                    "definitionProvider",
                    "referencesProvider",
                    "renameProvider",
                    "documentSymbolProvider",
                ),
                True,
            )
            if MODE in ("pull", "push and pull"):
                capabilities["diagnosticProvider"] = {"interFileDependencies": False}
            send(
                {
                    "id": number,
                    "result": {
                        "capabilities": capabilities,
                        "serverInfo": {"name": "toy", "version": "1.2"},
                    },
                }
            )
        elif method == "initialized":
            send(
                {
                    "id": "a",
                    "method": "workspace/configuration",
                    "params": {"items": [{"section": "toy"}]},
                }
            )
            watchers = {"registrations": [{"id": "1", "method": "workspace/didChangeWatchedFiles"}]}
            send({"id": "b", "method": "client/registerCapability", "params": watchers})
            send({"id": "c", "method": "toy/unknown", "params": None})
            if MODE == "flood":
                flood()
        elif method == "textDocument/didOpen":
            item = params["textDocument"]
            changed(item["uri"], item["text"], item["version"])
        elif method == "textDocument/didChange":
            item = params["textDocument"]
            changed(item["uri"], params["contentChanges"][0]["text"], item["version"])
        elif method == "textDocument/didClose":
            documents.pop(params["textDocument"]["uri"], None)
        elif method == "workspace/didChangeWatchedFiles":
            note(
                " ".join(
                    sorted(
                        f"{Path(change['uri']).name}:{change['type']}"
                        for change in params["changes"]
                    )
                )
            )
        elif method == "shutdown":
            send({"id": number, "result": None})
        elif method == "exit":
            break
        elif number is not None and method:
            try:
                send({"id": number, "result": answer(method, params)})
            except LookupError as error:
                send({"id": number, "error": {"code": -32601, "message": str(error)}})


if __name__ == "__main__":
    main()
