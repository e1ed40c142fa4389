"""Programs of npm packages, which not every machine has."""

import os
import shutil
from pathlib import Path

import pytest

PACKAGES = Path(os.environ.get("TEST_NPM_FOLDER", "/nowhere")) / "node_modules" / ".bin"
"""Read here: each test has an environment of its own."""


def program(name: str) -> str:
    """Where a program is, in TEST_NPM_FOLDER or the path; skips the test where it is not, or node is not."""
    local = PACKAGES / name
    found = str(local) if local.exists() else shutil.which(name)
    if not found or not shutil.which("node"):
        pytest.skip(f"{name} is not installed")
    return found
