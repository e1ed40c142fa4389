"""Files and repositories that tests create."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from shutil import copytree


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


def write_tasks(folder, tasks, **more):
    path = folder / "tasks.yaml"
    path.write_text(json.dumps({"name": "licences", "tasks": tasks, **more}))
    return path


def make_repository(folder):
    folder.mkdir()
    commands = ("init -q -b main", "add .", "commit -q -m first")
    (folder / "api.py").write_text("print('hello')\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for command in commands:
        subprocess.run(["git", *author, *command.split()], cwd=folder, check=True)
    return folder


def make_repositories(folder, *names):
    """Equal repositories: the first is made with git, the others are copied, which is faster."""
    first = make_repository(folder / names[0])
    return [first, *(copytree(first, folder / name, symlinks=True) for name in names[1:])]


def touch(name, text="new"):
    return f'call: write {{"path": "{name}", "content": "{text}\\n"}}\nsay: wrote {name}'
