"""ContainerView: what a container shares with this machine, and the mounts that show it inside."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from csv import writer
from pathlib import Path

import msgspec

from ouro.safety.sandbox.devcontainer import ExtraMount
from ouro.safety.sandbox.sandboxes import SandboxPolicy

_TEMP = "/tmp"  # noqa: S108 - inside
SCRIPTS_FOLDER = "/run/ouro"
"""The folder of ouro's scripts."""


class ContainerView(msgspec.Struct, frozen=True):
    """What the commands with the same limits share with this machine. Each view has its own
    container, because the mounts of a running container cannot change.
    """

    name: str
    """The limits of its commands."""
    policy: SandboxPolicy
    root: Path
    alias: str = ""
    """A second path of the workspace inside."""
    mounts: tuple[ExtraMount, ...] = ()
    """What the project's devcontainer adds."""

    @property
    def shared(self) -> tuple[Path, ...]:
        """The folders of this machine that are seen inside, the outer ones first."""
        policy = self.policy
        return tuple(sorted({self.root, *policy.writable, *policy.visible}))

    def is_shared(self, place: Path) -> bool:
        """Whether a path of this machine is seen inside."""
        return any(place.is_relative_to(folder) for folder in self.shared)

    def may_write(self, folder: Path) -> bool:
        """Whether commands may change a path of this machine: it is in a writable place, and not in
        a protected one.
        """
        policy = self.policy
        if any(folder.is_relative_to(place) for place in policy.protected):
            return False
        return any(folder.is_relative_to(place) for place in policy.writable)

    @property
    def masked(self) -> tuple[Path, ...]:
        """The hidden places and sockets in the shared folders, which are covered by something
        empty. Visible places are left out.
        """
        hidden = (*self.policy.hidden, *self.policy.sockets)
        shown = set(self.policy.visible)
        return tuple(place for place in hidden if self.is_shared(place) and place not in shown)

    @property
    def read_only(self) -> tuple[Path, ...]:
        """The places in the shared folders that cannot be changed."""
        return tuple(place for place in self.policy.protected if self.is_shared(place))

    def fingerprint(self) -> tuple[object, ...]:
        """Returns what identifies all that a container of this view shares: the network, and the
        device and inode of each mounted path.

        A running container with another fingerprint cannot be used: if a file was replaced, the
        mount still shows the old one.
        """
        places = (*self.shared, *self.masked, *self.read_only)
        return (self.policy.network, *((place, _device_and_inode(place)) for place in places))


def _device_and_inode(place: Path) -> tuple[int, int]:
    """Returns the device and the inode, which differ for another file at the same path; (0, 0) if
    there is none.
    """
    try:
        status = place.lstat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def all_mounts(view: ContainerView, own_folder: Path) -> Iterator[str]:
    """Yield the options for all that a container shares. An inner place comes after an outer one,
    because a later mount covers an earlier one.

    Args:
        own_folder: the private folder of the session, with `home` and `own`.
    """
    policy, home = view.policy, Path(os.path.realpath(Path.home()))
    if not view.is_shared(home):
        yield from _mount_options(own_folder / "home", str(home), writes=view.name != "read")
    if policy.temp is not None:
        yield from _mount_options(policy.temp, _TEMP, writes=True)
    else:
        yield from _mount_empty(_TEMP)
    for folder in ("/run", "/var/tmp"):  # noqa: S108 - inside
        yield from _mount_empty(folder)
    yield from _mount_options(own_folder / "own", SCRIPTS_FOLDER, writes=False)
    for place in view.shared:
        for path in _paths_inside(place, view):
            yield from _mount_options(place, path, writes=view.may_write(place))
    for place in view.read_only:
        for path in _paths_inside(place, view):
            yield from _mount_options(place, path, writes=False)
    for place in view.masked:
        for path in _paths_inside(place, view):
            if place.is_dir():
                yield from _mount_empty(path)
            else:
                yield from _mount_options(os.devnull, path, writes=False)


def extra_mounts(view: ContainerView) -> Iterator[str]:
    """Yields the options for the volumes and empty folders that the devcontainer adds. If one of
    them is below the second path of the workspace, it is mounted at the same place below the first
    path too.
    """
    alias = Path(view.alias or "/-")  # without a second path: a path that nothing is below
    for mount in view.mounts:
        targets, path = [mount.target], Path(mount.target)
        if path.is_relative_to(alias):
            targets.append(str(view.root / path.relative_to(alias)))
        for target in targets:
            if mount.volume:
                fields = ["type=volume", f"source={mount.volume}", f"target={target}"]
                yield from ("--mount", _join_fields(fields))
            else:
                yield from _mount_empty(target)


def _paths_inside(place: Path, view: ContainerView) -> list[str]:
    """Returns the paths at which a place is mounted inside the container: its own path. If the
    workspace has a second path, a place in the workspace is mounted below that, too.
    """
    if not view.alias or not place.is_relative_to(view.root):
        return [str(place)]
    return [str(place), str(Path(view.alias) / place.relative_to(view.root))]


def _mount_options(source: Path | str, target: str, *, writes: bool) -> list[str]:
    """Returns the options that show a path of this machine (`source`) at a path of the container;
    read-only unless `writes`.
    """
    fields = ["type=bind", f"source={source}", f"target={target}"]
    return ["--mount", _join_fields([*fields, *([] if writes else ["readonly"])])]


def _mount_empty(target: str) -> list[str]:
    """The options that put an empty folder in memory at a path."""
    return ["--mount", _join_fields(["type=tmpfs", f"target={target}"])]


def _join_fields(fields: Sequence[str]) -> str:
    """Returns the value of the option `--mount` for these fields. Engines read it as CSV, so that
    paths may have commas.
    """
    text = io.StringIO()
    writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
