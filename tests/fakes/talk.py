"""`ouro -p` in JSON lines, as a program that stays open."""

from __future__ import annotations

import json
import subprocess

from fakes.ouro_program import OuroProgram


class Talk:
    """One session; `say` waits for the end of the turn."""

    def __init__(self, ouro: OuroProgram, *arguments: str) -> None:
        self.process = ouro.begin(
            "-p", "--input", "stream-json", "--output", "stream-json", *arguments, stdin=subprocess.PIPE, text=True
        )

    def say(self, text: str) -> dict[str, str]:
        """What recall found for it, by id and state."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"type": "user", "text": text}) + "\n")
        self.process.stdin.flush()
        events = []
        for line in self.process.stdout:
            events.append(json.loads(line))
            if events[-1]["type"] == "result":
                break
        kinds = [event["type"] for event in events]
        found = [event for event in events if event["type"] == "notes_recalled"]
        if found:
            assert kinds[kinds.index("prompted") + 1] == "notes_recalled"
        return {item["id"]: item["state"] for event in found for item in event["items"]}

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0
