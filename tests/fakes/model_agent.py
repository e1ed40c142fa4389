"""Models without a script: one that echoes, one that follows the lines of a prompt."""

from __future__ import annotations

import itertools
import re

from fakes.model_script import Call, Reply, Request, Step, failure, results_in, user_text


def echo(request: Request) -> Step:
    """Repeat the prompt."""
    return Reply(f"You said: {request.prompt}")


_ORDER = re.compile(
    r"^\s*(run|read|glob|grep|write|edit|call|think|say|markdown|fail|repeat)\b:? ?(.*)$",
    re.IGNORECASE,
)


def agent(request: Request) -> Step:
    """Follow the lines of the prompt, one model call for each, then answer.

    `run: pytest -q` · `read: api.py` · `glob: *.py` · `grep: word` · `call: TOOL {json}` · `think:
    words` · `say: words` · `markdown: 20000` (bytes) · `repeat: 20 true` (shell calls) · `fail:
    500`. Other lines are ignored, also those that ouro adds to the conversation. Several `run`,
    `read` … on one line, separated by ` & `, are called in parallel.
    """
    messages = request.messages
    ordered = [place for place, message in enumerate(messages) if _orders_of(user_text(message))]
    if not ordered:
        return echo(request)
    orders = _orders_of(user_text(messages[ordered[-1]]))
    since = messages[ordered[-1] + 1 :]
    done = sum(message["role"] == "assistant" for message in since)
    if done > len(orders):
        return echo(request)
    if done == len(orders):
        return Reply(_closing([result for message in since for result in results_in(message)]))
    return _obey(orders[done])


def _obey(order: list[tuple[str, str]]) -> Step:
    calls: list[Call] = []
    thinking = ""
    for name, rest in order:
        match name:
            case "fail":
                return failure(int(rest or 500), "as you asked")
            case "say":
                return Reply(rest, thinking=thinking)
            case "markdown":
                return Reply(markdown(int(rest or 20_000)), thinking=thinking)
            case "think":
                thinking = rest
            case _:
                calls.append(_order(name, rest))
    return Reply("" if calls else "I have thought.", calls=calls, thinking=thinking)


def _orders_of(prompt: str) -> list[list[tuple[str, str]]]:
    return [order for line in prompt.splitlines() for order in _orders(line)]


def _orders(line: str) -> list[list[tuple[str, str]]]:
    found = [
        (match[1].lower(), match[2].strip())
        for part in line.split(" & ")
        if (match := _ORDER.match(part))
    ]
    if found and found[0][0] == "repeat":
        count, _, command = found[0][1].partition(" ")
        # A different call each time: ouro would treat equal calls as a loop.
        return [[("run", f"{command or 'true'} # {n + 1}")] for n in range(int(count))]
    return [found] if found else []


def _order(name: str, rest: str) -> Call:
    if name == "call":
        tool, _, arguments = rest.partition(" ")
        return Call(tool, arguments or "{}")
    field_of = {
        "run": ("shell", "command"),
        "read": ("read", "path"),
        "glob": ("glob", "pattern"),
        "grep": ("grep", "pattern"),
    }
    if name in field_of:
        tool, argument = field_of[name]
        return Call(tool, {argument: rest})
    return Call(name, rest)


def _closing(results: list[str]) -> str:
    if not results:
        return "Done."
    last = results[-1].strip().splitlines() or ["nothing"]
    count = f"{len(results)} tool call{'s' * (len(results) != 1)}"
    return f"Done: {count}. The last one said:\n\n```\n{chr(10).join(last[:8])}\n```\n"


def markdown(size: int) -> str:
    """`size` characters of Markdown with everything in it: headings, lists, tables, code, links."""
    parts: list[str] = []
    length = 0
    for number in itertools.count(1):
        part = _SECTION.replace("N", str(number))
        parts.append(part)
        length += len(part)
        if length >= size:
            return "".join(parts)[:size]
    raise AssertionError


_SECTION = """## Part N: how the cache is filled

The *first* request reads from disk; **every later one** is answered from `Cache.get`. See [the notes](https://example.invalid/N).

- open the file and read its head
- compare `stamp` with what was kept
  - equal: nothing to do
  - not equal: read it again

```python
def fill(cache: Cache, path: Path) -> bytes:
    stamp = path.stat().st_mtime_ns
    if cache.stamp(path) != stamp:
        cache.put(path, path.read_bytes(), stamp)
    return cache.get(path)
```

| step | time | note |
|---|---:|---|
| open | 0.N ms | once |
| read | 1.N ms | once a change |

> A cache that lies is worse than none.

"""
