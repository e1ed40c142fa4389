"""The sandbox of macOS: a profile for `sandbox-exec`. Apple calls it deprecated; other agents rely on it, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ouro.safety.sandbox.policy import SandboxPolicy, Tier

_PROGRAM = "/usr/bin/sandbox-exec"
_BASE = """\
(version 1)
(deny default)
(allow process-exec process-fork signal (target same-sandbox))
(allow sysctl-read file-read* mach-lookup ipc-posix-shm ipc-posix-sem pseudo-tty)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (regex #"^/dev/fd/"))
"""


class Seatbelt:
    """Runs commands by `sandbox-exec`. Paths are parameters of the profile, never a part of its text."""

    tier: Tier = "seatbelt"
    leaves_open = (
        "files outside the workspace can be read, except places of keys",
        "processes that a command leaves running",
    )

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:
        writable = (*policy.writable, *((policy.temp,) if policy.temp else ()))
        rules = [_BASE]
        parameters: dict[str, Path] = {}

        def rule(verb: str, operation: str, name: str, places: Sequence[Path]) -> None:
            for number, place in enumerate(places):
                parameters[f"{name}{number}"] = place
                rules.append(f'({verb} {operation} (subpath (param "{name}{number}")))\n')

        rule("allow", "file-write*", "WRITABLE", writable)
        # Later rules win. A folder that holds a protected place cannot be renamed away either.
        rule("deny", "file-write*", "PROTECTED", policy.protected)
        rule("deny", "file-read* file-write*", "HIDDEN", policy.hidden)
        if policy.network:
            rules.append("(allow network*)\n")
        elif policy.connects:
            rules.append('(allow network* (local ip "localhost:*") (remote ip "localhost:*"))\n')
        options = [word for name, place in parameters.items() for word in ("-D", f"{name}={place}")]
        temp = ["/usr/bin/env", f"TMPDIR={policy.temp}"] if policy.temp else []
        return [*temp, _PROGRAM, *options, "-p", "".join(rules), "--", *argv]
