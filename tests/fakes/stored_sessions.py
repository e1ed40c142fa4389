"""Sessions and a note on disk, growing record by record or left some time ago, and whole sessions to
export: one with everything in it, and a hostile one.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fakes.waiting import wait
from ouro.display import CommandOutput, Diff, Display, FileChange, Picture, Plain, Todo, Todos
from ouro.memory.backend import (
    CompactionRecord,
    CostRecord,
    ForkRecord,
    MessageRecord,
    ModelRecord,
    PinRecord,
    RecalledItem,
    RecalledRecord,
    RewindRecord,
    SessionHeader,
    TitleRecord,
    WholeSession,
)
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import (
    Context,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Usage,
    assistant,
    tool,
    user,
)
from ouro.utils.ouro_paths import get_sessions_dir

AT = "2026-11-21T20:14:03.120Z"
NOTE = """---
id: mem_{id}
created_at: 2026-11-20T10:00:00Z
scope: user
category: coding-preferences
supersedes: mem_00000000
related:
  - {{id: mem_77777777, relationship: refines}}
session_id: s
turn: 2
confidence: 0.9
entities: [file:api.py, pkg:flask]
relations: [{{from: file:api.py, rel: uses, to: pkg:flask}}]
---
{text}
"""


def session_id(number: int) -> str:
    return f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f"


class StoredSession:
    """A session that grows record by record."""

    def __init__(self, root, number: int = 1, project: str = "/p") -> None:
        self.id = session_id(number)
        self._store = YamlFileMemoryStore(root)
        self._numbers = itertools.count(1)
        wait(self._store.create_session(SessionHeader(self.id, project, "m", AT)))

    def say(self, *messages: Message) -> None:
        for message in messages:
            wait(self._store.save_message(self.id, MessageRecord(next(self._numbers), AT, message)))

    def change(self, record) -> None:
        wait(self._store.save_memory(self.id, record))

    def end(self) -> None:
        wait(self._store.close_session(self.id))


def old_session(
    project: Path,
    number: int,
    days: float,
    *messages: Message,
    records=(),
    memory=True,
    private=(),
    **header,
) -> str:
    """Store a session in the user's store that was last used `days` ago, and return its id.

    Args:
        private: the numbers of messages that were sent with memory off.
    """
    store = YamlFileMemoryStore(get_sessions_dir())
    at = (
        (datetime.now(UTC) - timedelta(days=days))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    known = {"user": "4be1c0d"} if memory else {}
    found = session_id(number)
    wait(store.create_session(SessionHeader(found, str(project), "m", at, memory=known, **header)))
    for place, message in enumerate(messages, 1):
        wait(store.save_message(found, MessageRecord(place, at, message, place in private)))
    for record in (TitleRecord(f"Session {number}", at), *records):
        wait(store.save_memory(found, record))
    wait(store.close_session(found))
    return found


def records_of(session: str, kind: type) -> list:
    loaded = wait(YamlFileMemoryStore(get_sessions_dir()).load_session(session, read_only=True))
    return [record for record in loaded.records if isinstance(record, kind)]


ID = "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f"
PNG = b"\x89PNG\r\n\x1a\n"


def at(second: int) -> str:
    return f"2026-11-21T20:14:{second:02}.000Z"


def whole(*records) -> WholeSession:
    header = SessionHeader(ID, "/home/me/app", "a/one", at(0))
    return WholeSession(header, lambda: iter(records))


def everything() -> WholeSession:
    reading, running = (
        ToolCall("1", "read", {"path": "api.py"}),
        ToolCall("2", "shell", {"command": "pytest"}),
    )
    editing, planning = ToolCall("3", "edit", {"path": "api.py"}), ToolCall("4", "todo", {})
    unanswered = ToolCall("5", "shell", {"command": "sleep 9"})
    messages = [
        user("Mend *it*\n\n- now", [Image("image/png", PNG, "shot.png")], "Today is Saturday."),
        Message(
            "assistant",
            (Thinking("Hm.", "seal"), Text("Looking."), reading, running),
            Usage(10, 4, 0, 5, 0.25),
            "a/one",
        ),
        tool(
            ToolReply(
                "1",
                "read",
                "import os\n",
                display=Display("1 line", Plain("import os\n", "python")),
            ),
            ToolReply(
                "2",
                "shell",
                "bad",
                True,
                display=Display("exit 1", CommandOutput("pytest", "bad", 1)),
            ),
        ),
        Message("assistant", (editing, planning, unanswered)),
        tool(
            ToolReply(
                "3",
                "edit",
                "ok",
                display=Display("+1 -1", Diff((FileChange("api.py", "a\n", "b\n"),))),
            ),
            ToolReply("4", "todo", "ok", display=Display("1 todo", Todos((Todo("Test", "done"),)))),
        ),
        user("No, like this"),
        Message("assistant", (Text("So?"),), cut=True),
        user("Like that"),
        assistant("Done: `b`."),
    ]
    said = [
        MessageRecord(number, at(number), message) for number, message in enumerate(messages, 1)
    ]
    return whole(
        *said[:7],
        RewindRecord(5, at(8)),
        ModelRecord("a/two", at(8)),
        *said[7:],
        RecalledRecord(
            8,
            at(9),
            (RecalledItem("mem_1", "loaded", "words"), RecalledItem("mem_2", "cut", "room")),
        ),
        CostRecord("title", at(9), "a/small", Usage(7, 0, 0, 3)),
        TitleRecord("A *title*", at(10)),
        PinRecord(1, at(10)),
        CompactionRecord(10, at(11), (1, 9), (1,), "They mended it.\n", tokens=(900, 100)),
        MessageRecord(11, at(12), user("Thanks")),
    )


HOSTILE = (
    "</pre></details><script>alert(1)</script>\n<img src=x onerror=alert(2)>"
    " ![p](http://evil.example/p.png) [l](javascript:alert(3))"
    " [d](data:text/html,x)\n````\n```\n~~~\n\x1b]0;title\x07\x1b[31m\u202egnp.exe\u2066\U000e0041\n<!--"
    " <style>*{display:none}</style> <a href='\" onclick=alert(4)'>\n## You\n"
)


def hostile() -> WholeSession:
    reply = ToolReply(
        "1", HOSTILE, HOSTILE, True,
        (Image("image/svg+xml", b"<svg onload=alert(5)>", HOSTILE), Image("image/png\" onload=\"x", PNG, HOSTILE)),
        Display(HOSTILE, CommandOutput(HOSTILE, HOSTILE, 1)),
    )  # fmt: skip
    call = ToolCall("1", HOSTILE, {HOSTILE: HOSTILE})
    parts = (Context(HOSTILE), Text(HOSTILE), Image("image/png", PNG, HOSTILE))
    records = [
        MessageRecord(1, at(1), Message("user", parts)),
        MessageRecord(
            2,
            HOSTILE,
            Message("assistant", (Thinking(HOSTILE), Text(HOSTILE), call), model=HOSTILE),
        ),
        MessageRecord(3, at(3), tool(reply)),
        MessageRecord(
            4, at(4), tool(ToolReply("2", "x", "y", display=Display("z", Plain(HOSTILE, HOSTILE))))
        ),
        MessageRecord(
            5, at(5), tool(ToolReply("3", "x", "y", display=Display("z", Plain(HOSTILE, "diff"))))
        ),
        MessageRecord(
            6, at(6), tool(ToolReply("4", "x", "y", display=Display("z", Todos((Todo(HOSTILE),)))))
        ),
        MessageRecord(
            7,
            at(7),
            tool(ToolReply("5", "x", "y", display=Display("z", Picture(HOSTILE, HOSTILE, 3)))),
        ),
        CompactionRecord(8, at(8), (1, 7), (), HOSTILE),
        ModelRecord(HOSTILE, at(9)),
        ForkRecord(HOSTILE, 3, at(9)),
        MessageRecord(9, at(9), user(HOSTILE)),
        MessageRecord(10, at(9), Message("assistant", (Text(f'```"><script>\n{HOSTILE}'),))),
        TitleRecord(HOSTILE, at(10)),
        MessageRecord(11, at(11), user("the end")),
    ]
    header = SessionHeader(HOSTILE, HOSTILE, HOSTILE, HOSTILE, origin={"from": HOSTILE})
    return WholeSession(header, lambda: iter(records))
