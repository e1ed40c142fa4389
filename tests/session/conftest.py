"""Sessions that make no calls in the background."""

import pytest


@pytest.fixture
def no_titles(monkeypatch):
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")


@pytest.fixture
def no_background_calls(no_titles, monkeypatch):
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
