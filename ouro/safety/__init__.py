"""Permissions, the workspace, trust of folders, and secrets."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.safety.decision import Allow as Allow
    from ouro.safety.decision import Ask as Ask
    from ouro.safety.decision import Decision as Decision
    from ouro.safety.decision import Deny as Deny
    from ouro.safety.decision import Effect as Effect
    from ouro.safety.decision import Mode as Mode
    from ouro.safety.environment import NoSandbox as NoSandbox
    from ouro.safety.environment import Sandbox as Sandbox
    from ouro.safety.environment import child_environment as child_environment
    from ouro.safety.guarded_memory import GIT_CONFIG as GIT_CONFIG
    from ouro.safety.guarded_memory import GuardedMemory as GuardedMemory
    from ouro.safety.permissions import Permissions as Permissions
    from ouro.safety.rule_store import RuleStore as RuleStore
    from ouro.safety.rules import Rule as Rule
    from ouro.safety.rules import parse_rule as parse_rule
    from ouro.safety.rules import parse_rules as parse_rules
    from ouro.safety.secret_scanner import SecretScanner as SecretScanner
    from ouro.safety.secret_scanner import shared_scanner as shared_scanner
    from ouro.safety.secrets import SecretMask as SecretMask
    from ouro.safety.secrets import is_secret_name as is_secret_name
    from ouro.safety.secrets import secret_values as secret_values
    from ouro.safety.trust import CONFIG_FILE as CONFIG_FILE
    from ouro.safety.trust import TrustStore as TrustStore
    from ouro.safety.trust import acting_files as acting_files
    from ouro.safety.trust import instruction_files as instruction_files
    from ouro.safety.workspace import Access as Access
    from ouro.safety.workspace import FilePlace as FilePlace
    from ouro.safety.workspace import Workspace as Workspace

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
