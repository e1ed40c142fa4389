"""The real program, with a model server on loopback and a repository."""

import pytest
from fakes.model_server import agent
from fakes.ouro_program import OuroProgram


@pytest.fixture
def ouro(model_server, repository):
    """The program in a repository; its model follows the lines of a prompt (see fakes.model_script.agent)."""
    model_server.script(agent)
    program = OuroProgram(model_server, repository)
    yield program
    program.close()
