"""Ten small tasks for a small local model, headless, each in a fresh repository: which does it
solve?

    python -m benchmarks.local_model --model openai/qwen-coder-1.5b --models-file models.yaml [--task basket] [--runs 1]

A task is solved when its check (a command) succeeds afterwards, or its answer contains the wanted
words.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ouro.demo import FILES

PYTHON = "python3"


@dataclass(frozen=True)
class Task:
    name: str
    prompt: str
    files: Mapping[str, str]
    check: str = ""
    """A shell line that succeeds if the task is solved."""
    answer: str = ""
    """Words that the answer must contain."""


UTIL = (
    'def double(number):\n    return number + number\n\n\ndef greet(name):\n    return "Hello " +'
    " name\n"
)
TASKS = (
    Task("basket", "The tests of this project fail. Find out why, and mend it. Run them with: python3 -m unittest",
         FILES, f"{PYTHON} -m unittest -q"),
    Task("create", "Create the file hello.txt with the text: hello world", {}, 'grep -qi "hello world" hello.txt'),
    Task("read", "Read config.ini. Which port does it name? Answer with the number only.",
         {"config.ini": "[server]\nhost = localhost\nport = 8417\n"}, answer="8417"),
    Task("rename", "In util.py rename the function double to twice.", {"util.py": UTIL},
         f"{PYTHON} -c 'import util; assert util.twice(2) == 4 and not hasattr(util, \"double\")'"),
    Task("add", "Add a function triple(number) to util.py that returns three times the number.", {"util.py": UTIL},
         f"{PYTHON} -c 'import util; assert util.triple(3) == 9 and util.double(2) == 4'"),
    Task("run", "Run `python3 count.py` and tell me the number that it prints.",
         {"count.py": "print(sum(range(77)))\n"}, answer="2926"),
    Task("find", "Which file in this folder contains the word heron? Answer with the file name.",
         {"a.txt": "a swan\n", "b.txt": "a heron\n", "c.txt": "a stork\n"}, answer="b.txt"),
    Task("syntax", "python3 app.py fails with a SyntaxError. Fix app.py.",
         {"app.py": 'def main()\n    print("ok")\n\n\nmain()\n'}, f"{PYTHON} app.py | grep -q ok"),
    Task("delete", "Delete the file old.txt, and nothing else.", {"old.txt": "x\n", "new.txt": "y\n"},
         "test ! -e old.txt && test -e new.txt"),
    Task("value", "In settings.json change the timeout to 30.",
         {"settings.json": '{\n  "host": "localhost",\n  "timeout": 10\n}\n'},
         "grep -q '\"timeout\": 30' settings.json && python3 -m json.tool settings.json"),
)  # fmt: skip


def main() -> None:
    """Run the tasks and print one line for each, then the share."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--models-file", type=Path, required=True, help="a models.yaml with the model"
    )
    parser.add_argument("--task", default="", help="only this one")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="the time limit of a task")
    args = parser.parse_args()
    solved = tried = 0
    for task in TASKS:
        for _ in range(args.runs if args.task in ("", task.name) else 0):
            began = time.monotonic()
            is_solved, calls, why = run(task, args.model, args.models_file, args.seconds)
            solved, tried = solved + is_solved, tried + 1
            word = "solved" if is_solved else f"missed: {why}"
            print(
                f"{task.name:<8} {time.monotonic() - began:6.0f} s  {calls:2} calls  {word}",
                flush=True,
            )
    print(f"{solved} of {tried} solved by {args.model}; load {os.getloadavg()[0]:.1f}")


def run(task: Task, model: str, models_file: Path, seconds: float) -> tuple[bool, int, str]:
    """Whether a task is solved, the number of tool calls, and why it is not solved."""
    with tempfile.TemporaryDirectory(prefix="ouro-task-") as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        (home / ".ouro").mkdir(parents=True, mode=0o700)
        shutil.copy(models_file, home / ".ouro" / "models.yaml")
        work.mkdir()
        for name, text in task.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        subprocess.run("git init -q && git add -A", shell=True, cwd=work, check=True)
        flags = "--mode auto --trust --no-memory --max-turns 15 --output stream-json".split()
        command = [sys.executable, "-m", "ouro", "-p", task.prompt, "-m", model, *flags]
        environment = {**os.environ, "HOME": str(home)}
        try:
            done = subprocess.run(
                command,
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, 0, f"over {seconds:.0f} s"
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        calls = sum(event["type"] == "tool_started" for event in events)
        result = str(events[-1].get("result", "")) if events else ""
        if task.answer:
            return task.answer in result, calls, f"answered {result[:60]!r}"
        checked = subprocess.run(
            task.check, shell=True, cwd=work, capture_output=True, text=True, check=False
        )
        return checked.returncode == 0, calls, f"check failed; answered {result[:60]!r}"


if __name__ == "__main__":
    main()
