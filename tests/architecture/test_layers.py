"""The layers of docs/architecture.md, enforced by the import contracts of pyproject.toml."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from architecture.sources import ROOT, sources


def test_import_contracts_hold():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_only_the_screen_program_calls_gc_freeze():
    """Frozen objects are never collected: a part that froze them on each construction would leak."""
    freezing = {source.name for source in sources() if "gc.freeze()" in source.text}

    assert freezing == {"frontends/tui/full_screen.py"}


def test_what_constructs_a_session_fills_nothing_in_later():
    """A member that is computed when it is first read hides who needs what, and when. So does one
    that is assigned to a finished object: the subagents have the hooks that can start one.
    """
    assembling = [source for source in sources() if source.name.startswith("assemble")]
    words = ("cached_property", "dict=True")
    late = [source.name for source in assembling if any(word in source.text for word in words)]
    assigned = {name for source in assembling for name in assigned_attributes(source.text)}

    assert len(assembling) == 5
    assert late == []
    # The plan and the error are state, no dependencies.
    assert assigned == {
        "shared.extensions.of_session.hooks.run_agent",
        "plan.items",
        "plan.todos.items",
        "error.usable",
    }


def assigned_attributes(text):
    """The attributes that a module assigns, as `plan.items`."""
    assignments = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign)]
    targets = [target for node in assignments for target in node.targets]
    return [ast.unparse(target) for target in targets if isinstance(target, ast.Attribute)]


def test_git_is_started_in_one_place():
    """Who starts git elsewhere starts it without the table of what repositories must not do."""
    starting = {source.name for source in sources() if '["git", ' in source.text}

    # Long-term memory asks for git's version before it imports GitPython, which starts the command
    # line of the table.
    assert starting == {"utils/git_process.py", "memory/long_term/git/process.py"}


def test_types_are_read_in_one_place():
    """Two threads that read a type for the first time elsewhere can crash the process (X20)."""
    typed = re.compile(
        r"msgspec\.(?:convert|json\.Decoder)\((?!\))|msgspec\.json\.decode\([^()]*(?:\([^()]*\)[^()]*)*type="
    )
    reading = {source.name for source in sources() if typed.search(source.text)}

    assert reading == {"utils/decoding.py"}


def test_no_module_hides_a_lazy_export_of_its_package():
    """Once such a module is imported, the package's attribute is the module, and the export is
    never looked up.
    """
    names = {source.name.removesuffix(".py").removesuffix("/__init__") for source in sources()}
    hidden = [
        f"{package}/{item.asname or item.name}"
        for source in sources()
        if source.name.endswith("__init__.py") and "lazy_exports(" in source.text
        for package in [source.name.removesuffix("/__init__.py")]
        for node in source.nodes
        if isinstance(node, ast.ImportFrom)
        for item in node.names
        if f"{package}/{item.asname or item.name}" in names
    ]

    assert hidden == []


def test_each_package_has_its_folder_of_tests():
    """`tests/tools` tests `ouro/tools`. Tests of several packages have folders of their own."""
    of_several = {".", "api", "architecture", "end_to_end", "fakes", "faults"}
    packages = {
        source.name.rpartition("/")[0]
        for source in sources()
        if not source.name.endswith("__init__.py")
    }
    tested = {
        path.parent.relative_to(ROOT / "tests").as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
    }

    assert tested - of_several == packages - {""}
