"""`ouro -p` in JSON lines, as a program that stays open."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from fakes.ouro_program import OuroProgram


class Talk:
    """One session; `say` sends a message and waits for the end of the turn."""

    def __init__(self, ouro: OuroProgram, *arguments: str) -> None:
        self.process = ouro.begin(
            "-p",
            "--input",
            "stream-json",
            "--output",
            "stream-json",
            *arguments,
            stdin=subprocess.PIPE,
            text=True,
        )

    def send(self, text: str) -> None:
        """Send a message without waiting."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"type": "user", "text": text}) + "\n")
        self.process.stdin.flush()

    def until(self, kind: str) -> list[dict[str, Any]]:
        """The events up to the first one of that kind."""
        assert self.process.stdout is not None
        events = []
        for line in self.process.stdout:
            events.append(json.loads(line))
            if events[-1]["type"] == kind:
                return events
        raise AssertionError(f"no {kind} in {[event['type'] for event in events]}")

    def say(self, text: str) -> dict[str, str]:
        """Send a message; returns what recall found for it, by id and state."""
        self.send(text)
        events = self.until("result")
        kinds = [event["type"] for event in events]
        found = [event for event in events if event["type"] == "notes_recalled"]
        if found:
            assert kinds[kinds.index("prompted") + 1] == "notes_recalled"
        return {item["id"]: item["state"] for event in found for item in event["items"]}

    def end(self) -> None:
        """Close the input, and wait for exit code 0."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(20) == 0
