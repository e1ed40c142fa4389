"""A project that was moved, renamed or removed: its sessions are found by id, never by another
project's `latest`.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from fakes.turns import notices_of

from ouro.assemble import Options, open_session
from ouro.errors import SessionInUse, SessionNotFound
from ouro.llm import ScriptedModel
from ouro.session import OpenRequest

pytestmark = pytest.mark.usefixtures("no_background_calls")


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


async def test_session_of_a_moved_project_is_found_by_id_with_a_notice(places):
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
    with pytest.raises(SessionNotFound, match="No session of this folder yet"):
        await opened(new, "latest")

    copy = await opened(new, was, fork=True)
    await copy.close()
    again = await opened(new, "latest")
    assert again.id == copy.id
    assert not [each for each in notices_of(again) if "is gone" in each]
    await again.close()


async def test_latest_ignores_sessions_of_gone_and_other_folders(places):
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
    assert [each.id for each in await session.session_catalog.here()] == [own]
    await session.close()


async def test_session_open_in_one_folder_cannot_be_written_from_another(places):
    was = await create_session_in(places / "old", "mend the import")
    holder = await opened(places / "old", was)
    with pytest.raises(SessionInUse):
        await opened(places / "other", was)
    looker = await opened(places / "other", was, read_only=True)
    assert (await looker.resumed.card()).folder == str(places / "other")
    assert not [each for each in notices_of(looker) if "is gone" in each]
    await looker.close()
    await holder.close()
