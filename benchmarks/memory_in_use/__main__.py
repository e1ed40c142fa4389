"""The table of all stories.

python -m benchmarks.memory_in_use                           captured and delivered, with a scripted classifier
python -m benchmarks.memory_in_use --model openai/qwen-coder-1.5b --models-file models.yaml [--set fresh]
                                   [--story queue]           only this one
                                   [--latency 1.5]           of the scripted classifier, as a hosted model has it
                                   [--results FILE]          stories whose results are in the file are not run again
python -m benchmarks.memory_in_use --set tasks --model NAME --models-file models.yaml
                           tasks that use tools, judged by the files afterwards; prints the table of docs/benchmarks.md
                           [--told]  what was stated is in the request itself: what the model can do without memory
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.memory_in_use.effects import TASK_SETS, empty, run_tasks, table
from benchmarks.memory_in_use.run import Outcome, run_story, scripted
from benchmarks.memory_in_use.stories import SETS
from ouro.llm import Catalog, Model, read_models_file
from ouro.memory.long_term.recall import turn_recall

_FOLDER = Path(tempfile.gettempdir()) / f"ouro-memory-in-use-{os.getpid()}"
"""The same for all stories: a local server reads the prompt, which names it, from its cache."""


def main() -> None:
    """Run the stories and print a line for each, then the shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="", help="as in models.yaml; without it, a scripted one")
    parser.add_argument("--models-file", type=Path)
    parser.add_argument(
        "--set",
        choices=[*SETS, *TASK_SETS],
        default="visible",
        help="visible, or a set on which nothing is tuned; or tasks",
    )
    parser.add_argument(
        "--latency", type=float, default=0.0, help="seconds until the scripted one answers"
    )
    parser.add_argument("--story", default="", help="only this one")
    parser.add_argument(
        "--results", type=Path, help="a JSON line for each story; those in it are not run again"
    )
    parser.add_argument(
        "--told", action="store_true", help="tasks: put what was stated into the request itself"
    )
    args = parser.parse_args()
    make: Callable[[], Model] = partial(scripted, args.latency)
    if args.model:
        catalog = Catalog(read_models_file(args.models_file))

        def make() -> Model:
            return catalog.make(args.model)

    # No time limits: a model runs on the same cores, and this measures quality, not speed.
    turn_recall.LOCAL_TIMEOUT = turn_recall.INDEX_TIMEOUT = turn_recall.VECTOR_TIMEOUT = 30.0
    if args.set in TASK_SETS:
        tasks = [task for task in TASK_SETS[args.set] if args.story in ("", task.name)]
        played = asyncio.run(run_tasks(tasks, make, _FOLDER, args.results, is_told=args.told))
        print(table(played, args.model or "a scripted classifier"))
        return
    lines = args.results.read_text().splitlines() if args.results and args.results.exists() else []
    earlier = {fields.pop("story"): Outcome(**fields) for fields in map(json.loads, lines)}
    stories = [story for story in SETS[args.set] if args.story in ("", story.name)]
    print(" captured   placed delivered elsewhere applied contradicted   capture  tokens")
    outcomes: list[Outcome] = []
    for story in stories:
        outcome = earlier.get(story.name)
        if outcome is None:
            empty(_FOLDER)
            os.environ["HOME"] = str(_FOLDER)
            outcome = asyncio.run(run_story(story, make, _FOLDER))
            if args.results:
                with args.results.open("a") as file:
                    file.write(json.dumps({"story": story.name, **asdict(outcome)}) + "\n")
        outcomes.append(outcome)
        marks = (
            outcome.captured,
            outcome.placed,
            outcome.delivered,
            outcome.delivered_elsewhere,
            outcome.applied,
            outcome.contradicted,
        )
        print("".join(f"{'yes' if mark else '–':>9}" for mark in marks), end="")
        print(f"{outcome.capture_seconds:12.1f} s {outcome.tokens:7,}  {story.name}", flush=True)
    report(outcomes, args.model or "a scripted classifier")


def report(outcomes: Sequence[Outcome], model: str) -> None:
    """The shares, with the model and the date."""
    count = len(outcomes)
    delivered = [found for found in outcomes if found.delivered]
    seconds = sorted(found.capture_seconds for found in outcomes)
    print(
        f"{model}, {datetime.now(UTC):%Y-%m-%d}: captured"
        f" {sum(found.captured for found in outcomes)} of {count}, in the right place"
        f" {sum(found.placed for found in outcomes)}, delivered {len(delivered)} of {count},"
        f" elsewhere {sum(found.delivered_elsewhere for found in outcomes)}, applied"
        f" {sum(found.applied for found in delivered)} of {len(delivered)} delivered, contradicted"
        f" {sum(found.contradicted for found in outcomes)}, capture p95"
        f" {seconds[int(0.95 * (count - 1))]:.1f} s; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
