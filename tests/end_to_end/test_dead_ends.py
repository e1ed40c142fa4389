"""A dead end in the terminal: undone with a reason, and met again in another session."""

import json


def write(text):
    return "call: write " + json.dumps({"path": "cache.py", "content": text})


def test_an_undone_change_is_met_again_in_another_session(ouro):
    screen = ouro.screen("--trust", "--mode", "auto")
    screen.say(write("cache = {}\n"))
    screen.until_shows("Done: 1 tool call")
    screen.until_gone("Esc interrupts")  # the answer is shown a moment before the turn ends
    screen.say("/undo files because der Login ging nicht mehr")
    screen.until_shows("Tried and undone", "der Login ging nicht mehr")
    assert not (ouro.folder / "cache.py").exists()
    screen.leave()

    again = ouro.screen("--mode", "auto")
    again.say(write("cache = {}\n"))
    again.until_shows("Done: 1 tool call")
    again.until_shows("1 memory · Ctrl+Y")
    assert "der Login ging nicht mehr" in json.dumps(ouro.server.requests[-1].messages)
    again.say("/memory why")
    again.until_shows("tried before, and undone")
    again.leave()
