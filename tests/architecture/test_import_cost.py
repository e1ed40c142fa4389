"""What a start may load, in a fresh interpreter: heavy packages have one door, opened late."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("litellm", "textual", "prompt_toolkit", "sqlite3", "httpx", "yaml", "rich", "tree_sitter", "PIL", "pypdf",
         "kingfisher", "rapidfuzz", "jsonschema", "asyncio")  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(done.stderr.strip().splitlines()[-1])
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    "statement",
    [
        "import ouro.cli",
        "import ouro.cli; ouro.cli.main(['--version'])",
        "import ouro.frontends.tui.first_frame",
    ],
)
def test_start_loads_nothing_heavy(statement):
    assert loaded_by(statement).isdisjoint(HEAVY)


def test_assembling_a_session_loads_no_screen_and_no_litellm():
    modules = loaded_by("import ouro.assemble, ouro.frontends.headless")
    assert modules.isdisjoint({"litellm", "textual", "prompt_toolkit", "rich"})
