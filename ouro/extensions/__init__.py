"""Extensions: commands, skills and agents that users add as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.extensions.agents import load_agents
    from ouro.extensions.commands import (
        CommandPrompt,
        CommandRegistry,
        CustomCommand,
        Insert,
        agent_of,
        command_of,
        prompt_of,
    )
    from ouro.extensions.correction_checks import Check, Checks
    from ouro.extensions.discovery import ExtensionFile, FileKind, find_files
    from ouro.extensions.hook_calls import own_arguments, response_data, tool_data
    from ouro.extensions.hook_files import (
        EVENTS,
        Hook,
        check_matchers,
        kind_of,
        load_hooks,
    )
    from ouro.extensions.hooks import (
        HookRun,
        Hooks,
        HookServices,
        forbids,
    )
    from ouro.extensions.known_names import unused_keys
    from ouro.extensions.plugins import (
        Plugin,
        changed_files,
        describe_plugin,
        fetch_plugin,
        install,
        installed_plugins,
        plugin_folder,
        plugin_tables,
        remove,
    )
    from ouro.extensions.skills import Skill, Skills
    from ouro.extensions.status_script import StatusScript
    from ouro.extensions.styles import NO_STYLE, OutputStyles
    from ouro.extensions.tool_files import (
        OwnTool,
        ToolFileHost,
        find_tool_files,
        load_file_tools,
        variables_of_user,
    )
    from ouro.extensions.tool_names import (
        MODES,
        demand_rules,
        demand_tools,
        names_elsewhere,
        own_rule,
    )
    from ouro.extensions.trust_summary import describe_files

__getattr__ = lazy_exports(__name__)
