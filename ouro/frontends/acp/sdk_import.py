"""The import of the SDK of the Agent Client Protocol, without its slow part."""

from __future__ import annotations


def import_sdk() -> None:
    """Import the SDK without making its validators.

    By default pydantic makes the validators of its 250 classes during the import. After this they
    are made when they are first used.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        import acp.schema  # noqa: F401
    finally:
        del BaseModel.model_config["defer_build"]
