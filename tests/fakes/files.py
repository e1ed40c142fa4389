"""Files and repositories that tests create."""

from __future__ import annotations

import subprocess
from pathlib import Path


def write(path: Path, text: str) -> Path:
    """Write a file, with its folders if they are missing; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def git(folder: Path, *arguments: str | Path) -> str:
    """Run git in a folder, and return its output without the last line end. Fails if git does."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.rstrip("\n")
