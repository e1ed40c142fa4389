"""RuleStore: the rules saved by "always", by project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ouro.errors import ConfigError
from ouro.safety.rules import parse_rule
from ouro.utils.files import lock_file, write_private
from ouro.utils.runtime import ensure_private_dir

_MAX_BYTES = 1_000_000


class RuleStore:
    """The saved rules of one project, in one file for all projects, readable by the user alone."""

    def __init__(self, path: Path, project: Path) -> None:
        self._path = path
        self._project = str(project.resolve())

    def load(self) -> tuple[str, ...]:
        """The project's rules, oldest first; none when there is no file.

        Raises:
            ConfigError: the file does not hold rules; it is left as it is.
        """
        return tuple(self._read().get(self._project, ()))

    def add(self, rule: str) -> None:
        """Save a rule; it is on disk when this returns. Rules of other sessions stay.

        Raises:
            ConfigError: the file does not hold rules.
            OSError: it cannot be written.
        """
        parse_rule(rule)
        ensure_private_dir(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            projects = self._read()
            kept = projects.setdefault(self._project, [])
            if rule not in kept:
                kept.append(rule)
                self._write(projects)

    def _read(self) -> dict[str, list[str]]:
        import yaml

        try:
            with self._path.open("rb") as file:
                text = file.read(_MAX_BYTES)
            if b"&" in text and b"*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
                raise ConfigError(f"{self._path} holds YAML aliases.", "Write each rule out.")
            return self._checked(yaml.safe_load(text) or {})
        except FileNotFoundError:
            return {}
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self._path} cannot be read: {error}", "Repair it, or move it away.") from error

    def _checked(self, data: Any) -> dict[str, list[str]]:
        fits = isinstance(data, dict) and all(
            isinstance(name, str) and isinstance(rules, list) and all(isinstance(rule, str) for rule in rules)
            for name, rules in data.items()
        )
        if not fits:
            raise ConfigError(f"{self._path} does not hold lists of rules by folder.", "Repair it, or move it away.")
        for rule in data.get(self._project, ()):
            parse_rule(rule)
        return dict(data)

    def _write(self, projects: dict[str, list[str]]) -> None:
        import yaml

        text = yaml.safe_dump(projects, allow_unicode=True, sort_keys=True)
        write_private(
            self._path, f'# Rules from the answer "always", by folder. Delete a line to be asked again.\n{text}'
        )
