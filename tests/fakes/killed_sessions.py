"""Real sessions that are killed at random moments, and checks of what is left.

As a program, from tests/: `python -m fakes.killed_sessions --kills 1000` prints the losses (none)
and how often each kind of moment was hit. The sessions are real, with turns, tool calls, titles and
compactions. The records that a session acknowledged are compared with those that the next start
loads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fakes.waiting import wait
from ouro.llm import ScriptedReply
from ouro.memory.backend import CompactionRecord, MessageRecord
from ouro.memory.manager import MemoryManager
from ouro.memory.short_term import make_sendable
from ouro.memory.transcript import Transcript
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, ToolCall, ToolReply

LONG = "a line of output\n" * 1500


async def live(folder: Path, session_id: str, seed: int) -> None:
    """Run turns in a session forever, and print each event on standard output."""
    from ouro.assemble import Options, open_session
    from ouro.events import Prompted, Replied, ToolFinished, TurnFinished
    from ouro.llm import ScriptedModel
    from ouro.session import OpenRequest

    (folder / "long.txt").write_text(LONG)
    model = ScriptedModel(_script(random.Random(seed)))
    options = Options(
        folder, {"permissions.mode": "auto"}, ready_model=model, memory=False, trust=True
    )
    session = await open_session(options, OpenRequest(resume=session_id))
    _print_event("open", session.id)
    number = 0
    while True:
        number += 1
        text = f"prompt {seed}-{number}"
        async for event in session.send(text):
            match event:
                case Prompted(said):
                    _print_event("message", said)
                case Replied(message):
                    _print_event("message", message.text)
                case ToolFinished(call_id):
                    _print_event("tool", call_id)
                case TurnFinished():
                    _print_event("turn", str(number))
        if number % 3 == 0:
            await _compact(session.memory)


async def _compact(memory: MemoryManager) -> None:
    entries = memory.transcript.entries
    kept = tuple(each.number for each in entries if each.message.role == "user")[-3:]
    covers = (1, entries[-2].number)
    await memory.record(
        CompactionRecord(
            memory.next_number, memory.now(), covers, kept, f"up to {covers[1]}\n---\n"
        )
    )
    _print_event("compaction", str(covers[1]))


def _script(rng: random.Random) -> Iterator[ScriptedReply]:
    number = 0
    while True:
        number += 1
        name = f"{rng.getrandbits(40):x}"
        if rng.random() < 0.5:
            call = ToolCall(f"call_{name}", "read", {"path": "long.txt"})
            yield ScriptedReply(f"reading {name}", (call,), thinking=f"hm {name}", signature="s")
        else:
            yield ScriptedReply(
                f"answer {name}\n" + "\n".join(["...", "---", "  x", ""] * rng.randint(0, 40))
            )


def _print_event(kind: str, what: str) -> None:
    sys.stdout.write(json.dumps([kind, what]) + "\n")
    sys.stdout.flush()


@dataclass
class Killed:
    """The result of many kills."""

    kills: int = 0
    sessions: int = 0
    records: int = 0
    """Acknowledged records."""
    lost: list[str] = field(default_factory=list)
    """Acknowledged, and not loaded."""
    unopened: list[str] = field(default_factory=list)
    """Sessions that did not open, with the reason."""
    moments: Counter[str] = field(default_factory=Counter)
    """The last event before each kill; `torn` if a record was cut."""


def kill_sessions(root: Path, kills: int, seed: int = 0, kills_each: int = 12) -> Killed:
    """Kill real sessions, each `kills_each` times, and check what is left each time."""
    found, rng = Killed(), random.Random(seed)
    while found.kills < kills:
        home = root / f"home-{found.sessions}"
        work = home / "work"
        work.mkdir(parents=True)
        found.sessions += 1
        session_id, told = "", list[str]()
        for _ in range(min(kills_each, kills - found.kills)):
            lines = _run_and_kill(home, session_id, rng)
            found.kills += 1
            told += [what for kind, what in lines if kind == "message"]
            if told and not session_id:
                session_id = next(what for kind, what in lines if kind == "open")
            found.moments[lines[-1][0] if lines else "start"] += 1
            if session_id and not _check(home / "ouro" / "sessions", session_id, told, found):
                break
        found.records += len(told)
    return found


def _run_and_kill(home: Path, session_id: str, rng: random.Random) -> list[tuple[str, str]]:
    environment = {**os.environ, "HOME": str(home), "OURO_HOME": str(home / "ouro")}
    command = [
        sys.executable,
        "-m",
        "fakes.killed_sessions",
        "--live",
        str(home / "work"),
        session_id,
    ]
    command.append(str(rng.getrandbits(30)))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1], env=environment
    ) as process:
        assert process.stdout is not None
        first = b"".join(process.stdout.readline() for _ in range(rng.randint(1, 12)))
        # A random time, so that the kill hits a random moment of the session's work.
        time.sleep(rng.random() * 0.03)
        process.kill()
        rest = process.stdout.read()
        assert process.wait() == -9, "it ended before the kill"
    lines = [line for line in (first + rest).split(b"\n")[:-1] if line]
    return [tuple(json.loads(line)) for line in lines]


def _check(sessions: Path, session_id: str, told: Sequence[str], found: Killed) -> bool:
    """Whether the session opens; records losses in `found`."""
    store = YamlFileMemoryStore(sessions)
    try:
        loaded = wait(store.load_session(session_id))
        wait(store.close_session(session_id))
        whole = [each.message for each in loaded.records if isinstance(each, MessageRecord)]
        part = Transcript.of(wait(store.load_session(session_id, read_only=True, reach="context")))
    except Exception as error:
        found.unopened.append(f"{session_id}: {error!r}")
        return False
    found.moments["torn"] += any("cut off" in notice for notice in loaded.notices)
    texts = iter(message.text for message in whole)
    found.lost += [text for text in told if text not in texts]  # in this order
    if part.sent() != Transcript.of(loaded).sent() or not _is_sendable(make_sendable(part.sent())):
        found.unopened.append(f"{session_id}: what is sent differs")
    if list(sessions.glob("2*/.*")) or any("cannot be read" in notice for notice in loaded.notices):
        found.unopened.append(f"{session_id}: {loaded.notices}")
    return True


def _is_sendable(messages: Sequence[Message]) -> bool:
    for place, message in enumerate(messages):
        answers = [
            reply.call_id
            for each in messages[place + 1 : place + 2]
            for reply in each.parts_of(ToolReply)
        ]
        if message.tool_calls and [call.id for call in message.tool_calls] != answers:
            return False
    return True


def main() -> None:
    """Run a session, or kill sessions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--live", nargs=3)
    args = parser.parse_args()
    if args.live:
        asyncio.run(live(Path(args.live[0]), args.live[1], int(args.live[2])))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = kill_sessions(Path(folder), args.kills, args.seed)
    print(
        f"{found.kills} kills of {found.sessions} sessions; {found.records} messages acknowledged,"
        f" {len(found.lost)} lost; {len(found.unopened)} sessions that did not open."
        f" Killed after: {dict(found.moments)}"
    )
    for line in (*found.lost[:5], *found.unopened[:5]):
        print(line)


if __name__ == "__main__":
    main()
