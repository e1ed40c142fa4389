"""JsonObject: a decoded JSON object."""

from typing import Any

JsonObject = dict[str, Any]
