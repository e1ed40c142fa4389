"""The containers in which the commands of a session run: started, verified, reused and removed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from ouro.errors import ToolError
from ouro.safety.environment import child_environment
from ouro.safety.sandbox import container_scripts
from ouro.safety.sandbox.container_mounts import (
    SCRIPTS_FOLDER,
    ContainerView,
    all_mounts,
    extra_mounts,
)
from ouro.safety.sandbox.devcontainer import DevContainer
from ouro.safety.sandbox.engine import (
    NAMES,
    ContainerEngine,
    EngineName,
    find_engine,
    last_line,
    refusal_error,
)
from ouro.safety.sandbox.process_record import PREFIX, ProcessRecord, left_records
from ouro.safety.sandbox.sandboxes import SandboxPolicy
from ouro.settings import SandboxSettings
from ouro.utils.git import Git, git_dirs
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log

_IMAGE_NAME = late_pattern(r"[A-Za-z0-9][\w./:@-]*")
_FOLDERS_OF_IMAGES = (
    "/",
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)
"""Folders of every image: a workspace in their place would leave no programs."""
_OWN_FOLDER_PREFIX = "ouro-container-"
_MAX_CHECKED = 20
"""Read-only places that the self-test of a container tries to change."""
_START_TIMEOUT = 120.0
_MAX_NPROC = 30_000
"""Processes of the user in the whole machine; podman itself has no right to more than 32,768."""
_EXIT_CODES_OF_ENGINE = (125, 126, 127, 137, 255)
"""Exit codes with which the engine itself may have failed."""
_LOST_SIGNS = (
    "no such container",
    "is not running",
    "no container with",
    "container state improper",
    "cannot connect to",
    "failed to connect to",
    "oci runtime",
)
"""Messages of an engine about a container that is gone, or that it cannot reach."""
_GIT_SECONDS = 2.0


class ContainerCommand(list[str]):
    """The command line that runs a command in a container, with access to its processes there."""

    inside: CommandInside

    def __init__(self, words: Sequence[str], inside: CommandInside) -> None:
        super().__init__(words)
        self.inside = inside


class CommandInside:
    """The processes of one command in a container. They are not children of ouro, so a script in
    the container finds them by their tag.
    """

    def __init__(self, container: _Container, tag: str) -> None:
        self._container = container
        self.tag = tag
        """The limit of resident memory of its processes, in bytes, which no other command has."""
        self._is_done = False
        """Whether `release` was called."""
        container.uses += 1

    def signal(self, number: int) -> None:
        """Signal all processes of the command. Blocks."""
        with suppress(ToolError):
            self._container.engine.call(*self._signal_words(number), timeout=10)

    def signal_later(self, number: int) -> None:
        """Signal all processes of the command in a thread, without waiting for it."""
        threading.Thread(target=self.signal, args=(number,), name="container-signal").start()

    def release(self) -> None:
        """Note that the command has ended: a retired container whose last command this was is
        removed. Must be called; further calls do nothing.
        """
        if not self._is_done:
            self._is_done = True
            self._container.note_command_end()

    def find_loss(self, code: int, output: str) -> str:
        """Returns, as text for the model, that the command could not run or was ended because its
        container is gone. Empty if the container runs. Blocks.

        The engine is asked only if the exit code or the end of the output look like a loss. A lost
        container is not used again.
        """
        tail = output[-2_000:].lower()
        if code not in _EXIT_CODES_OF_ENGINE and not any(sign in tail for sign in _LOST_SIGNS):
            return ""
        container = self._container
        try:
            if container.engine.is_container_running(container.name):
                return ""
            problem = "The container of this session was stopped or removed"
        except ToolError as error:
            problem = error.message.partition(". ")[0]
        container.is_lost = True
        return (
            f"{problem}. Nothing ran on this machine instead. Run it again: the next command"
            " starts a new container. What ran in the old one has ended."
        )

    def _signal_words(self, number: int) -> list[str]:
        """The arguments of the engine that signal the command in its container."""
        script = f"{SCRIPTS_FOLDER}/signal"
        return ["exec", self._container.name, "/bin/sh", script, self.tag, str(number)]


class _Container:
    """A running container of a session."""

    def __init__(
        self,
        engine: ContainerEngine,
        name: str,
        fingerprint: tuple[object, ...],
        record: ProcessRecord,
    ) -> None:
        self.engine = engine
        self.name = name
        self.fingerprint = fingerprint
        """The fingerprint of its `ContainerView`, as it was when the container was started."""
        self.uses = 0
        """How many commands run in it."""
        self.is_lost = False
        """Whether it was stopped or removed by another program."""
        self._record = record
        self._is_retired = False
        """Whether it is removed as soon as no command runs in it."""

    def note_command_end(self) -> None:
        """Note that one of its commands has ended. A retired container whose last command this was
        is removed in a thread.
        """
        self.uses -= 1
        if self._is_retired and not self.uses:
            threading.Thread(target=self.remove, name="container-removal").start()

    def retire(self) -> None:
        """Let its running commands end, then remove it."""
        self._is_retired = True
        # Counted as a command that ends here: a container without commands is removed at once.
        self.uses += 1
        self.note_command_end()

    def remove(self) -> None:
        """Remove it with all that runs in it. Blocks."""
        if self.engine.remove_container(self.name):
            self._record.remove()
        else:
            log.warning("the container %s could not be removed", self.name)


def remove_left_containers(state_dir: Path) -> int:
    """Remove the containers of killed ouro processes; returns how many were removed. Blocks.

    If an engine does not remove its container, the record of the container stays. If the engine is
    gone, the record is deleted, and the container is not counted.
    """
    removed = 0
    for record in left_records(_records_dir(state_dir)):
        with suppress(OSError, ValueError, ToolError):
            about = json.loads(record.about or "{}")
            engine = _engine_in_record(about)
            if engine is None or engine.remove_container(record.path.name):
                _remove_own_folder(about.get("folder", ""))
                record.path.unlink(missing_ok=True)
                removed += engine is not None
    return removed


def _remove_own_folder(name: str) -> None:
    """Delete the private folder of a session."""
    # A damaged record must not name another folder.
    if Path(name).name.startswith(_OWN_FOLDER_PREFIX):
        shutil.rmtree(name, ignore_errors=True)


def _engine_in_record(about: Mapping[str, str]) -> ContainerEngine | None:
    """Returns the engine that a record names; None if it is unknown, or not installed any more."""
    name: EngineName | None = next((name for name in NAMES if name == about.get("engine")), None)
    program = about.get("program", "")
    return ContainerEngine(name, program) if name and os.access(program, os.X_OK) else None


def _records_dir(state_dir: Path) -> Path:
    return state_dir / "containers"


class Containers:
    """The containers of one session, each started when a command first needs it. Not thread-safe;
    everything blocks.

    Args:
        root: the workspace, resolved.
        state_dir: a private folder of ouro.
        settings: engine, image and limits.
        devcontainer: returns the project's devcontainer; raises ToolError if it cannot be used.
    """

    def __init__(
        self,
        root: Path,
        state_dir: Path,
        settings: SandboxSettings,
        devcontainer: Callable[[], DevContainer],
    ) -> None:
        self._root = root
        self._state_dir = state_dir
        self._settings = settings
        self._read_devcontainer = devcontainer
        self.running: dict[str, _Container] = {}
        """The container that new commands get, by the name of their limits."""
        self._retired: list[_Container] = []
        """Containers that are not used any more, but in which a command still runs."""
        self._folder: Path | None = None
        """The private folder of the session; None until it is needed."""
        self.verified_engine = ""
        """The name of the engine, once a container has passed its test; empty before."""

    @cached_property
    def engine(self) -> ContainerEngine:
        """Raises ToolError: none is installed."""
        return find_engine(self._settings.engine, (self._root,))

    @cached_property
    def plan(self) -> DevContainer:
        """The project's devcontainer, with the image that is used: `sandbox.image`, the one built
        from its Dockerfile, or the one that it names.

        Raises:
            ToolError: it cannot be used, or there is no image.
        """
        plan = self._read_devcontainer() if self._settings.devcontainer else DevContainer()
        if self._settings.image:
            plan = msgspec.structs.replace(plan, image=self._settings.image, build=None)
        if plan.build is not None:
            plan = msgspec.structs.replace(plan, image=plan.build.tag)
        if not plan.image:
            raise refusal_error(
                "The settings name a container, but no image",
                "Set `sandbox.image`, or `sandbox.devcontainer` where the project has one.",
            )
        if not _IMAGE_NAME.fullmatch(plan.image):  # otherwise it could be an option of the engine
            raise refusal_error(f"{plan.image!r} is not the name of an image")
        return plan

    def command(
        self,
        tag: int,
        argv: Sequence[str],
        limits: str,
        policy: SandboxPolicy,
        cwd: Path,
        *,
        pty: bool,
    ) -> ContainerCommand:
        """Returns the command line that runs `argv` in the container for these limits. A container
        is started if none fits.

        Args:
            tag: a number of this command alone. It is set as a memory limit in KB that has no
                effect, by which the processes of the command are found later.
            policy: what the command may touch. Of its paths the container has those that are below
                shared folders.
            cwd: the folder in which it runs, at the same path inside.
            pty: whether it gets a terminal.

        Raises:
            ToolError: it cannot be started, or does not confine what runs in it.
        """
        view = self._make_view(limits, policy)
        if not view.is_shared(cwd):
            raise refusal_error(
                f"{cwd} is not in the container",
                f"It has the workspace, {self._root}, and the folders added to it.",
            )
        container = self._reuse_or_start(view)
        mark = str(tag * 1024)  # the kernel shows the limit in bytes
        words = [self.engine.program, "exec", "--workdir", str(cwd)]
        if pty:
            words += ["--interactive", "--tty", *_environment_words(container_scripts.ATTENDED)]
        shell = ["/bin/sh", f"{SCRIPTS_FOLDER}/run", mark]
        return ContainerCommand(
            [*words, container.name, *shell, *argv], CommandInside(container, mark)
        )

    def start_and_remove(self, policy: SandboxPolicy) -> str:
        """Start a container, which verifies it, and remove it. Returns its engine and image as text
        for the user. Raises ToolError.
        """
        view = self._make_view("workspace", policy)
        container = self._reuse_or_start(view)
        container.remove()
        self.running.clear()
        return f"{self.engine.name}, image {self.plan.image}"

    def close(self) -> None:
        """Remove all containers at the same time, and then the private folder of the session."""
        containers = [*self.running.values(), *self._retired]
        threads = [threading.Thread(target=container.remove) for container in containers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.running.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _make_view(self, limits: str, policy: SandboxPolicy) -> ContainerView:
        """Returns what the container for these limits shares with this machine. The git directories
        of the workspace are shared too, because those of a worktree are elsewhere.
        """
        plan = self.plan
        git_dir, shared_dir = git_dirs(self._root)
        repository: list[Path] = []
        if git_dir is not None and shared_dir is not None:
            repository = [git_dir.resolve(), shared_dir.resolve()]
        elsewhere = [place for place in repository if not place.is_relative_to(self._root)]
        candidates = dict.fromkeys((*policy.visible, *elsewhere))
        visible = tuple(place for place in candidates if place.is_dir())
        policy = msgspec.structs.replace(policy, visible=visible)
        return ContainerView(limits, policy, self._root, plan.alias(self._root), plan.mounts)

    def _reuse_or_start(self, view: ContainerView) -> _Container:
        """Returns the running container for the limits of a view.

        A new one is started if there is none, if what it shares has changed since, or if it was
        lost. The old one is removed after its last command.
        """
        old, fingerprint = self.running.get(view.name), view.fingerprint()
        if old is not None and old.fingerprint == fingerprint and not old.is_lost:
            return old
        if old is not None:
            del self.running[view.name]  # it is not used again, even if the new one does not start
            old.retire()
            self._retired = [retired for retired in (*self._retired, old) if retired.uses]
        self.running[view.name] = container = self._start(view, fingerprint)
        self.verified_engine = self.engine.name
        return container

    def _start(self, view: ContainerView, fingerprint: tuple[object, ...]) -> _Container:
        """Start a container and verify what it can reach; it is removed if anything fails. Raises
        ToolError: the image is missing, the workspace cannot be shared, or the container does not
        start or does not confine.
        """
        self._require_image()
        if str(self._root) in _FOLDERS_OF_IMAGES:
            raise refusal_error(f"{self._root} cannot be shared with a container")
        name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        records = _records_dir(self._state_dir)
        engine = self.engine
        about = {
            "engine": engine.name,
            "program": engine.program,
            "folder": str(self._own_folder()),
        }
        # With the record another ouro can remove the container if this one is killed.
        record = ProcessRecord(records, name, json.dumps(about))
        container = _Container(self.engine, name, fingerprint, record)
        try:
            words = self._run_words(view, name)
            result = self.engine.call("run", *words, timeout=_START_TIMEOUT)
            if result.returncode:
                raise refusal_error(
                    f"{self.engine.name} cannot start a container: {last_line(result.stderr)}"
                )
            self._verify(view, name)
        except BaseException:
            container.remove()
            raise
        return container

    def _require_image(self) -> None:
        """Raise ToolError if the image is not on this machine, with the command that the user can
        run: ouro neither builds nor fetches an image.
        """
        plan, engine = self.plan, self.engine
        if engine.has_image(plan.image):
            return
        if plan.build is not None:
            command = plan.build.command(engine.name)
            raise refusal_error(
                "The image of the devcontainer is not built", f"The user can build it: `!{command}`"
            )
        raise refusal_error(
            f"The image {plan.image} is not on this machine",
            f"The user can fetch it: `!{engine.name} pull {plan.image}`.",
        )

    def _run_words(self, view: ContainerView, name: str) -> list[str]:
        """Returns the words after `run` that start the container `name`: without privileges,
        without network unless the policy has it, and with a read-only image.
        """
        network = "host" if view.policy.network else "none"
        words = [
            "--detach",
            "--pull=never",
            "--read-only",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--security-opt=label=disable",  # SELinux would refuse the workspace
            "--log-driver=none",
            "--no-healthcheck",
            f"--network={network}",
            f"--pids-limit={self._settings.max_processes + container_scripts.OWN_PROCESSES}",
            *_ulimit_words(self._settings),
            *self.engine.user_words(),
            f"--name={name}",
            f"--label=ouro.workspace={self._root}",
            f"--label=ouro.limits={view.name}",
            "--entrypoint=/bin/sh",
            "--workdir=/",
        ]
        words += _environment_words({**self.plan.environment, **self._environment()})
        words += [*all_mounts(view, self._own_folder()), *extra_mounts(view)]
        return [*words, self.plan.image, "-c", container_scripts.IDLE]

    def _environment(self) -> dict[str, str]:
        """The variables of commands in the container."""
        return {**child_environment(environment={}), "HOME": os.path.realpath(Path.home())}

    def _own_folder(self) -> Path:
        """Returns the private folder of the session; the first call makes it. It holds the scripts
        of ouro (`own`), and the home folder of the commands (`home`).
        """
        if self._folder is None:
            self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=_OWN_FOLDER_PREFIX)))
            home, own = self._folder / "home", self._folder / "own"
            home.mkdir()
            own.mkdir()
            self._write_author(home / ".gitconfig")
            (own / "run").write_text(container_scripts.RUN)
            (own / "signal").write_text(container_scripts.SIGNAL)
            (own / "verify").write_text(container_scripts.VERIFY)
            (own / "proof").write_text(secrets.token_hex(8))
        return self._folder

    def _write_author(self, path: Path) -> None:
        """Write settings of git with the user's name and address, for commits in the container."""
        git = Git(self._root, _GIT_SECONDS)
        lines = ["[user]"]
        for name in ("name", "email"):
            value = git.ask("config", f"user.{name}").strip()
            if value:
                quoted = value.replace("\\", "\\\\").replace('"', '\\"')
                lines.append(f'\t{name} = "{quoted}"')
        path.write_text("\n".join(lines) + "\n")

    def _verify(self, view: ContainerView, name: str) -> None:
        """Raise ToolError if a container does not confine what runs in it.

        A script in the container checks its rights and its network, and tries to change read-only
        places. It also compares the proof, a random text, with a file: so it is sure that the
        container shares the folder of the session.
        """
        proof = (self._own_folder() / "own" / "proof").read_text()
        read_only = [*view.read_only]
        if not view.may_write(self._root):
            read_only.insert(0, self._root)  # first: of many places only some are checked
        network = "host" if view.policy.network else "none"
        shell = (
            "/bin/sh",
            f"{SCRIPTS_FOLDER}/verify",
            str(self.engine.uid_inside),
            network,
            proof,
            *map(str, read_only[:_MAX_CHECKED]),
        )
        result = self.engine.call("exec", "--workdir", str(self._root), name, *shell)
        lines = result.stdout.strip().splitlines()
        if result.returncode == 0 and lines == [container_scripts.VERIFIED]:
            return
        reason = lines[0] if lines else last_line(result.stderr)
        raise refusal_error(
            f"The container of {self.engine.name} does not confine commands: {reason}"
        )


def _ulimit_words(settings: SandboxSettings) -> Iterator[str]:
    """Yield the options for the numbers of open files and processes, within the limits of this
    user. Without them an engine asks for more than its user may have, and fails.
    """
    import resource  # imported late, as elsewhere

    for name, kind, wanted in (
        ("nofile", resource.RLIMIT_NOFILE, settings.max_open_files),
        ("nproc", resource.RLIMIT_NPROC, _MAX_NPROC),
    ):
        _soft, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            limit = min(wanted, hard)
            yield f"--ulimit={name}={limit}:{limit}"


def _environment_words(variables: Mapping[str, str]) -> list[str]:
    """The options that set these variables in a container."""
    words: list[str] = []
    for name, value in variables.items():
        words += ("--env", f"{name}={value}")
    return words
