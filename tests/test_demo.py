import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.ouro_program import OuroTerminal
from fakes.warm_python import WARM

from ouro.cli import main
from ouro.demo import (
    FILES,
    FIRST_MESSAGE,
    RIGHT,
    SECOND_MESSAGE,
    WISH,
    WRONG,
    make_project,
    recorded_model,
    remembering_model,
)
from ouro.messages import system, user

AT_ONCE = f"""{WARM}
import sys
import ouro.cli, ouro.demo
ouro.demo.PACE = 0  # otherwise the recorded model types for seven seconds
sys.exit(ouro.cli.main(["demo", "--plain"]))
"""


def demo(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "ouro", "demo", *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def unittest_in(folder):
    done = subprocess.run(
        [sys.executable, "-B", "-m", "unittest"], cwd=folder, capture_output=True, check=False
    )
    return done.returncode


def test_headless_demo_repairs_the_program_and_cleans_up(scratch, home):
    done = demo("--headless", TMPDIR=str(scratch))

    assert done.returncode == 0, done.stderr
    told = [line.split("  ")[0] for line in done.stderr.splitlines()]
    told[2:5] = sorted(told[2:5])  # they run in parallel
    assert told == [
        "ouro: a demo with a recorded model: nothing leaves this machine.",
        f"› {' '.join(FIRST_MESSAGE.split())}",
        "✓ glob **/*.py",
        "✓ read shop/basket.py",
        "✓ read tests/test_basket.py",
        "✗ shell python3 -m unittest",
        "? edit shop/basket.py — the demo answers: yes",
        "✓ edit shop/basket.py",
        "✓ shell python3 -m unittest",
        "✓ write .ouro/memory/facts.md",
        told[10],
        "ouro: The session is closed. A new one is opened in the same folder.",
        f"› {SECOND_MESSAGE}",
    ]
    assert WISH in told[10]
    assert "all three tests pass" in done.stdout
    assert 'basket.add("coffee", 450)' in done.stdout
    assert "ANTHROPIC_API_KEY" in done.stdout
    assert "models --setup" in done.stdout
    assert list(scratch.iterdir()) == []
    assert not (home / ".ouro").exists()


def test_the_result_is_available_as_json():
    done = demo("--json")
    result = json.loads(done.stdout)
    assert (result["outcome"], result["turns"], result["refused"]) == ("answered", 6, [])


def test_a_demo_without_git_works_too(scratch, tmp_path):
    only = tmp_path / "bin"
    only.mkdir()
    for name in ("bash", "sh"):
        (only / name).symlink_to(f"/bin/{name}")
    (only / "python3").symlink_to(sys.executable)
    done = demo("--headless", TMPDIR=str(scratch), PATH=str(only))
    assert done.returncode == 0, done.stderr
    assert "all three tests pass" in done.stdout
    assert 'basket.add("coffee", 450)' in done.stdout


async def test_the_second_act_repeats_only_what_the_prompt_of_the_session_says():
    for prompt, expected in ((f"memory: {WISH}", "coffee"), ("memory: nothing", "told nothing")):
        model = remembering_model(0, watched=False)
        chunks = [chunk async for chunk in model.stream([system(prompt), user(SECOND_MESSAGE)])]
        assert expected in "".join(getattr(chunk, "text", "") for chunk in chunks)


def test_a_demo_in_a_git_hook_does_not_change_that_repository(tmp_path, repository, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    before = {
        path: path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()
    }
    (tmp_path / "shop").mkdir()
    make_project(tmp_path / "shop")
    assert (tmp_path / "shop" / ".git" / "refs" / "heads" / "main").exists()
    assert {
        path: path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()
    } == before


def test_the_program_fails_before_and_passes_after_the_repair(tmp_path):
    make_project(tmp_path)
    assert unittest_in(tmp_path) == 1
    module = tmp_path / "shop" / "basket.py"
    assert module.read_text().count(WRONG) == 1
    module.write_text(module.read_text().replace(WRONG, RIGHT))
    assert unittest_in(tmp_path) == 0
    assert set(FILES) <= {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}


async def test_recorded_model_identifies_itself_and_never_runs_out():
    model = recorded_model("python3 -m unittest", 0, watched=True)
    texts = []
    for _ in range(8):
        chunks = [chunk async for chunk in model.stream([])]
        texts.append("".join(getattr(chunk, "text", "") for chunk in chunks))
    assert "This is a recorded model: nothing leaves this machine." in texts[0]
    assert "know only this one repair" in texts[-1]


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--help"])
    assert ended.value.code == 0
    assert "ouro demo --headless" in capsys.readouterr().out


class TestInATerminal:
    """The demo in a pseudo-terminal."""

    @pytest.fixture
    def terminal(self, scratch, request):
        import pexpect
        import pyte

        environment = {**os.environ, "TMPDIR": str(scratch), "TERM": "xterm-256color"}
        child = pexpect.spawn(
            sys.executable,
            ["-c", getattr(request, "param", AT_ONCE)],
            env=environment,
            dimensions=(40, 100),
            timeout=30,
        )
        child.delaybeforesend = None
        screen = pyte.Screen(100, 40)
        screen.write_process_input = child.send
        stream = pyte.ByteStream(screen)
        seen = []

        def wait_for(text):
            end = time.monotonic() + 50
            while text not in "".join(seen):
                assert time.monotonic() < end, "\n".join(screen.display)
                try:
                    data = child.read_nonblocking(100_000, timeout=0.1)
                except pexpect.TIMEOUT:
                    continue
                except pexpect.EOF as error:
                    raise AssertionError("".join(seen)) from error
                stream.feed(data)
                seen.append(data.decode(errors="replace"))

        yield child, wait_for
        child.close(force=True)

    @pytest.mark.parametrize(
        "terminal", [AT_ONCE.replace('"demo", "--plain"', '"demo"')], indirect=True
    )
    def test_the_full_screen_asks_about_the_repair(self, terminal):
        _child, wait_for = terminal
        wait_for("Allow?")

    def test_a_killed_session_leaves_the_terminal_as_it_was(self, scratch):
        command = [sys.executable, "-P", "-m", "ouro", "demo"]
        environment = {**os.environ, "TMPDIR": str(scratch), "TERM": "xterm-256color"}
        terminal = OuroTerminal(command, environment, scratch)
        try:
            terminal.until_shows("recorded (demo)")
            assert terminal.pid != terminal.child.pid
            os.kill(terminal.pid, signal.SIGKILL)
            assert terminal.end() == 128 + signal.SIGKILL
            assert terminal.modes() == terminal.modes_before
            assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
            assert terminal.raw.rstrip().endswith(b"The demo was killed.")
        finally:
            terminal.close()

    @pytest.mark.slow
    def test_a_new_session_remembers(self, terminal):
        child, wait_for = terminal
        wait_for("y/s/a/n/d? ")
        child.send("y\r")
        wait_for("the second act")
        child.send("/exit\r")
        wait_for("in another session")
        wait_for("folder of this demo is removed then")
        child.send("/exit\r")
        wait_for("folder is removed")

    @pytest.mark.slow
    def test_answering_no_changes_nothing(self, terminal, scratch):
        child, wait_for = terminal
        wait_for("y/s/a/n/d? ")
        child.send("d\r")
        wait_for("so nothing was changed")
        [folder] = Path(scratch).glob("ouro-demo-*")  # commands may have a folder beside it
        assert WRONG in (folder / "shop" / "shop" / "basket.py").read_text()
        child.send("and now?\r")
        wait_for("know only this one repair")
        child.send("/exit\r")
        wait_for("folder is removed")
        wait_for("`ouro` begins")
        end = time.monotonic() + 20
        while list(scratch.iterdir()):
            assert time.monotonic() < end
