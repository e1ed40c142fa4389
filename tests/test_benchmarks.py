"""Benchmarks and scripts are not run by tests, but a rename must not break them."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.parametrize("module", MODULES)
def test_module_can_be_imported(module):
    importlib.import_module(module)
