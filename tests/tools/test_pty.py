"""Commands in a terminal: a REPL, a debugger, a question for a secret, an editor."""

import sys

import pytest
from fakes.tool_benches import ShellBench, living
from fakes.waiting import until

from ouro.errors import ToolError
from ouro.messages import Message, ToolCall
from ouro.tools.odd_calls import read_calls
from ouro.tools.pty_screen import PtyScreen
from ouro.tools.shell_jobs import JobArgs, ShellKill, ShellOutput, ShellOutputArgs

PYTHON = f"{sys.executable} -q"
AT_ONCE = 0.01
"""Seconds: for programs that print nothing, whose start would be waited for two seconds."""


class PtyBench(ShellBench):
    @property
    def job(self):
        return self.jobs.list()[-1]

    async def start(self, command, **options):
        return await self.run(command, pty=True, **options)

    async def type(self, text="", *keys):
        asked = ShellOutputArgs(self.job.id, text=text, keys=list(keys))
        tool, args = ShellOutput(self.jobs).resolve(asked)
        return (await tool.run(args, self.context)).text

    async def shows(self, text):
        await until(lambda: text in self.job.pty.screen.text())

    async def look(self):
        return (await ShellOutput(self.jobs).run(ShellOutputArgs(self.job.id), self.context)).text


@pytest.fixture
async def bench(tmp_path):
    bench = PtyBench(tmp_path, PYTHON_COLORS="0", PYTHON_BASIC_REPL="1")
    yield bench
    await bench.jobs.close()


async def test_a_program_that_ends_gives_its_screen_and_exit_code(bench):
    result = await bench.start("test -t 0 && test -t 1 && tty >/dev/null && echo yes; exit 3")
    assert result.text.startswith("yes\n[job_1: exit code 3.]")
    assert result.failed


async def test_only_a_call_without_text_and_keys_looks(bench):
    await bench.start("cat", timeout=AT_ONCE)
    names = [
        ShellOutput(bench.jobs).resolve(args)[0].name
        for args in (
            ShellOutputArgs("job_1"),
            ShellOutputArgs("job_1", text="a"),
            ShellOutputArgs("job_1", keys=["enter"]),
        )
    ]
    assert names == ["shell_output", "shell_input", "shell_input"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("shell_input", {"id": "job_1", "text": "1"}), ("write_stdin", {"id": "job_1", "text": "1"})],
)
async def test_other_names_for_typing_are_understood(bench, name, arguments):
    message = Message("assistant", (ToolCall("c1", name, arguments),))
    tools = {"shell_output": ShellOutput(bench.jobs)}
    (call,) = read_calls(message, tools).tool_calls
    assert (call.name, call.arguments) == ("shell_output", arguments)


async def test_the_agent_types_into_a_repl(bench):
    started = await bench.start(PYTHON)
    assert "shell_output(id='job_1', text=" in started.text
    await bench.shows(">>>")
    await bench.type("6 * 7", "enter")
    await bench.shows("42")
    await bench.type("import time; time.sleep(600)", "enter")
    await bench.type("", "ctrl+c")
    await bench.shows("KeyboardInterrupt")
    await bench.type("", "ctrl+d")
    await until(lambda: not bench.job.running)
    assert "running" not in await bench.look()


async def test_the_agent_steps_through_a_debugger(bench):
    (bench.root / "sums.py").write_text("total = 1\ntotal += 41\nprint('the end')\n")
    await bench.start(f"{sys.executable} -m pdb sums.py")
    for line in ("n", "n", "p total"):
        await bench.shows("(Pdb)")
        await bench.type(line, "enter")
    await bench.shows("42")


async def test_what_is_typed_at_a_question_for_a_secret_is_not_shown(bench):
    await bench.start('read -s -p "Password: " word; echo; echo "${#word} letters"')
    await bench.shows("Password:")
    assert bench.job.pty.hides_input
    assert "asks for a secret" in await bench.look()
    text = await bench.type("hunter2", "enter")
    await bench.shows("7 letters")
    assert "hunter2" not in text + await bench.look() + bench.job.process.capture.text()


async def test_the_agent_edits_with_vim(bench):
    (bench.root / "notes.txt").write_text("one\ntwo\n")
    await bench.start("vim -u NONE -n notes.txt")
    await bench.shows("two")
    await bench.type("Gothree", "escape")
    await bench.type(":wq", "enter")
    await until(lambda: not bench.job.running)
    assert (bench.root / "notes.txt").read_text() == "one\ntwo\nthree\n"


async def test_an_editor_leaves_the_screen_as_it_was(bench):
    await bench.start("echo before; printf '\\033[?1049h\\033[Hdrawn'; read line;"
                      " printf '\\033[?1049l'; echo after")  # fmt: skip
    await bench.shows("drawn")
    assert "before" not in bench.job.pty.screen.text()
    await bench.type("", "enter")
    await bench.shows("before\nafter")


