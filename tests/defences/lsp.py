"""Defences of ouro/lsp."""

from tests.defences.defence import Defence

DEFENCES = (
    Defence("E14", "ouro/lsp/stdio.py", "if self._count_bytes(length):", "if False:",
            "test_e14_language_servers.py -k floods"),
    Defence("E14", "ouro/lsp/stdio.py", "if garbage > MAX_GARBAGE:", "if False:", "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/stdio.py", "if length > MAX_MESSAGE:", "if False:",
            "test_e14_language_servers.py -k announced_as_huge"),
    Defence("E14", "ouro/lsp/diagnostics.py", "if path is None or not path.is_relative_to(self._root):", "if path is None:",
            "test_e14_language_servers.py -k files_of_others"),
    Defence("E14", "ouro/lsp/connection.py", "if self._silent >= MAX_SILENT:", "if False:",
            "test_e14_language_servers.py -k ended_after_some_changes"),
    Defence("E14", "ouro/lsp/servers.py", 'if self.state == "failed" and self.failures > MAX_RESTARTS:', "if False:",
            "test_e14_language_servers.py"),
    Defence("E14", "ouro/lsp/configuration.py", "filter(os.path.isabs, search_path.split(os.pathsep))",
            "search_path.split(os.pathsep)", "test_e14_language_servers.py -k program_of_the_working_folder"),
)  # fmt: skip
