"""Tools from files in `tools/`."""

import json

import pytest
from fakes.agents import notices_of
from fakes.fake_front_end import FakeFrontEnd, slash
from fakes.tool_benches import ToolFileBench

from ouro.display import Plain
from ouro.utils.ouro_paths import get_home

COUNT = '''
@tool(reads="path")
def word_count(path: str) -> str:
    """Count the words of a file."""
    return f"{len(open(path).read().split())} words"
'''
MAKE = '''
@tool
def make(name: str, times: int = 1) -> dict:
    """Make a file."""
    print("making", name)
    with open(name, "w") as file:
        file.write("x" * times)
    return {"made": name, "times": times}
'''


@pytest.fixture
def bench(repository):
    return ToolFileBench(repository)


async def test_functions_of_a_file_are_tools_with_their_schemas(bench):
    bench.own("count.py", COUNT + MAKE)
    bench.own("empty/inner.py", MAKE.replace("make", "inner"))
    bench.own("_helper.py", MAKE.replace("make", "helper"))
    (bench.project / "a.md").write_text("four words are here")
    result = await bench.call("word_count", path="a.md")
    assert (result.failed, result.display.summary, bench.result) == (False, "4 words", "4 words")
    specs = {spec.name: spec for spec in bench.model.requests[0].tools}
    assert specs["word_count"].description == "Count the words of a file."
    assert specs["make"].parameters == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["name"],
    }
    assert not {"inner", "helper"} & specs.keys()


async def test_call_is_asked_about_with_its_arguments_and_file_and_answered_by_a_rule(bench):
    bench.own("make.py", MAKE)
    ask = {"permissions.mode": "ask"}
    result = await bench.call("make", name="one.txt", settings=ask)
    assert json.loads(bench.result) == {"made": "one.txt", "times": 1}
    assert not result.failed
    question = bench.asked[0]
    assert question.reason == "the file of make runs, in the sandbox"
    assert question.rule == "tool(make)"
    assert isinstance(question.display.body, Plain)
    assert '"name": "one.txt"' in question.display.body.text
    assert "tools/make.py" in question.display.body.text
    assert (await bench.call("make", name="two.txt", settings=ask, say_yes=False)).failed
    assert not (bench.project / "two.txt").exists()
    await bench.call("make", name="3.txt", settings={**ask, "permissions.allow": ("tool(make)",)})
    assert len(bench.asked) == 2
    assert (bench.project / "3.txt").read_text() == "x"
    denied = await bench.call("make", name="4.txt", settings={"permissions.deny": ("tool(make)",)})
    assert denied.failed
    assert not (bench.project / "4.txt").exists()


async def test_rules_on_files_hold_for_the_argument_that_names_one(bench):
    bench.own("count.py", COUNT)
    deny = {"permissions.mode": "ask", "permissions.deny": ("read(secret.md)",)}
    (bench.project / "secret.md").write_text("a b")
    (bench.project / "open.md").write_text("a b")
    assert (await bench.call("word_count", path="secret.md", settings=deny)).failed
    assert not (await bench.call("word_count", path="open.md", settings=deny)).failed
    assert bench.asked == []


