"""A slow, failing or nonsensical classifier: the user sees no sign of it, and the next good answer
catches up.
"""

import threading

import pytest
from fakes.classifier import TwoVoices
from fakes.model_server import Reply, failure

from ouro.utils.ouro_paths import get_log_path

GOOD = """\
Sure! Here is what I would keep:
```json
[
  // what the user said
  {"Op": "ADD", "Text": "Runs the tests with tox.", "Category": "Project Conventions", "Said_By": "User",},
]
```
Let me know if you need anything else."""


@pytest.fixture
def release():
    """An event that is set at the end of the test: a slow classifier waits for it."""
    release = threading.Event()
    yield release
    release.set()


@pytest.fixture
def voices(ouro):
    (ouro.home / "config.yaml").write_text("memory: {cadence_turns: 1}\n")
    voices = TwoVoices(talk=lambda _request: "Understood.")
    ouro.server.script(voices)
    return voices


def shows_no_classifier(screen):
    """Whether the screen shows nothing about a classifier."""
    return not any(map(screen.shows, ("Remembered", "lassifier", "teapot", "Error")))


def test_bad_capture_model_delays_nothing_and_capture_catches_up(ouro, voices, release):
    said = [
        f"{place}, run the tests with tox and not with pytest"
        for place in ("first", "second", "third", "fourth")
    ]
    voices.answer = Reply("[]", hold=release, after=0)
    screen = ouro.screen()
    screen.say(said[0])
    screen.until(lambda: len(voices.asked) == 1)  # it waits for `release` from now on
    screen.say(said[1])
    screen.until(lambda: screen.text().count("Understood.") == 2)
    assert shows_no_classifier(screen)
    assert screen.leave() == 0

    screen = ouro.screen()
    screen.say(said[2])
    screen.until(lambda: len(voices.asked) == 2)  # the request for the turn that was not captured
    screen.until_shows("Understood.")
    assert screen.leave() == 0
    log = get_log_path().read_text() if get_log_path().exists() else ""
    assert ("capture:" in log, "did not close" in log) == (False, False)

    voices.answer = lambda asked: (
        failure(400, "it is down") if "fourth" in asked else "I am a teapot, short and stout."
    )
    screen = ouro.screen()
    screen.say(said[3])
    screen.until(lambda: get_log_path().read_text().count("capture:") == 2)
    assert shows_no_classifier(screen)
    assert screen.leave() == 0

    before, voices.answer = len(voices.asked), GOOD
    screen = ouro.screen()
    screen.say("good morning")
    screen.until_shows("Remembered (repo): Runs the tests with tox. · /memory undo ")
    screen.until(
        lambda: all(any(words in asked for asked in voices.asked[before:]) for words in said)
    )
    assert screen.leave() == 0
