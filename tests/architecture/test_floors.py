"""The floors of docs/architecture.md, kept true by the import contracts and by counting."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "ouro").rglob("*.py"))


def test_imports_go_down():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_classes_and_functions_stay_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 350
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno <= 300, node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno <= 60, node.name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_only_the_program_takes_what_is_loaded_out_of_garbage_collection():
    """What is frozen is never freed: a part that did so, each time it is made, would keep all that lived then."""
    freezing = {str(path.relative_to(ROOT / "ouro")) for path in SOURCES if "gc.freeze()" in path.read_text()}

    assert freezing == {"cli.py", "frontends/tui/run.py"}
