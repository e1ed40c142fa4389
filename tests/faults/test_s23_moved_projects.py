"""S23: a project that was moved or renamed: its sessions are found, never those of another project."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from fakes.agents import notices_of

from ouro.assemble import Options, open_session
from ouro.errors import SessionInUse, SessionNotFound
from ouro.llm import ScriptedModel
from ouro.session import OpenRequest


@pytest.fixture(autouse=True)
def no_background_calls(monkeypatch):
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")


@pytest.fixture
def places(tmp_path):
    """A folder with two projects, each a repository."""
    for folder in (tmp_path / "old", tmp_path / "other"):
        folder.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return tmp_path


async def opened(folder, resume="", **request):
    model = ScriptedModel(["Yes."])
    return await open_session(
        Options(folder, ready_model=model), OpenRequest(resume, trust="yes", **request)
    )


async def create_session_in(folder, text):
    session = await opened(folder)
    assert [event async for event in session.send(text)]
    await session.close()
    return session.id


async def test_s23_session_of_a_moved_project_is_found_by_id_with_a_notice(places):
    was = await create_session_in(places / "old", "mend the import")
    new = places / "new"
    (places / "old").rename(new)

    session = await opened(new, was[:8])
    assert session.id == was
    [notice] = [each for each in notices_of(session) if "does not exist" in each]
    assert (
        f"{places / 'old'}, the folder of this session, does not exist: it continues in {new}."
        in notice
    )
    assert (await session.resumed.card()).folder == str(new)
    await session.close()
    copy = await opened(new, was, fork=True)
    await copy.close()
    again = await opened(new, "latest")
    assert again.id == copy.id
    assert not [each for each in notices_of(again) if "is gone" in each]
    await again.close()


@pytest.mark.parametrize("with_git", [True, False])
async def test_s23_latest_finds_the_session_of_a_moved_folder(tmp_path, with_git):
    old, new = tmp_path / "first place", tmp_path / "second" / "place"
    (old / "src").mkdir(parents=True)
    new.parent.mkdir()
    if with_git:
        subprocess.run(["git", "init", "-q"], cwd=old, check=True)
    was = await create_session_in(old, "mend the import")
    inner = await create_session_in(old / "src", "mend the tests")
    old.rename(new)
    for folder, expected in ((new / "src", inner), (new, inner if with_git else was)):
        session = await opened(folder, "latest")
        assert session.id == expected
        assert [each for each in notices_of(session) if f"{old}" in each]
        await session.close()
    third = tmp_path / "third"
    new.rename(third)
    session = await opened(third, "latest")
    assert session.id in (was, inner)
    await session.close()


async def test_s23_a_new_folder_does_not_take_the_sessions_of_a_deleted_one(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    await create_session_in(old, "mend the import")
    number = old.stat().st_ino
    old.rmdir()
    for _ in range(50):  # until the disk gives the same number again, which ext4 does at once
        new.mkdir()
        if new.stat().st_ino == number:
            break
        new.rmdir()
    new.mkdir(exist_ok=True)
    with pytest.raises(SessionNotFound, match="No session of this folder yet"):
        await opened(new, "latest")


async def test_s23_latest_ignores_sessions_of_gone_and_other_folders(places):
    was = await create_session_in(places / "old", "mend the import")
    with pytest.raises(SessionNotFound):
        await opened(places / "other", "latest")
    shutil.rmtree(places / "old")
    with pytest.raises(SessionNotFound):
        await opened(places / "other", "latest")
    own = await create_session_in(places / "other", "another thing")
    session = await opened(places / "other", "latest")
    assert session.id == own
    assert (await session.session_catalog.find("mend the import")).id == was
    assert [each.id for each in await session.session_catalog.sessions_here()] == [own]
    await session.close()


async def test_s23_session_open_in_one_folder_cannot_be_written_from_another(places):
    was = await create_session_in(places / "old", "mend the import")
    holder = await opened(places / "old", was)
    with pytest.raises(SessionInUse):
        await opened(places / "other", was)
    looker = await opened(places / "other", was, read_only=True)
    assert (await looker.resumed.card()).folder == str(places / "other")
    assert not [each for each in notices_of(looker) if "is gone" in each]
    await looker.close()
    await holder.close()
