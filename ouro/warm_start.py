"""`python -m ouro.warm_start N`: a server that forks sessions without a screen; see `fork_server`.

It has loaded their modules, which take half of the CPU of a short session.
"""

from __future__ import annotations

import sys
from importlib import import_module

from ouro.utils.fork_server import wait_for_fork

MODULES = (
    "argparse",
    "asyncio",
    "ctypes",
    "difflib",
    "shutil",
    "ssl",
    "tempfile",
    "yaml",
    "ouro.assemble",
    "ouro.cli",
    "ouro.extensions.agents",
    "ouro.frontends.headless.headless",
    "ouro.llm.anthropic",
    "ouro.llm.http_client",
    "ouro.llm.local_model",
    "ouro.llm.openai_model",
    "ouro.memory.long_term.maintenance.background",
    "ouro.memory.long_term.trust.running_turns",
    "ouro.safety.checkpoints.late_checkpoints",
    "ouro.session.unsaved_events",
    "ouro.tools.edit",
)
"""The modules that a session of a batch needs, and would import late."""


def main(words: list[str]) -> int:
    """Load the modules and serve forks; in each fork run ouro, and return its exit code."""
    for module in MODULES:
        import_module(module)
    sys.argv[1:] = wait_for_fork(int(words[0]))
    from ouro.cli import run

    return run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
