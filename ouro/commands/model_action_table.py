"""The declarations of `models …`; their functions are in `models.py` and `model_*.py`."""

from __future__ import annotations

from ouro.commands.action import Action, arg

MODEL_ACTIONS: tuple[Action, ...] = (
    Action(
        "models show",
        "models.show",
        "Show what ouro knows about a model, and what refusals of its server have taught",
        (arg("name", metavar="NAME", help="a model, by name or part of the name"),),
        ("models show sonnet",),
        "shell",
    ),
    Action(
        "models reset",
        "models.reset",
        "Forget what refusals have taught about a model",
        (arg("name", metavar="NAME", help="a model, by name or part of the name"),),
        ("models reset sonnet",),
        "shell",
    ),
    Action(
        "models",
        "models.models",
        "List usable models, and why others are not usable",
        (arg("--setup", action="store_true", help="choose a model and write it to models.yaml"),),
        ("models --setup", "models --json | jq -r '.models[] | select(.usable).name'"),
        "shell",
    ),
    Action(
        "models login",
        "model_keys.login",
        "Store a key in the keyring of the system",
        (arg("name", metavar="NAME", help="a provider, or a model with a server of its own"),),
        ("models login openai", "pass show openai | ouro models login openai"),
        "shell",
    ),
    Action(
        "models logout",
        "model_keys.logout",
        "Delete a key from the keyring of the system",
        (arg("name", metavar="NAME", help="a provider, or a model with a server of its own"),),
        ("models logout openai",),
        "shell",
    ),
    Action(
        "models update",
        "models.update",
        "Fetch a newer table of windows and prices",
        (arg("--from", dest="address", default="", metavar="URL", help="else `prices_url`"),),
        ("models update", "models update --from https://prices.example.com/models.json"),
        "shell",
    ),
    Action(
        "models test",
        "model_check.check",
        "Ask a model up to six small questions, and show what works: the first step of a report",
        (
            arg("name", nargs="?", default="", metavar="MODEL", help="else that of new sessions"),
            arg("-y", "--yes", action="store_true", help="do not ask because of the price"),
            arg(
                "--seconds",
                type=int,
                default=None,
                metavar="N",
                help="the limit of a request, and of the wait for a server that loads (300)",
            ),
        ),
        ("models test", "models test sonnet --json", "models test qwen --seconds 1800"),
        "shell",
    ),
)
