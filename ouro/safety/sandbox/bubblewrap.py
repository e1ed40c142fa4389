"""Tier 1: bubblewrap, with namespaces of its own for users, processes, mounts and network, and a seccomp filter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ouro.safety.sandbox.policy import EMPTY_INSIDE, SandboxPolicy, Tier
from ouro.safety.sandbox.seccomp import filter_file

_ALWAYS = (
    "--new-session", "--die-with-parent", "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc",
    "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL", "--seccomp", "9",
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
)  # fmt: skip
_WITH_FILTER = 'filter=$1; shift; exec "$@" 9<"$filter"'


class Bubblewrap:
    """Runs commands by `bwrap`.

    Args:
        program: the absolute path of bwrap, 0.8 or newer.
        filter_dir: a private folder for the seccomp filters.
    """

    tier: Tier = "bubblewrap"
    leaves_open = ("files outside the workspace can be read, except places of keys",)

    def __init__(self, program: Path, filter_dir: Path) -> None:
        self._program = program
        self._filter_dir = filter_dir

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:
        command = [str(self._program), *_ALWAYS]
        command += () if policy.network else ("--unshare-net",)
        for name in EMPTY_INSIDE[1:]:
            command += ("--tmpfs", name) if Path(name).is_dir() and not Path(name).is_symlink() else ()
        command += ("--bind", str(policy.temp), "/tmp") if policy.temp else ("--tmpfs", "/tmp")  # noqa: S108
        if policy.network:
            command += _bound("--ro-bind", (Path(os.path.realpath("/etc/resolv.conf")),))
        # Later mounts win: what is hidden is so in writable folders, too.
        command += _bound("--ro-bind", policy.visible)
        command += _bound("--bind", policy.writable)
        command += _bound("--ro-bind", policy.protected)
        for place in policy.hidden:
            if place.is_dir():
                shown = [inside for inside in policy.visible if inside.is_relative_to(place)]
                command += ["--tmpfs", str(place), *_bound("--ro-bind", shown), "--remount-ro", str(place)]
            else:
                command += ("--ro-bind", "/dev/null", str(place))
        # The network of a command without one is empty, except for its own servers on loopback.
        filters = filter_file(self._filter_dir, internet=policy.connects, connects=policy.connects)
        return ["/bin/sh", "-c", _WITH_FILTER, "sh", str(filters), *command, "--", *argv]


def _bound(option: str, places: Sequence[Path]) -> list[str]:
    return [word for place in places for word in (option, str(place), str(place))]
