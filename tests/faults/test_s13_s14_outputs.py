"""S13, S14: only the user can read long outputs; those of an ephemeral session are deleted with it."""

import os
import stat
import tempfile

import pytest

from ouro.assemble import Options, open_session
from ouro.llm import ScriptedModel
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.session import OpenRequest


@pytest.fixture
def umask_0():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(top) -> set[tuple[str, int]]:
    return {
        ("folder" if each.is_dir() else "file", stat.S_IMODE(each.stat().st_mode))
        for each in [top, *top.rglob("*")]
    }


async def opened(repository, store=None, **options):
    return await open_session(
        Options(repository, ready_model=ScriptedModel([]), **options), OpenRequest(), store
    )


async def test_s13_output_before_the_first_message_is_private(repository, home, umask_0):
    session = await opened(repository)
    assert [event async for event in session.background.run_line("seq 100000", share=False)]
    [kept] = (home / ".ouro" / "sessions").glob("*/outputs/*")
    assert kept.stat().st_size > 500_000
    assert modes(home / ".ouro" / "sessions") == {("folder", 0o700), ("file", 0o600)}
    assert stat.S_IMODE((home / ".ouro").stat().st_mode) == 0o700
    await session.close()


async def test_s14_outputs_of_an_ephemeral_session_are_private_and_removed(
    repository, tmp_path, monkeypatch, umask_0
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    session = await opened(repository, DictMemoryStore(), ephemeral=True)
    assert [event async for event in session.background.run_line("seq 100000", share=False)]
    [folder] = (tmp_path / "temporary").iterdir()
    assert session.id in folder.name  # an id that cannot be guessed
    assert modes(folder) == {("folder", 0o700), ("file", 0o600)}
    await session.close()
    assert list((tmp_path / "temporary").iterdir()) == []
