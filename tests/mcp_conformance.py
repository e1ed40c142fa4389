"""The client scenarios of the MCP conformance suite, with ouro's client: `python -m
tests.mcp_conformance`; needs npm.

Exit code 1: a scenario fails that is not in mcp/conformance.yaml, or passes that is there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22")
"""The suite of both protocols, and the node that it needs."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ouro-conformance-") as folder:
        subprocess.run(
            [
                "npm",
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--prefix",
                folder,
                *PACKAGES,
            ],
            check=True,
        )
        programs = Path(folder, "node_modules", ".bin")
        client = f"{sys.executable} {TESTS / 'mcp_conformance_client.py'}"
        expected = str(TESTS / "mcp" / "conformance.yaml")
        suite = [
            str(programs / "node"),
            str(programs / "conformance"),
            "client",
            "--suite",
            "all",
            "--timeout",
            "120000",
        ]
        return subprocess.run(
            [*suite, "--command", client, "--expected-failures", expected], cwd=folder
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
