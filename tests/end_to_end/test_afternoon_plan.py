"""An afternoon at the full screen in a real terminal: a plan, and a goal."""

from fakes.model_server import Call

PLAN = "# Plan: Greet louder\n\n1. Change the greeting\n2. Say so"


def edit(old, new):
    return Call("edit", {"path": "api.py", "edits": [{"old_text": old, "new_text": new}]})


def test_a_plan_is_commented_on_then_carried_out_with_edits(ouro):
    ouro.server.script(
        [
            PLAN,
            PLAN.replace("louder", "politely"),
            Call("read", {"path": "api.py"}),
            edit("'hello '", "'Good day, '"),
            "It greets politely.",
        ]
    )
    terminal = ouro.screen("--mode", "plan")
    terminal.say("greet louder")
    terminal.until_shows("Greet louder", "edits need no question")
    terminal.press("5", lambda: terminal.shows("Enter sends"))
    terminal.send("\x15politely, please\r")
    terminal.until_shows("Greet politely", "edits need no question")
    assert "politely, please" in ouro.server.requests[1].prompt
    terminal.press("2", lambda: not terminal.shows("edits need no question"))
    terminal.until_shows("It greets politely.")
    assert "'Good day, '" in (ouro.folder / "api.py").read_text()
    [plan] = (ouro.folder / ".ouro" / "plans").glob("*.md")
    assert "Change the greeting" in plan.read_text()


def test_a_goal_is_in_the_status_line_until_it_is_reached(ouro):
    ouro.server.script(
        ["Not yet.", Call("shell", {"command": "touch made"}), "Made.", "After the goal."]
    )
    terminal = ouro.screen("--mode", "auto", "--no-sandbox")
    terminal.say("/goal !ls made")
    terminal.until_shows("Made.")
    terminal.until(lambda: not terminal.lines()[-1].count("goal"))
    terminal.say("hello")
    terminal.until_shows("After the goal.")
    assert (ouro.folder / "made").exists()
