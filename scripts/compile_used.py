"""Write the bytecode of what ouro loads: `python scripts/compile_used.py`, after an installation.

pip would compile all that is installed: 150 MB, of which most is never imported, and half of the
time of an installation. Python writes the bytecode of what it imports.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import ouro

LOADED_LATE = (
    "git.cmd",
    "keyring.backends.SecretService",
    "litellm",
    "mcp.client.session",
    "PIL.Image",
    "prompt_toolkit.shortcuts",
    "pygments.lexers",
    "pypdf",
    "textual.app",
    "textual.widgets",
)
"""What functions of ouro import when they are first called."""
NOT_A_MODULE = ("__main__", "first_frame")
"""They do something when they are imported."""


def main() -> int:
    sys.dont_write_bytecode = False
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask a server for prices
    all_names = [info.name for info in pkgutil.walk_packages(ouro.__path__, "ouro.")]
    names = [name for name in all_names if name.rpartition(".")[2] not in NOT_A_MODULE]
    for name in (*names, *LOADED_LATE):
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"not compiled: {name} ({error})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
