"""An afternoon at the full screen in a real terminal: what one sees and changes."""

import subprocess
import sys

import pytest


def test_the_palette_runs_a_command_opens_a_page_and_names_a_file(ouro):
    terminal = ouro.screen()
    terminal.send("\x10")
    terminal.until_shows("Commands, keys, settings", "type to search")
    terminal.send("/status")
    terminal.until_shows("❯ /status")
    terminal.send("\r")
    terminal.until_shows("Model: openai/test-model")
    terminal.send("\x10")
    terminal.until_shows("type to search")
    terminal.send("headless page")
    terminal.until_shows("page of the documentation")
    terminal.send("\r")
    terminal.until_shows("Esc closes", "Headless")
    terminal.send("\x1b")
    terminal.until_gone("Esc closes")
    terminal.send("\x10")
    terminal.until_shows("type to search")
    terminal.send("api.py")
    terminal.until_shows("❯ api.py")
    terminal.send("\r")
    terminal.until_shows("❯ @api.py")


def test_config_with_a_word_opens_the_settings_with_that_search(ouro):
    terminal = ouro.screen()
    terminal.say("/config theme")
    terminal.until_shows("❯ tui.theme: auto", "theme")
    terminal.until_gone("permissions.mode")
    terminal.send("\r")
    terminal.until_shows("tui.theme (default: auto)", "2 dark")
    terminal.send("2")
    terminal.until_shows("tui.theme: dark")
    terminal.say("/config nosuchword")
    terminal.until_shows("No matches.")


def test_the_chip_of_an_unknown_note_says_so_before_sending(ouro):
    terminal = ouro.screen()
    terminal.send("see @note:mem_00000099 and @session:nosuch ")
    terminal.until_shows("✗ note:mem_00000099: ", "✗ session:nosuch: ")


def test_a_favorite_model_answers_after_one_key(ouro):
    terminal = ouro.screen()
    terminal.say("/model favorite")
    terminal.until_shows("Favorite models: openai/test-model")
    terminal.say("/model other")
    terminal.until_shows("Model: openai/other-model")
    terminal.say("/model favorite")
    terminal.until_shows("openai/test-model, openai/other-model")
    terminal.say("/model favorite sonnet")
    terminal.until_shows("openai/other-model, anthropic/claude-sonnet-4-5")
    terminal.say("/model favorite sonnet")
    both = "Favorite models: openai/test-model, openai/other-model."
    terminal.until(lambda: sum(both in shown for shown in terminal.lines()) == 2)
    terminal.send("\x1bOQ")  # F2
    terminal.until_shows("Model: openai/test-model")
    terminal.say("say: one")
    terminal.until_shows("  one")
    assert ouro.server.requests[-1].body["model"] == "test-model"


@pytest.mark.parametrize("arguments", [(), ("--plain",)])
def test_the_line_of_a_script_is_beside_the_mode_with_its_colours(ouro, arguments):
    script = ouro.home / "status.py"
    script.write_text(
        "import json, sys\nstate = json.load(sys.stdin)\n"
        "print('\\033[31mby\\033[0m', state['model']['display_name'], state['cost']['total_cost_usd'])\n"
    )
    command = f"{sys.executable} {script}"
    (ouro.home / "config.yaml").write_text(f"tui: {{status_command: '{command}', theme: dark}}\n")
    terminal = ouro.start(*arguments)
    terminal.until(lambda: terminal.lines()[-1].strip() == "ask · by test-model 0.0")
    of_word, of_mode = (terminal.screen.buffer[terminal.screen.lines - 1][x].fg for x in (7, 1))
    assert of_word not in (of_mode, "default")


