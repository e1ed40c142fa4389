"""The declarations of `ouro batch …`; their functions are in `batch.py`."""

from __future__ import annotations

from ouro.commands.action import Action, amount, arg, count, percent

_STATE = arg("state", metavar="FOLDER", help="the folder that `batch run` printed")
_TASKS = arg("task", nargs="*", default=[], metavar="TASK", help="some of the tasks, by id")
BATCH_ACTIONS = (
    Action(
        "batch run",
        "batch.run",
        "Run tasks, each headless in a tree of its own; a stopped run continues where it was",
        (
            arg("tasks", nargs="?", default="", metavar="FILE", help="tasks in YAML or JSON lines"),
            arg("--prompt", default="", metavar="TEXT", help="one prompt, with --repos"),
            arg("--repos", default="", metavar="FILE", help="folders or addresses, one a line"),
            arg("--state", default="", metavar="FOLDER", help="else beside the file of tasks"),
            arg("--mirror", default="", metavar="PLACE", help="where SWE-bench's OWNER/NAME are"),
            arg(
                "--on",
                default="",
                metavar="WHERE",
                help="workers of Dask: tcp://HOST:8786, slurm or kubernetes",
            ),
            arg(
                "--env",
                action="append",
                default=[],
                metavar="NAME",
                help="a variable that these workers must have",
            ),
            arg("-j", "--workers", type=count, default=None, metavar="N", help="tasks at once"),
            arg(
                "--max-cost", type=amount, default=None, metavar="DOLLARS", help="of the whole run"
            ),
            arg("--again", action="store_true", help="also what has failed before"),
            arg("--dry-run", action="store_true", help="show the tasks, and run none"),
            arg("-y", "--yes", action="store_true", help="do not ask about secrets in prompts"),
        ),
        ("batch run tasks.yaml", "batch run --prompt 'Add a licence file.' --repos repos.txt"),
        "shell",
    ),
    Action(
        "batch report",
        "batch.report",
        "Show the results of a batch",
        (
            _STATE,
            arg("--html", default="", metavar="FILE", help="write a page with answers and diffs"),
            arg("--force", action="store_true", help="replace that file"),
        ),
        ("batch report tasks.batch", "batch report tasks.batch --html report.html"),
        "shell",
    ),
    Action(
        "batch show",
        "batch.show",
        "Show the answer, checks and diff of one task",
        (_STATE, arg("task", metavar="TASK")),
        ("batch show tasks.batch shop",),
        "shell",
    ),
    Action(
        "batch accept",
        "batch.accept",
        "Merge the branches of tasks that are done into what is checked out",
        (_STATE, _TASKS, arg("--all", action="store_true", help="of all tasks that are done")),
        ("batch accept tasks.batch shop",),
        "shell",
    ),
    Action(
        "batch reject",
        "batch.reject",
        "Delete the branches of tasks",
        (_STATE, _TASKS, arg("--all", action="store_true", help="of all tasks")),
        ("batch reject tasks.batch shop",),
        "shell",
    ),
    Action(
        "batch pr",
        "batch.open_pull_requests",
        "Push the branches of tasks that are done, and open pull requests with `gh`",
        (_STATE, _TASKS, arg("--all", action="store_true", help="of all tasks that are done")),
        ("batch pr tasks.batch --all",),
        "shell",
    ),
    Action(
        "batch inbox",
        "batch_memory.inbox",
        "List what the sessions would remember, each thing once; accept or reject it everywhere",
        (
            _STATE,
            arg(
                "words",
                nargs="*",
                default=[],
                metavar="[accept|reject] NUMBERS",
                help="`accept 1,3`, `reject 2-5`, `accept all`; without it, the list",
            ),
        ),
        ("batch inbox tasks.batch", "batch inbox tasks.batch accept 1,3-5"),
        "shell",
    ),
    Action(
        "batch predictions",
        "batch.predictions",
        "Write the changes as predictions for the evaluation of SWE-bench",
        (
            _STATE,
            arg("--name", default="ouro", metavar="NAME", help="of the model in the predictions"),
            arg("--output", default="", metavar="FILE", help="else standard output"),
            arg("--force", action="store_true", help="replace that file"),
        ),
        ("batch predictions verified.batch --name my-model --output predictions.jsonl",),
        "shell",
    ),
    Action(
        "eval",
        "evaluation.run",
        "Run a folder of tasks with checks; compare models, with and without memory",
        (
            arg("folder", metavar="FOLDER", help="a folder of tasks, each a folder"),
            arg("-m", "--model", action="append", default=None, help="several: side by side"),
            arg(
                "--memory",
                choices=("none", "read", "both"),
                default="",
                help="what the sessions are sent of memory",
            ),
            arg("--repeats", type=count, default=None, metavar="N", help="runs of each task"),
            arg("--state", default="", metavar="FOLDER", help="else beside the folder"),
            arg("-j", "--workers", type=count, default=None, metavar="N", help="tasks at once"),
            arg(
                "--max-cost", type=amount, default=None, metavar="DOLLARS", help="of the whole run"
            ),
            arg(
                "--fail-under",
                type=percent,
                default=0.0,
                metavar="PERCENT",
                help="exit 1 if fewer of a model's runs pass",
            ),
            arg("--again", action="store_true", help="also what did not pass before"),
            arg("--dry-run", action="store_true", help="show the runs, and start none"),
            arg("--html", default="", metavar="FILE", help="write the tables as a page"),
            arg("--force", action="store_true", help="replace that file"),
        ),
        ("eval evals --fail-under 80", "eval evals -m sonnet -m gpt-5 --memory both --repeats 5"),
        "shell",
    ),
)
