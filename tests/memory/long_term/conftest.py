"""A remote of a memory."""

import pytest
from fakes.files import git


@pytest.fixture
def remote(tmp_path) -> str:
    """The address of a bare repository."""
    git(tmp_path, "init", "--bare", "--quiet", "remote.git")
    return str(tmp_path / "remote.git")