def test_a_worktree_is_merged_at_the_end(ouro):
    terminal = ouro.screen("--worktree", "idea")
    terminal.until_shows("ouro/idea")
    terminal.say("!echo two > new.txt")
    terminal.until_shows("$ echo two")
    terminal.send("\x15\x03")
    terminal.until_shows("Ctrl+C again quits")
    terminal.send("\x03")
    terminal.until_shows("Worktree idea", "[m] merge it into main")
    terminal.send("m")
    assert terminal.end() == 0
    assert (ouro.folder / "new.txt").read_text() == "two\n"
    branches = subprocess.run(
        ["git", "branch", "--all"], cwd=ouro.folder, capture_output=True, text=True, check=True
    )
    assert "ouro/idea" not in branches.stdout


def test_enter_keeps_a_worktree_and_keys_before_the_question_answer_nothing(ouro):
    terminal = ouro.screen("--worktree", "idea")
    terminal.until_shows("ouro/idea")
    terminal.say("!echo two > new.txt")
    terminal.until_shows("$ echo two")
    terminal.send("\x15\x03")
    terminal.until_shows("Ctrl+C again quits")
    terminal.send("\x03make test")
    terminal.until_shows("Worktree idea", "[k] keep it (Enter)")
    terminal.send("x\r")
    terminal.until_shows("It stays in")
    assert terminal.end() == 0
    assert not (ouro.folder / "new.txt").exists()


def test_headless_keeps_a_changed_worktree_and_says_where(ouro):
    done = ouro.headless(
        "--worktree", "idea", "--mode", "auto", "-p", "say: done", "--output", "text"
    )
    assert done.code == 0
    assert "had no changes: it is removed" in done.err
    assert done.out.strip() == "done"


def test_usage_by_day_has_bars(ouro):
    terminal = ouro.screen()
    terminal.say("say: one")
    terminal.until_shows("  one")
    terminal.say("/usage --by model")
    terminal.until_shows("openai/test-model", "█", "Bars: ")


def test_no_line_of_usage_is_broken_on_a_narrow_screen(ouro):
    terminal = ouro.screen(size=(24, 40))
    terminal.say("say: a pear")
    terminal.until_shows("  a pear")
    terminal.say("/usage --by model")
    terminal.until_shows("Model", "openai/test-model", "█ cost unknown ·", "1 call · ", "Bars: ")
    terminal.say("/usage")
    terminal.until_shows("This session", "openai/test-model", "cost unknown")


def test_safe_mode_says_what_it_leaves_out(ouro):
    (ouro.home / "AGENTS.md").write_text("Answer in Welsh.\n")
    done = ouro.headless("--safe", "-p", "say: done")
    assert "Safe mode" in done.err
    system = ouro.server.requests[-1].messages[0]["content"]
    assert "Welsh" not in str(system)


def test_a_line_of_the_user_goes_to_the_background_by_a_key(ouro):
    terminal = ouro.screen()
    terminal.say("!read x; echo got $x")
    terminal.until_shows("read x; echo got $x ·", "1 job")
    terminal.send("\x02")  # Ctrl+B
    terminal.until_shows("moved to job_1")
    terminal.say("say: meanwhile")
    terminal.until_shows("  meanwhile")
    assert "The user moved it to the background: it goes on as job_1" in str(
        ouro.server.requests[-1].body
    )
    terminal.send("\x1b[19~")  # F8 still types into it
    terminal.until_shows("Ctrl+] returns")
    terminal.send("letters\r")
    terminal.until_shows("job_1 ended")
    terminal.until(lambda: "got letters" in ouro.server.requests[-1].prompt)


def test_a_line_that_the_agent_does_not_see_wakes_nobody(ouro):
    terminal = ouro.screen()
    terminal.say("!!read x; echo got $x")
    terminal.until_shows("read x; echo got $x ·", "1 job")
    terminal.send("\x02")
    terminal.until_shows("moved to job_1")
    terminal.send("\x1b[19~")
    terminal.until_shows("Ctrl+] returns")
    terminal.send("letters\r")
    terminal.until_gone("Ctrl+] returns")
    terminal.until_gone("1 job")
    terminal.say("say: one")
    terminal.until_shows("  one")
    assert len(ouro.server.requests) == 1
    assert "letters" not in str(ouro.server.requests[0].body)
