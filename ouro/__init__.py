"""ouro: a terminal coding agent that remembers. What programs use is imported at first use; see
docs/api.md.
"""

from ouro.utils.lazy_exports import lazy_exports

TYPE_CHECKING = False  # without `typing`, which takes a third as long as Python's own start
if TYPE_CHECKING:
    from ouro.api import Agent, AsyncAgent
    from ouro.api_options import AgentOptions
    from ouro.errors import OuroError
    from ouro.events import Permit, Reply
    from ouro.frontends.headless.output import Result
    from ouro.session import Point, Rewound
    from ouro.tools.function_tool import tool

__version__ = "0.2.0"

__getattr__ = lazy_exports(__name__)
