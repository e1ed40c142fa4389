"""Programs of npm packages, which are not on every machine."""

import os
import shutil
from pathlib import Path

import pytest

PACKAGES = Path(os.environ.get("TEST_NPM_FOLDER", "/nowhere")) / "node_modules" / ".bin"
"""Read at import: tests change the environment."""


def program(name: str) -> str:
    """The path of a program, in TEST_NPM_FOLDER or PATH; skips the test if it or node is missing."""
    local = PACKAGES / name
    found = str(local) if local.exists() else shutil.which(name)
    if not found or not shutil.which("node"):
        pytest.skip(f"{name} is not installed")
    return found
