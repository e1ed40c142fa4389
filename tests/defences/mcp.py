"""Defences of ouro/mcp."""

from tests.defences.defence import Defence

DEFENCES = (
    Defence("R2", "ouro/mcp/servers.py", "if command and settings.sandbox:", "if False:",
            "../mcp/test_servers.py -k sandbox"),
    Defence("F2", "ouro/mcp/configuration.py", "if any(key in value for key in keys):", "if False:",
            "test_f1_f2_untrusted_folder.py -k key_of_a_provider"),
    Defence("F3", "ouro/mcp/definition.py", '{**msgspec.to_builtins(self), "problem": ""}',
            "[self.name, self.description]", "test_f3_f5_servers.py -k f3"),
    Defence("E1", "ouro/mcp/definition.py", "if before is None or before.digest != tool.digest:", "if before is None:",
            "../mcp/test_servers.py -k e1"),
    Defence("E2", "ouro/mcp/servers.py", " and self.failures <= MAX_RESTARTS", "", "../mcp/test_servers.py -k e2"),
    Defence("E12", "ouro/mcp/connection.py", 'size_problem(item.get("inputSchema"))', 'size_problem("")', "test_e12_odd_schemas.py"),
    Defence("E12", "ouro/mcp/stdio.py", "if is_too_deep(error):", "if False:", "test_e12_odd_schemas.py -k no_parser"),
    Defence("E12", "ouro/mcp/schemas.py", "if next(steps_left, None) is None:", "if False:", "test_e12_odd_schemas.py -k lost_or_delayed"),
    Defence("E12", "ouro/mcp/connection.py", "self._output_schemas.get(tool)", "None", "test_e12_odd_schemas.py -k does_not_fit"),
    Defence("E16", "ouro/mcp/configuration.py", "if name in withheld:", "if False:", "test_e16_named_programs.py -k secret_variable"),
    Defence("E16", "ouro/mcp/servers.py", "if self._is_project else ()", "if False else ()", "test_e16_named_programs.py -k started_with_it"),
    Defence("F4", "ouro/mcp/configuration.py", " if _PASSED_VARIABLES.fullmatch(name)", "",
            "../mcp/test_servers.py -k f4_server_gets"),
)  # fmt: skip
