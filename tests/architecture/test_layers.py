"""The layers of docs/architecture.md, held by the import contracts of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from architecture.sources import ROOT, sources


def test_imports_go_down():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_only_the_program_freezes_what_is_loaded():
    """Frozen objects are never collected: a part that froze them on each construction would leak."""
    freezing = {source.name for source in sources() if "gc.freeze()" in source.text}

    assert freezing == {"cli.py", "frontends/tui/run.py"}
