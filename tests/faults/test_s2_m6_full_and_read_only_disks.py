"""S2, M6: commands on a full disk and with a read-only home: no traceback, but the path and what to
do.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

OURO = f"{shlex.quote(sys.executable)} -m ouro"


def run(home: Path, script: str) -> str:
    """The output of a shell script that can mount file systems; `$O` is ouro."""
    environment = {**os.environ, "HOME": str(home), "OURO_HOME": str(home / ".ouro"), "O": OURO}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("no mounts are allowed here")
    return done.stdout + done.stderr


def test_s2_full_disk_refuses_memory_with_the_path_and_leaves_nothing(tmp_path):
    said = run(
        tmp_path,
        "mount -t tmpfs -o size=3m none $HOME && cd $HOME && $O memory remember user I like tea"
        " >/dev/null\ndd if=/dev/zero of=fill bs=1k 2>/dev/null\nfor drink in coffee milk water; do"
        " $O memory remember user I like $drink; done\nrm fill; $O memory remember user I like"
        " wine; cat .ouro/memory/preferences.md\nfind .ouro -name 'tmp_*' -o -name '.*.tmp' -o"
        " -name '*.aside' -o -path '*.git/*.lock' | sed 's/^/left: /'",
    )
    assert "Traceback" not in said
    assert "left: " not in said
    assert f"ouro: {tmp_path}/.ouro/" in said
    assert "No space left on device.\nFree some space" in said
    assert "- I like tea\n" in said
    assert "- I like wine\n" in said


def test_m6_memory_is_read_in_a_home_that_cannot_be_written(tmp_path):
    said = run(
        tmp_path,
        "$O memory remember user I like tea >/dev/null && rm -r .ouro/cache\n"
        "mount --bind .ouro .ouro && mount -o remount,bind,ro .ouro\n"
        "$O memory search tea; $O memory list; $O memory log; $O memory remember user I like milk",
    )
    assert "Traceback" not in said
    assert "- I like tea" in said
    assert "user/preferences.md:1  I like tea" in said
    assert "Remember: I like tea" in said
    assert "Read-only file system.\nMake it writable, or set OURO_HOME to a folder that is." in said
