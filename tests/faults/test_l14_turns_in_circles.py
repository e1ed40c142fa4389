"""L14: a turn that runs in circles ends within 100 calls; a long honest turn does not."""

import itertools

import pytest

from ouro.agent.stuck_turn import ProgressWatch
from ouro.assemble import Options, open_session
from ouro.events import QuestionAsked, Reply, TurnFinished
from ouro.llm import ScriptedModel, ScriptedReply, call
from ouro.messages import ToolCall, ToolReply
from ouro.session import OpenRequest

NOBODY = Reply()


async def play(repository, calls, most, answer=NOBODY, interactive=False):
    model = ScriptedModel([*itertools.islice(calls, most), "Done."])
    options = Options(
        repository,
        {"permissions.mode": "auto", "sandbox.enabled": False},
        ready_model=model,
        interactive=interactive,
    )
    session = await open_session(options, OpenRequest())
    asked, finished = [], None
    async for event in session.send("do it"):
        if isinstance(event, QuestionAsked):
            asked.append(event.question)
            session.answer(event.question_id, answer)
        if isinstance(event, TurnFinished):
            finished = event
    await session.close()
    return finished, asked, len(model.requests)


def shell(line):
    return call("shell", command=line)


NUMBERS = range(10_000)
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota")
LOOPS = {
    "the same call": (shell("ls") for _ in NUMBERS),
    "trailing spaces": (shell("ls" + " " * number) for number in NUMBERS),
    "changed arguments": (call("grep", pattern=f"none{number}x") for number in NUMBERS),
    "other words, no answer": (shell(f"true {word * n}") for n in NUMBERS for word in WORDS),
    "changing output": (shell("date +%s.%N; cat /proc/sys/kernel/random/uuid") for _ in NUMBERS),
    "changed arguments and output": (shell(f"echo try {number}") for number in NUMBERS),
    "a round of five": (shell(f"echo {WORDS[number % 5]}") for number in NUMBERS),
    "a round of nine": (shell(f"echo {WORDS[number % 9]}; date +%N") for number in NUMBERS),
    "unknown tools": (call(f"tool_{number}", x=number) for number in NUMBERS),
    "wrong arguments": (call("read", path={"number": number}) for number in NUMBERS),
    "missing files": (call("read", path=f"none/{number}.py") for number in NUMBERS),
    "failing edits": (
        call("edit", path="a.py", old_text=f"none {number}", new_text="x") for number in NUMBERS
    ),
    "two contents in turn": (
        call("write", path="a.py", content=f"x = {number % 2}\n") for number in NUMBERS
    ),
    "one file by other names": (call("read", path="./" * n + "README.md") for n in NUMBERS),
    "a todo written again": (
        call("todo", items=[{"text": f"step {number}", "status": "pending"}]) for number in NUMBERS
    ),
    "several calls at once": (
        ScriptedReply("", tuple(shell(f"echo {word}; date +%N") for word in WORDS[:4]))
        for _ in NUMBERS
    ),
}


@pytest.mark.parametrize("kind", LOOPS)
async def test_l14_turn_in_circles_ends_within_100_calls(repository, kind):
    (repository / "README.md").write_text("text\n")
    (repository / "a.py").write_text("x = 1\n")
    finished, _, requests = await play(repository, LOOPS[kind], 110)
    assert finished.outcome == "limit", finished
    assert requests <= 100
    assert "Stopped" in str(finished)


@pytest.mark.parametrize("kind", ["unknown tools", "wrong arguments", "missing files"])
async def test_l14_failed_calls_in_a_row_are_named(repository, kind):
    calls = {
        "unknown tools": (call(f"tool_{number}", x=number) for number in NUMBERS),
        "wrong arguments": (call("read", path={"number": number}) for number in NUMBERS),
        "missing files": (call("read", path=f"none/{number}.py") for number in NUMBERS),
    }
    finished, _, requests = await play(repository, calls[kind], 110)
    assert "30 tool calls failed in a row" in str(finished)
    assert requests == 30


HONEST_CALLS = 130
"""More than three times each limit of a turn."""
HONEST = {
    "edits": lambda n: call("write", path=f"made/{n}.py", content=f"x = {n}\n"),
    "edits of one file": lambda n: call("write", path="a.py", content=f"x = {n}\n"),
    "silent commands": lambda n: shell(f"echo {n} > made_{n}.txt"),
    "reads": lambda n: call("read", path=f"file_{n}.txt"),
}


@pytest.mark.parametrize("kind", HONEST)
async def test_l14_long_honest_turn_is_not_stopped(repository, kind):
    for number in range(HONEST_CALLS):
        (repository / f"file_{number}.txt").write_text("the same text\n")
    finished, asked, requests = await play(repository, map(HONEST[kind], NUMBERS), HONEST_CALLS)
    assert (finished.outcome, asked) == ("answered", [])
    assert requests == HONEST_CALLS + 1


async def test_l14_on_the_screen_the_user_decides(repository):
    calls = lambda: (shell(f"echo try {number}") for number in NUMBERS)  # noqa: E731
    finished, asked, requests = await play(
        repository, calls(), 100, Reply(("Continue",)), interactive=True
    )
    assert finished.outcome == "answered"
    assert len(asked) == 2
    assert "40 tool calls in a row brought nothing new" in asked[0].text
    finished, asked, requests = await play(
        repository, calls(), 100, Reply(("Stop here",)), interactive=True
    )
    assert (finished.outcome, len(asked)) == ("interrupted", 1)
    assert requests < 50


def test_a_result_of_one_long_word_is_read_in_one_pass():
    progress = ProgressWatch(None)
    asked = ToolCall("a", "shell", {"command": "cat word"})
    progress.observe([asked], [ToolReply("a", "shell", "x" * 3_000_000)])
    progress.observe([asked], [ToolReply("a", "shell", "x" * 3_000_000)])
    assert progress.idle == 1
