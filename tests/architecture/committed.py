"""Refuse what must not be committed: machine paths, addresses of packages, lock files that name
hosts, keys.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        rb"/(?:root|work|farm)/[\w.]+|/home/(?!me\b|user\b|you\b|ada\b)\w+/"
    ),
    "a download address of a package": re.compile(
        rb"https?://[^ \"']+(?:/simple/|/packages/[0-9a-f]{2}/|\.whl|/-/[^ ]+\.tgz)"
    ),
    "a key": re.compile(rb"sk-(?:ant|proj)-[A-Za-z0-9_-]{20,}"),
}
SELF = "tests/architecture/committed.py"


def problems() -> list[str]:
    """One line a finding."""
    files = (
        subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True)
        .stdout.decode()
        .split("\0")
    )
    found = [
        f"{name}: a lock file that names hosts"
        for name in files
        if name.endswith(("uv.lock", "pylock.toml"))
    ]
    for name in filter(None, files):
        if name == SELF:
            continue
        text = Path(name).read_bytes()
        for what, pattern in FORBIDDEN.items():
            if what == "a key" and name.startswith("tests/"):
                continue  # examples: the mask is tested with texts that look like keys
            if match := pattern.search(text):
                line = text[: match.start()].count(b"\n") + 1
                found.append(f"{name}:{line}: {what}")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or None)
