"""The source distribution holds what is in the repository."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = {".git-blame-ignore-revs", ".pre-commit-config.yaml"}
"""They are about the history and its commits, which a distribution does not have."""


def test_the_source_distribution_holds_every_file_of_the_repository(tmp_path):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.iterdir())) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    existing = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert existing - names - LEFT_OUT == set()
