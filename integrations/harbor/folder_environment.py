"""A folder in place of a container, to try the agent without Docker. It confines nothing.

`harbor run --environment-import-path folder_environment:FolderEnvironment`. The paths of a container
(`/app`, `/logs`, `/tests` …) are folders of it: commands and shell scripts that name them are rewritten.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

_NAMES = ("app", "logs", "tests", "solution", "installed-agent")
_INSIDE = re.compile(rf"(?<![\w./-])/({'|'.join(_NAMES)})(?![\w.-])")


class FolderEnvironment(BaseEnvironment):
    """The files of `environment/` are copied to `app`, where commands run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._root = Path(tempfile.mkdtemp(prefix="harbor-folder-"))

    @staticmethod
    @override
    def type() -> str:
        return "folder"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    @override
    def _validate_definition(self) -> None:
        """No Dockerfile is needed."""

    @override
    async def start(self, force_build: bool) -> None:
        for name in (*_NAMES, "logs/agent", "logs/verifier", "logs/artifacts"):
            (self._root / name).mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.environment_dir, self._root / "app", dirs_exist_ok=True)

    @override
    async def stop(self, delete: bool) -> None:
        if delete:
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    def _place(self, path: str | Path) -> Path:
        return Path(self._translate(str(path)))

    def _translate(self, text: str) -> str:
        return _INSIDE.sub(lambda found: f"{self._root}/{found[1]}", text)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        _copy_file(Path(source_path), self._place(target_path))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        target = self._place(target_dir)
        shutil.copytree(source_dir, target, dirs_exist_ok=True)
        for script in target.rglob("*.sh"):
            script.write_text(self._translate(script.read_text()))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        _copy_file(self._place(source_path), Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._place(source_dir), target_dir, dirs_exist_ok=True)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        merged = self._merge_env(env) or {}
        values = {name: self._translate(value) for name, value in merged.items()}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self._translate(command),
            cwd=self._place(cwd or "/app"),
            env={**os.environ, **values},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout_sec):
                output, errors = await process.communicate()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return ExecResult(stdout="", stderr="timed out", return_code=124)
        return ExecResult(
            stdout=output.decode(errors="replace"),
            stderr=errors.decode(errors="replace"),
            return_code=process.returncode or 0,
        )


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
