"""Flags, and the end of the process: exit handlers run and output is written, without Python's
module clean-up.
"""

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ouro import command_line
from ouro.cli import main
from ouro.command_line import PICK, read_flags

PROGRAM = """
import atexit, sys
from ouro import cli

class Global:
    def __del__(self):
        print("taken apart")

def main():
    atexit.register(print, "handler")
    print("said")
    if sys.argv[1] == "failed":
        raise ValueError("a defect")
    return int(sys.argv[1])

kept, cli.main = Global(), main
sys.exit(cli.run())
"""


def run(code, stdout=subprocess.PIPE):
    command = [sys.executable, "-c", PROGRAM, code]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_the_process_ends_with_its_code_after_its_exit_handlers():
    done = run("4")
    assert (done.returncode, done.stdout, done.stderr) == (4, "said\nhandler\n", "")


def test_uncaught_exception_and_failed_flush_are_reported():
    done = run("failed")
    assert done.returncode == 1
    assert "ValueError: a defect" in done.stderr
    with Path("/dev/full").open("w") as full:
        done = run("0", full)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("line", ["usage", "config --json"])
def test_unwritable_stdout_is_an_error(line, home):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "ouro", *line.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "ouro: No space left on device."
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(closed, home):
    line = f"{shlex.quote(sys.executable)} -m ouro config --json {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_error_of_an_unknown_flag_has_the_usage_of_its_action(capsys):
    with pytest.raises(SystemExit):
        main(["sessions", "clean", "--dayz"])
    assert capsys.readouterr().err.startswith("usage: ouro sessions clean [-h] [--days N]")


@pytest.mark.parametrize("line", ["acp", "completion bash", "mcp serve"])
def test_an_action_without_json_refuses_the_flag(line, capsys):
    with pytest.raises(SystemExit):
        main([*line.split(), "--json"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --json\n")


def test_group_without_an_action_lists_its_actions(capsys):
    assert main(["memory"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "usage: ouro memory ACTION ..."
    assert "  forget       Stop using the matching entries, after a preview" in lines
    assert len(lines) == len(dict.fromkeys(lines)) + lines.count("") - 1 <= 50, (
        "nothing is there twice"
    )


def test_mistyped_word_error_has_two_lines_with_a_suggestion(capsys):
    assert main(["memory", "lst"]) == 2
    message, hint = capsys.readouterr().err.splitlines()
    assert message == "ouro: `ouro memory` has no action `lst`."
    assert hint.startswith("There are: files, list, show, ")


@pytest.mark.parametrize(
    ("line", "message", "near"),
    [
        (["sesions", "list"], "sesions list", "sessions"),
        (["sesions"], "sesions", "sessions"),
        (["sesions list"], "sesions list", "sessions list"),
        (["sessions list"], "sessions list", "sessions list"),
        (["sesions", "--plain"], "sesions", "sessions"),
        (["sesions", "--model", "sonnet"], "sesions", "sessions"),
        (["resume"], "resume", "--resume"),
        (["resume", "last"], "resume last", "--resume last"),
        (["login"], "login", "models --setup"),
        (["auth", "login"], "auth login", "models --setup"),
        (["export", "latest"], "export latest", "sessions export latest"),
        (["version"], "version", "--version"),
        (["exec", "fix it"], "exec fix it", "-p fix it"),
    ],
)
def test_misspelt_command_is_no_message(line, message, near, capsys):
    assert main(line) == 2
    problem, hint = capsys.readouterr().err.splitlines()
    assert problem == f"ouro: There is no command `{line[0]}`. Did you mean `ouro {near}`?"
    assert hint == f'To send it as a message: ouro -- "{message}"'


def test_update_is_no_message_but_says_how(capsys):
    assert main(["update"]) == 2
    assert capsys.readouterr().err == (
        "ouro: There is no command `ouro update`.\nUpdate ouro as it was installed, for example with"
        " `pipx upgrade ouro` or `uv tool upgrade ouro`.\n"
    )
    assert read_flags(["update the docs"]).message == "update the docs"


@pytest.mark.parametrize(
    "message",
    [
        "memory leak in api.py", "model the domain", "session list is slow", "hook it up", "continue", "commit",
        "hello", "help me", "complete", "compile", "fix", "test", "review", "models?", "map", "hi",
    ],
)  # fmt: skip
def test_first_message_that_looks_like_a_command_stays_a_message(message):
    assert read_flags([message]).message == read_flags(["--", message]).message == message
    assert read_flags(["--", "sesions"]).message == "sesions"


def test_action_alias_is_listed_once(capsys):
    main(["memory"])
    assert "as-of" not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["memory", "as-of", "--help"])
    assert "memory at yesterday show facts" in capsys.readouterr().out


def test_flags_parsed_without_argparse_equal_those_with_argparse():
    assert vars(read_flags(["--plain"])) == {**vars(read_flags()), "plain": True}
    assert read_flags(["--allow", "a", "--allow", "b"]).allow == ["a", "b"]
    assert read_flags().allow == read_flags(["hi"]).allow == []
    assert read_flags(["--resume", ""]).resume == read_flags(["--resume"]).resume == PICK, (
        "not a new session"
    )


@pytest.mark.parametrize("flag", ["--model", "--cd", "--add-dir", "--schema"])
def test_an_empty_value_is_an_error(flag, capsys):
    with pytest.raises(SystemExit):
        main(["-p", "hi", flag, " "])
    assert "the value is empty" in capsys.readouterr().err


def test_flags_of_other_agents_suggest_the_ouro_flag(capsys):
    with pytest.raises(SystemExit):
        main(["-p", "hi", "--output-format", "json", "--permission-mode=plan", "--wild"])
    error = capsys.readouterr().err
    assert "unrecognized arguments: --output-format --permission-mode=plan --wild" in error
    assert "Here --output-format is --output, --permission-mode is --mode." in error


@pytest.mark.parametrize(
    "given",
    [
        ["-p", "hi"],
        ["--print", "two words"],
        ["-p", "naïve 問い"],
        ["-p", "a\udce9b"],
        ["-p"],
        ["-p", ""],
        ["-p", "hi", "-p", "again"],
        ["-p", "hi", "there"],
        ["--mode", "auto", "-p", "hi", "--output", "json"],
        ["--mode=auto", "-p", "hi"],
        ["-m", "opus", "--no-memory", "--ephemeral", "-p", "x"],
        ["--model", "opus", "-c", "--debug"],
        ["--trust", "--safe", "--plain", "--no-sandbox"],
        ["--no-trust"],
        ["--continue"],
        ["fix it", "--mode", "plan"],
    ],
)
def test_flags_read_without_argparse_are_those_of_argparse(given):
    parsed, _ = command_line._parser().parse_known_args(given, _defaults())
    assert read_flags(given) == parsed


@pytest.mark.parametrize(
    "given",
    [
        ["--mode", "wild"],
        ["--output", "yaml", "-p", "x"],
        ["-m", " "],
        ["--model"],
        ["--trust", "--no-trust"],
        ["-c", "-r", "x"],
        ["--nonsense"],
        ["-p", "--mode"],
    ],
)
def test_wrong_flags_are_refused_by_argparse(given, capsys):
    with pytest.raises(SystemExit) as ended:
        read_flags(given)
    assert ended.value.code == 2
    assert "ouro" in capsys.readouterr().err


def _defaults():
    return SimpleNamespace(**command_line._DEFAULTS)
