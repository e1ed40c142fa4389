"""JSON schemas: a class that validates by one."""

from __future__ import annotations

from typing import Any

from ouro.errors import UsageError


def validator_of(schema: Any) -> Any:
    """The class of `jsonschema` that validates by this schema.

    Raises:
        UsageError: it is not a JSON schema.
    """
    import jsonschema  # late: 60 ms, and only answers with a schema need it

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(f"The schema is not a JSON schema: {error.message}") from error
    return kind
