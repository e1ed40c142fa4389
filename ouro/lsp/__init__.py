"""LSP: the errors that language servers find after changes, and their symbols, definitions and
references.
"""

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.lsp.configuration import LanguageServerSpec, find_language_servers
    from ouro.lsp.servers import LanguageServer, LanguageServers, LspHost
    from ouro.lsp.tools import Lsp

__getattr__ = lazy_exports(__name__)