async def test_arrow_keys_are_sent_as_the_program_wants_them(bench):
    await bench.start("printf '\\033[?1hready'; cat -v")
    await bench.shows("ready")
    await bench.type("", "up", "shift+tab")
    await bench.shows("^[OA^[[Z")


async def test_the_screen_says_where_the_cursor_is(bench):
    line = "printf '\\033[3;5H\\033[6n'; read -rsd R -t 60 place; printf %q \"$place\""
    await bench.start(line)
    await bench.shows("3;5")


async def test_lines_that_left_the_screen_are_reported_once(bench):
    await bench.start("seq 90; read line; seq 200 203; read line")
    await bench.shows("90")
    first = await bench.look()
    assert "\n90\n" in await bench.type("", "enter") + first
    again = await bench.look()
    assert "\n7\n" not in again
    assert "203" in again


async def test_a_flood_is_bounded_and_can_be_interrupted(bench):
    await bench.start("yes 'a line of text'", timeout=1)  # it never pauses, so this is waited for
    await until(lambda: bench.job.process.capture.total > 1_000_000)
    await bench.type("", "ctrl+c")
    await until(lambda: not bench.job.running)
    assert len(await bench.look()) < 40_000


async def test_odd_codes_draw_nothing_and_lose_nothing(bench):
    codes = (
        r"\033[>4;2m\033[?1$p\033P+q544e\033\\\033[=1u\033]0;title\007\033[999;999;999~\033[38;5m"
    )
    await bench.start(f"printf '{codes}still here'; printf '\\303'; sleep 0.1; printf '\\251 end'")
    await bench.shows("still hereé end")


async def test_the_program_learns_the_size(bench):
    await bench.start("trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done")
    await bench.shows("30 100")
    bench.job.pty.resize(120, 40)
    await bench.shows("40 120")


async def test_its_end_ends_all_processes(bench):
    await bench.start("sleep 98771 & setsid sleep 98771 & cat", timeout=AT_ONCE)
    await until(lambda: len(living("sleep\x0098771")) == 2)
    await ShellKill(bench.jobs).run(JobArgs("job_1"), bench.context)
    await until(lambda: not living("sleep\x0098771"))
    with pytest.raises(ToolError, match="has ended"):
        await bench.type("hello")


async def test_a_job_without_a_terminal_takes_no_input(bench):
    await bench.run("sleep 600", background=True)
    with pytest.raises(ToolError, match="no terminal"):
        await bench.type("hello")


async def test_too_much_for_one_call_is_not_typed(bench):
    await bench.start("cat", timeout=AT_ONCE)
    with pytest.raises(ToolError, match="At most 4000 characters and 50 keys"):
        await bench.type("x" * 4_001)
    with pytest.raises(ToolError, match="At most 4000 characters and 50 keys"):
        await bench.type("", *["up"] * 51)


async def test_an_unknown_key_is_named(bench):
    await bench.start("cat", timeout=AT_ONCE)
    with pytest.raises(ToolError, match="There is no key 'hyper'"):
        await bench.type("", "hyper")


async def test_a_program_that_reads_nothing_is_named(bench, monkeypatch):
    monkeypatch.setattr("ouro.tools.pty_process._SILENT_SECONDS", 0.05)
    monkeypatch.setattr("ouro.tools.pty_process._WRITE_SECONDS", 0.3)
    await bench.start("stty raw -echo; echo ready; sleep 600")
    await bench.shows("ready")

    async def type_much():
        for _ in range(100):
            await bench.type("x" * 4_000)

    with pytest.raises(ToolError, match="does not read"):
        await type_much()


async def test_its_control_terminal_is_its_own(bench):
    """Not the user's: a program that opens /dev/tty reads what is typed into the job."""
    await bench.start("read -r line < /dev/tty; echo got $line", timeout=AT_ONCE)
    await bench.type("this", "enter")
    await bench.shows("got this")


def test_lines_in_an_old_encoding_are_readable_on_the_screen(monkeypatch):
    monkeypatch.setattr("locale.getencoding", lambda: "UTF-8")
    screen = PtyScreen(reply=lambda _text: None)
    screen.feed("Köln → ".encode())
    screen.feed("日".encode()[:2])  # the rest of the character comes later
    screen.feed("日".encode()[2:] + "\r\ngrüße aus der Straße\r\n".encode("latin-1"))
    assert screen.text() == "Köln → 日\ngrüße aus der Straße"


def test_utf16_is_readable_on_the_screen():
    screen = PtyScreen(lambda _text: None)
    screen.feed("Gr\u00fc\u00dfe\none line\n".encode("utf-16").replace(b"\n", b"\r\n"))
    assert screen.text() == "Gr\u00fc\u00dfe\none line"
