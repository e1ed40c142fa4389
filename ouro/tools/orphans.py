"""What a killed ouro process has left: its commands, containers and temporary files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from ouro.tools.process_tags import list_tags, owner_bits
from ouro.utils.files import sweep_written_dirs
from ouro.utils.ouro_paths import get_home, get_written_dirs
from ouro.utils.text import plural


async def clean_up_orphans(warn: Callable[[str], None], project: Path) -> None:
    """Clean up after killed ouro processes: remove their temporary files and containers, end their
    commands, and warn about containers and commands.
    """
    await asyncio.to_thread(sweep_written_dirs, get_written_dirs(project))
    if removed := await asyncio.to_thread(_remove_old_containers):
        warn(f"Removed {plural(removed, 'container')} that a killed ouro had left.")
    if ended := await asyncio.to_thread(end_orphans):
        processes = plural(ended, "process", "processes")
        warn(f"Ended {processes} that commands of a killed ouro had left running.")
    await asyncio.to_thread(_remove_old_temp_folders)


def _remove_old_containers() -> int:
    """Remove the containers of killed ouro processes; returns how many. Blocks."""
    folder = get_home() / "sandbox"
    if not any((folder / "containers").glob("ouro-*")):
        return 0
    from ouro.safety import remove_left_containers  # only after a container

    return remove_left_containers(folder)


def _remove_old_temp_folders() -> None:
    """Remove the temporary folders of killed ouro processes. Blocks."""
    folder = get_home() / "sandbox"
    if not any((folder / "temp").glob("*")):
        return
    from ouro.safety import remove_left_temp_folders  # only after a kill, or beside another session

    remove_left_temp_folders(folder)


def end_orphans() -> int:
    """End processes that commands of killed ouro processes left: those with the tag of an ouro
    process that is gone. Returns their number. Linux only. Blocks.
    """
    ended = 0
    for pid, tag in list_tags():
        owner = tag >> 12
        owner_pid = owner & 0x3F_FFFF
        # Process ids of a container have no meaning outside of it.
        if _pid_namespace(pid) == _pid_namespace(os.getpid()) and owner != owner_bits(owner_pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended += 1
    return ended


def _pid_namespace(pid: int) -> int:
    """The number of the namespace of process ids; 0 if it is not known."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    return 0
