"""B9: temporary files of the commands of a killed ouro."""

import signal
import subprocess
import sys

from ouro.safety import Confinement, remove_left_temp_folders
from ouro.tools.shell_process import clean_up_orphans
from ouro.utils.ouro_paths import get_home

_SESSION = """
import signal, sys
from pathlib import Path
from ouro.safety.sandbox.temp_folder import TempFolder
folder = TempFolder(Path(sys.argv[1]))
(folder.path / "built.o").write_text("x")
print(folder.path, flush=True)
signal.pause()
"""


class Session:
    """A process with a temporary folder."""

    def __init__(self, state_dir):
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SESSION, str(state_dir)], stdout=subprocess.PIPE, text=True
        )
        self.folder = type(state_dir)(self.process.stdout.readline().strip())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


async def test_b9_folder_of_a_killed_ouro_is_deleted_and_that_of_a_living_one_stays(home):
    killed, living = Session(get_home() / "sandbox"), Session(get_home() / "sandbox")
    killed.kill()
    assert (killed.folder / "built.o").exists()

    await clean_up_orphans(lambda _text: None, home)

    assert not killed.folder.exists()
    assert (living.folder / "built.o").exists()
    assert len(list((get_home() / "sandbox/temp").iterdir())) == 1
    living.kill()
    await clean_up_orphans(lambda _text: None, home)
    assert not living.folder.exists()


def test_b9_a_record_that_names_something_else_deletes_nothing(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    records = tmp_path / "state/temp"
    records.mkdir(parents=True)
    (records / "ouro-abc").write_text(str(work))
    (records / "ouro-link").write_text(str(tmp_path / "ouro-link"))
    (tmp_path / "ouro-link").symlink_to(work)
    (records / "ouro-empty").write_text("")

    remove_left_temp_folders(tmp_path / "state")

    assert work.is_dir()
    assert list(records.iterdir()) == []


def test_b9_without_a_record_commands_run_all_the_same(tmp_path):
    (tmp_path / "state").write_text("no folder")
    confinement = Confinement(tmp_path, tmp_path / "state")
    confinement.wrap(["true"], "workspace")
    folder = confinement._temp.path
    assert folder.is_dir()
    confinement.close()
    assert not folder.exists()
