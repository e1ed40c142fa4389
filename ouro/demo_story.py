"""What `ouro demo` plays: a small program with a fault, and the replies of a recorded model that mends it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

from ouro.llm import ModelSpec, Prices, ScriptedModel, ScriptedReply, call
from ouro.messages import Message, ToolCall, ToolReply, Usage

SPEC = ModelSpec("recorded (demo)", window=128_000, prices=Prices(0, 0), thinking=True)
TASK = "The tests of this project fail. Find out why, and mend it."

FILES = {
    "README.md": "# shop\n\nWhat a basket costs. Tests: `python3 -m unittest`\n",
    ".gitignore": "__pycache__/\n",
    "shop/__init__.py": '"""A very small shop."""\n',
    "shop/basket.py": '''"""What a basket costs, in cents."""


class Basket:
    """Things that someone is about to buy."""

    def __init__(self):
        self.lines = []

    def add(self, name, price, count=1):
        self.lines.append((name, price, count))

    def total(self, discount=0):
        """The sum of all lines, less a discount in per cent."""
        total = sum(price for name, price, count in self.lines)
        return total - total * discount // 100
''',
    "tests/__init__.py": "",
    "tests/test_basket.py": """import unittest

from shop.basket import Basket


class BasketTest(unittest.TestCase):
    def setUp(self):
        self.basket = Basket()
        self.basket.add("tea", 450)
        self.basket.add("cup", 1200, count=2)

    def test_an_empty_basket_costs_nothing(self):
        self.assertEqual(Basket().total(), 0)

    def test_every_piece_is_counted(self):
        self.assertEqual(self.basket.total(), 2850)

    def test_a_discount_is_taken_off_the_sum(self):
        self.assertEqual(self.basket.total(discount=10), 2565)


if __name__ == "__main__":
    unittest.main()
""",
}
WRONG = "sum(price for name, price, count in self.lines)"
RIGHT = "sum(price * count for name, price, count in self.lines)"

NEXT_STEPS = """\
**To work with ouro yourself it needs a model.** One of these is enough:

- **A key in the environment**: `export ANTHROPIC_API_KEY=…` (or `OPENAI_API_KEY`, `OPENROUTER_API_KEY`,
  `GEMINI_API_KEY` and others), then `ouro`.
- **A model on this machine**: start Ollama, LM Studio, llama.cpp or vLLM; ouro finds it on its usual port.
- **A settings file**: `ouro models --setup` asks, and writes `~/.ouro/models.yaml`; any provider that litellm knows
  can be named there.

`ouro models` lists what can be used, and why the rest cannot.
"""
END = f"""\
The fault was in `shop/basket.py`: `total()` added up the price of each line and forgot how many pieces it has. It now
multiplies by `count`, and all three tests pass.

---

That was the real program: its loop, tools, permission question, session and screen. Only the model was recorded.

{NEXT_STEPS}"""
AND_NOW = "Type `/diff` to see the change, `/exit` to leave. The folder of this demo is removed then."
REFUSED = f"""\
You said no, so nothing was changed: the tests still fail, and `git status` is clean. That is all there is to it; with
a real model you could now say what you would rather have.

{NEXT_STEPS}"""
NOTHING_MORE = f"I am a recording, and know only this one repair.\n\n{NEXT_STEPS}"

Step = Callable[[Sequence[Message]], ScriptedReply]


def make_project(folder: Path) -> None:
    """Write the program with its fault; a git repository with one commit, where there is git."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    person = ("-c", "user.name=ouro demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    lines = (
        ("-c", "init.defaultBranch=main", "init", "-q"),
        ("add", "."),
        (*person, "commit", "-q", "--no-verify", "-m", "A very small shop"),
    )
    try:
        for line in lines:
            subprocess.run(["git", *line], cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return  # the demo needs no git


def recorded_model(test_command: str, pace: float, *, watched: bool) -> ScriptedModel:
    """The model that mends the program.

    Args:
        test_command: the shell line that runs its tests.
        pace: seconds between two words.
        watched: a user watches, and can continue after the last answer.
    """
    return ScriptedModel(_Story(test_command, AND_NOW if watched else "").replies(), spec=SPEC, pace=pace)


class _Story:
    """The replies in their order, and the ways out of it."""

    def __init__(self, test_command: str, and_now: str) -> None:
        self._test_command = test_command
        self._and_now = and_now
        self._over = False
        self._read = 2_100

    def replies(self) -> Iterator[Step]:
        """One function for each request, without end."""
        yield self._look
        yield self._run_tests
        yield self._mend
        yield self._check
        yield self._tell
        yield from repeat(self._nothing_more)

    def _look(self, _messages: Sequence[Message]) -> ScriptedReply:
        return self._reply(
            "**This is a recorded model: nothing leaves this machine.** Everything else that you see is real.\n\n"
            "I will look at the code and its tests first.",
            thinking="Tests fail, and I do not know the project yet. Reading the module and its test tells most.",
            calls=(
                call("glob", pattern="**/*.py"),
                call("read", path="shop/basket.py"),
                call("read", path="tests/test_basket.py"),
            ),
        )

    def _run_tests(self, _messages: Sequence[Message]) -> ScriptedReply:
        return self._reply("Now I run the tests, to see which of them fail.", calls=(self._tests(),))

    def _mend(self, messages: Sequence[Message]) -> ScriptedReply:
        if self._over:
            return self._nothing_more(messages)
        return self._reply(
            "Two of three fail: 1650 where 2850 is expected. A basket with **two** cups is charged for **one**: "
            "`total()` leaves out `count`. I mend that line; ouro asks you before it changes the file.",
            thinking="450 + 1200 = 1650, and 450 + 2 * 1200 = 2850. So the count is never multiplied.",
            calls=(call("edit", path="shop/basket.py", edits=[{"old_text": WRONG, "new_text": RIGHT}]),),
        )

    def _check(self, messages: Sequence[Message]) -> ScriptedReply:
        if _failed(messages):
            self._over = True
            return self._reply(REFUSED)
        return self._reply("The tests again:", calls=(self._tests(),))

    def _tell(self, messages: Sequence[Message]) -> ScriptedReply:
        return self._nothing_more(messages) if self._over else self._reply(f"{END}\n{self._and_now}".strip())

    def _nothing_more(self, _messages: Sequence[Message]) -> ScriptedReply:
        return self._reply(NOTHING_MORE)

    def _tests(self) -> ToolCall:
        return call("shell", command=self._test_command)

    def _reply(self, text: str, *, thinking: str = "", calls: tuple[ToolCall, ...] = ()) -> ScriptedReply:
        before, self._read = self._read, self._read + 350
        usage = Usage(input=self._read, cached=before, output=len(text.split()) + 40 * len(calls), cost=0.0)
        return ScriptedReply(text, calls, thinking, usage=usage)


def _failed(messages: Sequence[Message]) -> bool:
    replies = [reply for message in messages for reply in message.parts_of(ToolReply)]
    return bool(replies) and replies[-1].failed
