"""A preference, a changed decision and a correction: five sessions in terminals, on two machines."""

import json
import re
import subprocess

import pytest
from fakes.model_server import Request
from fakes.ouro_program import OuroProgram

PREFERENCE = "I prefer answers in one sentence."
OLD, NEW = "We use Redis for the job queue.", "RabbitMQ replaces Redis for the job queue."
RULE = "The basket must never be empty."
_IN_REQUEST = re.compile(r"^ +• (?:loaded · \d+ tokens · )?(.+?)(?: · says .*)? *$", re.MULTILINE)


def small_model(request: Request) -> str:
    """A small classifier that accepts every sentence; the answer of a turn is the number of its
    messages.
    """
    said = request.messages[-1]["content"]
    if said.startswith("The sentence: "):
        return json.dumps({"kind": "fact"})
    return (
        '{"relation": "other"}'
        if said.startswith("Old note: ")
        else f"Heard {len(request.messages)}."
    )


class Machine:
    """A home and a clone; each session has a terminal, and both memories are synchronized before
    and after it.
    """

    def __init__(self, server, root, monkeypatch) -> None:
        self.home, self.remotes, self.monkeypatch = root / "home", root.parent, monkeypatch
        monkeypatch.setenv("OURO_HOME", str(self.home))
        root.mkdir()
        subprocess.run(["git", "init", "--quiet", root / "shop"], check=True)
        self.program = OuroProgram(server, root / "shop")
        settings = "memory: {cadence_turns: 1}\nsessions: {titles: false, summaries: false}\n"
        (self.home / "config.yaml").write_text(settings)
        models = {
            "default": "openai/test-8b",
            "models": {"openai/test-8b": {"api_base": server.openai_url}},
        }
        models["models"]["openai/test-8b"] |= {"api_key": "none", "window": 100_000}
        (self.home / "models.yaml").write_text(json.dumps(models))

    def play(self, text: str, noticed: str = "Heard 2.") -> list[str]:
        """Run a session with this message until `noticed` is shown; returns the entries of its
        receipt.
        """
        self.monkeypatch.setenv("OURO_HOME", str(self.home))
        screen = self.program.start("--plain", size=(60, 120))
        screen.until_shows("›")
        self._sync(screen)
        screen.send(f"{text}\r")
        screen.until_shows("Heard 2.", noticed)
        screen.send("/memory receipt\r")
        screen.until(lambda: "\n›" in screen.text().partition("Recalled for the last message")[2])
        receipt = screen.text().partition("What memory put into the prompt")[2]
        self._sync(screen)
        screen.send("\x04")
        assert screen.end() == 0
        return _IN_REQUEST.findall(receipt)

    def _sync(self, screen) -> None:
        for scope in ("user", "repo"):
            done = screen.text().count(" synchronized")
            screen.send(f"/memory sync {scope} {self.remotes / scope}.git\r")
            screen.until(lambda done=done: screen.text().count(" synchronized") > done)


@pytest.fixture
def machines(model_server, tmp_path, monkeypatch):
    model_server.script(small_model)
    for scope in ("user", "repo"):
        subprocess.run(["git", "init", "--bare", "--quiet", tmp_path / f"{scope}.git"], check=True)
    two = [Machine(model_server, tmp_path / name, monkeypatch) for name in ("one", "two")]
    yield two
    for machine in two:
        machine.program.close()


def test_preference_decision_and_correction_on_two_machines(machines, model_server):
    one, two = machines
    assert one.play(PREFERENCE, f"Remembered (user): {PREFERENCE}") == []
    assert one.play(OLD, f"Remembered (repo): {OLD}") == [PREFERENCE]

    changed = two.play(
        f"We changed our mind: {NEW}", f"Remembered, replaced (repo): {NEW} (before: {OLD})"
    )
    assert set(changed) >= {f"user/preferences.md: + {PREFERENCE}", f"repo/facts.md: + {OLD}"}

    corrected = one.play(
        f"No, that is wrong: {RULE} Which job queue do we use?", f"Remembered (repo): {RULE}"
    )
    assert corrected == [
        PREFERENCE,
        OLD,
        f"repo/facts.md: + {NEW}",
    ]  # the prompt was built before the sync

    asked = two.play("Which job queue do we use, and may the basket be empty?")
    assert asked == [PREFERENCE, NEW, f"repo/facts.md: + {RULE}"]
    sent = next(
        request for request in reversed(model_server.requests) if request.tools
    ).raw.decode()
    assert all(text in sent for text in (PREFERENCE, RULE, NEW))
