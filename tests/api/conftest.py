"""The Python API: agents with scripted models, and a project with a model server."""

from __future__ import annotations

import pytest
import yaml
from PIL import Image as Pillow

from ouro import Agent
from ouro.llm import ScriptedModel


@pytest.fixture
def project(model_server, repository, home, monkeypatch):
    """A repository with a picture, as the working folder; the model is a server on loopback."""
    (home / ".ouro").mkdir(mode=0o700)
    entry = {"api_base": model_server.openai_url, "api_key": "k", "window": 100_000, "images": True}
    models = {"default": "openai/test-model", "models": {"openai/test-model": entry}}
    (home / ".ouro/models.yaml").write_text(yaml.safe_dump(models))
    (home / ".ouro/models.yaml").chmod(0o600)
    Pillow.new("RGB", (4, 4)).save(repository / "shot.png")
    monkeypatch.chdir(repository)
    return repository


@pytest.fixture
def agent_of(repository):
    """Opens agents with a scripted model, without long-term memory."""

    def make(*script, kind=Agent, **options):
        model = (
            script[0] if script and isinstance(script[0], ScriptedModel) else ScriptedModel(script)
        )
        return kind(repository, **{"model": model, "memory": False, **options})

    return make
