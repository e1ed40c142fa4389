"""An idle ouro sleeps: no thread wakes up without a reason."""

import time
from pathlib import Path

QUIET = 3.0
"""Seconds that are watched; a thread that looks every 0.1 s wakes 30 times meanwhile."""
MAX_WAKES = 3
"""Of all threads, without a job and a turn; a timer of one second has as many."""
ROUNDS = 8


def wakes(process: int) -> dict[str, int]:
    """How often each thread of a process has begun to wait, by its name and id."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        status = (task / "status").read_text()
        values = dict(line.split(":", 1) for line in status.splitlines())
        found[f"{values['Name'].strip()} {task.name}"] = int(values["voluntary_ctxt_switches"])
    return found


def fewest_wakes(process: int) -> int:
    """The wakes in the quietest of a few moments: the work after the start takes a while."""
    counts = []
    while len(counts) < ROUNDS and min(counts, default=MAX_WAKES + 1) > MAX_WAKES:
        before = wakes(process)
        time.sleep(QUIET)
        after = wakes(process)
        counts.append(sum(count - before.get(name, 0) for name, count in after.items()))
    return min(counts)


def test_an_idle_program_does_not_wake_up(ouro):
    terminal = ouro.start()
    terminal.until_shows("test-model")
    terminal.say("say: hello")
    terminal.until_shows("  hello")
    assert fewest_wakes(terminal.pid) <= MAX_WAKES


def test_a_lone_escape_is_a_key_although_nothing_follows(ouro):
    terminal = ouro.start()
    terminal.until_shows("test-model")
    terminal.say("/vim")
    terminal.until_shows("INSERT")
    terminal.send("\x1b")
    terminal.until_shows("NORMAL")
