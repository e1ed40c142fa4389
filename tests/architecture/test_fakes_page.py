"""tests/fakes/README.md has a line for each module, and there are few of them."""

from __future__ import annotations

import ast
import re

from architecture.sources import ROOT

FAKES = ROOT / "tests" / "fakes"
MAX_MODULES = 35
"""The number only shrinks."""


def modules() -> dict[str, str]:
    """The modules of tests/fakes, with the first sentence of each docstring."""
    found = {}
    for file in sorted(FAKES.glob("*.py")):
        if file.stem != "__init__" and not file.stem.startswith("test_"):
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            found[file.stem] = " ".join(text.partition("\n\n")[0].split())
    return found


def test_the_page_has_the_line_of_each_module():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", (FAKES / "README.md").read_text(), re.MULTILINE)
    assert dict(rows) == modules()


def test_the_number_of_modules_only_shrinks():
    assert len(modules()) <= MAX_MODULES
