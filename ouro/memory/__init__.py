"""Memory: sessions, their search index, and long-term memory."""

from ouro.utils.lazy_exports import lazy_exports

TYPE_CHECKING = False  # without `typing`: a start imports this before anything else
if TYPE_CHECKING:
    from ouro.memory.backend import MemoryStore
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.manager import MemoryManager
    from ouro.memory.yaml_backend import YamlFileMemoryStore

__getattr__ = lazy_exports(__name__)
