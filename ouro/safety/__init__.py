"""Permissions, the workspace, trust of folders, and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.safety.checkpoints.checkpoint_repository import GitFailed
    from ouro.safety.checkpoints.checkpoints import Checkpoints, TurnFiles
    from ouro.safety.checkpoints.cleaning import (
        clean_checkpoints,
        stored_checkpoints,
        workspaces_changed_by,
    )
    from ouro.safety.checkpoints.finish_after_exit import finish_later, has_question, needs_recovery
    from ouro.safety.checkpoints.late_checkpoints import LateCheckpoints
    from ouro.safety.checkpoints.nested_repositories import missing_submodules, submodules
    from ouro.safety.checkpoints.part_undo import PartUndo
    from ouro.safety.checkpoints.trees import TreeChange, is_inside
    from ouro.safety.checkpoints.turn_diffs import TurnDiffs
    from ouro.safety.checkpoints.undo import MERGED, NOT_KNOWN, Restored, Undo
    from ouro.safety.environment import child_environment, secret_values
    from ouro.safety.permissions import Permissions
    from ouro.safety.project_programs import scripted_values
    from ouro.safety.protected import reserved_area
    from ouro.safety.rules import (
        Allow,
        Ask,
        Decision,
        Deny,
        Effect,
        Kind,
        Limits,
        Mode,
        RuleStore,
        narrower,
        parse_rule,
        parse_rules,
    )
    from ouro.safety.sandbox.confinement import Confinement
    from ouro.safety.sandbox.container_confinement import ContainerConfinement
    from ouro.safety.sandbox.containers import CommandInside, remove_left_containers
    from ouro.safety.sandbox.devcontainer import (
        DevContainer,
        describe_devcontainer,
        devcontainer_files,
        read_devcontainer,
    )
    from ouro.safety.sandbox.reverted_files import NotMovedError, RevertedFile
    from ouro.safety.sandbox.sandboxes import choose_sandbox
    from ouro.safety.sandbox.temp_folder import remove_left_temp_folders
    from ouro.safety.secrets import SecretMask, SecretScanner, is_secret_name
    from ouro.safety.shell.parse import parse_line
    from ouro.safety.trust import (
        CLAUDE_SETTINGS,
        CONFIG_FILE,
        EXTENSION_FOLDERS,
        FILE_KINDS,
        LOCAL_INSTRUCTIONS,
        MAX_FILES,
        MCP_FILE,
        FoundInstructions,
        TrustStore,
        acting_files,
        extension_files,
        files_below,
        instruction_files,
        instructions_in,
        programs_of,
        with_imports,
    )
    from ouro.safety.workspace import GIT_CONFIG, Access, FilePlace, GuardedMemory, Workspace

__getattr__ = lazy_exports(__name__)
