"""Sessions without calls of a model beside the turns."""

import pytest


@pytest.fixture
def no_titles(monkeypatch):
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")


@pytest.fixture
def no_background_calls(no_titles, monkeypatch):
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
