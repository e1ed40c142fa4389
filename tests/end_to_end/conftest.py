"""ouro as users start it: its own process, a model server on loopback, a repository."""

import pytest
from fakes.model_server import agent
from fakes.ouro_program import OuroProgram


@pytest.fixture
def ouro(model_server, repository):
    """The program, in a repository; the model does what the lines of a prompt say (see fakes.model_script.agent)."""
    model_server.script(agent)
    program = OuroProgram(model_server, repository)
    yield program
    program.close()
