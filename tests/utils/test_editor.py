"""The user's editor: error messages if it fails."""

import pytest

from ouro.errors import UsageError
from ouro.utils.editor import run_on_text


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("false", "false ended with exit code 1; nothing was changed."),
        ("sh -c 'kill -TERM $$'", "ended with Terminated; nothing was changed."),
        ("no-such-editor", "no-such-editor could not be started: No such file or directory."),
        ("vi 'x", "could not be started: No closing quotation."),
    ],
)
async def test_editor_failure_is_reported(command, told):
    with pytest.raises(UsageError) as failure:
        await run_on_text(command, "a.md", "text")
    assert failure.value.message.endswith(told)
