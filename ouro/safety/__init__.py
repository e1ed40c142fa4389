"""Permissions, the workspace, trust of folders, and secrets."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.safety.decision import Allow, Ask, Decision, Deny, Effect, Mode
    from ouro.safety.environment import NoSandbox, Sandbox, child_environment
    from ouro.safety.guarded_memory import GIT_CONFIG, GuardedMemory
    from ouro.safety.permissions import Permissions
    from ouro.safety.rule_store import RuleStore
    from ouro.safety.rules import Rule, parse_rule, parse_rules
    from ouro.safety.secret_scanner import SecretScanner, shared_scanner
    from ouro.safety.secrets import SecretMask, is_secret_name, secret_values
    from ouro.safety.trust import CONFIG_FILE, TrustStore, acting_files, instruction_files
    from ouro.safety.workspace import Access, FilePlace, Workspace

_MODULES = {
    "decision": "Allow Ask Decision Deny Effect Mode",
    "environment": "NoSandbox Sandbox child_environment",
    "guarded_memory": "GIT_CONFIG GuardedMemory",
    "permissions": "Permissions",
    "rule_store": "RuleStore",
    "rules": "Rule parse_rule parse_rules",
    "secret_scanner": "SecretScanner shared_scanner",
    "secrets": "SecretMask is_secret_name secret_values",
    "trust": "CONFIG_FILE TrustStore acting_files instruction_files",
    "workspace": "Access FilePlace Workspace",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import an export at its first use, so that start-up loads none."""
    if name not in _MODULE_OF:
        raise AttributeError(name)
    return getattr(import_module(f"ouro.safety.{_MODULE_OF[name]}"), name)