async def test_default_path_is_judged_and_a_tool_with_asks_always_asks(bench):
    text = COUNT.replace("path: str", 'path: str = "secret.md"')
    bench.own("count.py", text.replace('reads="path"', 'reads="path", asks=True'))
    (bench.project / "secret.md").write_text("a b")
    denied = {"permissions.deny": ("read(secret.md)",)}
    assert (await bench.call("word_count", settings=denied)).failed
    assert not (await bench.call("word_count")).failed
    assert [question.title for question in bench.asked] == ["word_count path: secret.md"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def (", "line 2: invalid syntax"),
        (
            "import no_such_package",
            "line 2: ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "line 2: SystemExit: 3"),
        ("x = 1", "it has no function with @tool"),
        ("@tool\ndef f(a: int): pass", "The tool `f` has no docstring"),
        ('@tool\ndef f(a):\n    "Do."', "The parameter `a` of the tool `f` has no type hint"),
        ("import os; os._exit(7)", "it ended with exit code 7"),
        ("import os; os.write(1, b'{}'); os._exit(0)", "it ended with exit code 0"),
    ],
)
async def test_file_that_cannot_be_used_is_one_line_and_the_others_work(bench, text, problem):
    path = bench.own("wrong.py", "")
    path.write_text(f"from ouro import tool\n{text}\n")
    bench.own("count.py", COUNT)
    session = await bench.open("Hello.")
    notices = [text for text in notices_of(session) if "wrong.py" in text]
    assert len(notices) == 1
    assert notices[0].count("\n") == 0
    assert f"wrong.py is not used: {problem}" in notices[0]
    await session.close()
    assert "word_count" in await bench.names()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('raise ValueError("no \\x1b[31mluck")', "fails: line 5: ValueError: no luck"),
        ("raise SystemExit(1)", "fails: line 5: SystemExit: 1"),
        ("import os; os._exit(9)", "fails: it ended with exit code 9"),
        ("import os; os.kill(os.getpid(), 9)", "fails: it ended with exit code"),
        ("import time; time.sleep(600)", "fails: it ran longer than 3 s and was ended"),
    ],
)
async def test_call_that_fails_is_one_clear_line(bench, body, message):
    path = bench.own("fails.py", "")
    path.write_text(f'from ouro import tool\n@tool\ndef fails() -> str:\n    "Fail."\n    {body}\n')
    seconds = 3 if "sleep" in body else 120
    result = await bench.call("fails", settings={"shell.timeout_seconds": seconds})
    assert result.failed
    assert bench.result.startswith(message)


async def test_wrong_arguments_are_named(bench):
    bench.own("make.py", MAKE)
    await bench.call("make", name="a", times="many")
    assert "Wrong arguments for make" in bench.result
    assert "$.times" in bench.result


async def test_long_result_is_cut_and_what_is_printed_is_progress(bench):
    text = '@tool\ndef long() -> str:\n    "Be long."\n    print("working")\n    return "x" * 5_000_000\n'
    bench.own("long.py", text)
    assert not (await bench.call("long")).failed
    assert len(bench.result) < 100_000


async def test_names_of_other_tools_are_not_taken(bench):
    bench.own("mine.py", MAKE.replace("make", "shell") + MAKE)
    bench.of_project("theirs.py", MAKE)
    session = await bench.open("Hello.")
    notices = notices_of(session)
    assert any("there is another tool `shell`" in text for text in notices)
    assert any("Two tools are named make" in text for text in notices)
    assert session.turn.commands.tools.tools["shell"].effect == "run"
    assert str(session.turn.commands.tools.tools["make"].file.path).startswith(str(get_home()))
    await session.close()


async def test_descriptions_are_kept_until_the_file_changes(bench, monkeypatch):
    path = bench.own("make.py", MAKE)
    assert "make" in await bench.names()
    saved = (get_home() / "cache" / "tool_files.json").read_bytes()
    monkeypatch.setattr(
        "ouro.extensions.tool_files._WORKER_ARGUMENTS", ("-c", "raise SystemExit(9)")
    )
    assert "make" in await bench.names()
    path.write_text(path.read_text() + "# changed\n")
    assert "make" not in await bench.names()
    assert (get_home() / "cache" / "tool_files.json").read_bytes() == saved


async def test_list_names_the_file_of_a_tool(bench):
    bench.own("make.py", MAKE)
    session = await bench.open("Hello.")
    front_end = FakeFrontEnd(session)
    await slash(front_end, "tools")
    await session.close()
    lines = "\n".join(map(str, front_end.shown)).splitlines()
    assert any("make" in line and "tools/make.py" in line for line in lines)
    assert any("`shell`" in line and "tools/" not in line for line in lines)
