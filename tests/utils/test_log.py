"""The log: written to one file, never to the screen."""

import errno
import io
import logging

from ouro.utils.log import log, mask_log, start_log
from ouro.utils.ouro_paths import get_log_path


def test_the_log_is_a_private_file_and_passes_the_mask(capfd):
    before = logging.getLogger().handlers[:]
    start_log()
    mask_log(lambda text: text.replace("hunter2", "***"))
    try:
        raise ValueError("the key hunter2 is wrong")
    except ValueError:
        log.exception("failed with %s", "hunter2")
    finally:
        logging.getLogger().handlers[:] = before
    text = get_log_path().read_text()
    assert "failed with ***" in text
    assert "ValueError: the key *** is wrong" in text
    assert "hunter2" not in text
    assert get_log_path().stat().st_mode & 0o777 == 0o600
    assert capfd.readouterr() == ("", "")


class FullDisk(io.StringIO):
    """Refuses every write, as /dev/full does."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_s2_unwritable_log_prints_nothing(capfd, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", True)
    before = logging.getLogger().handlers[:]
    start_log()
    try:
        [handler] = logging.getLogger().handlers
        handler.setStream(FullDisk())
        log.warning("nowhere to go")
    finally:
        logging.getLogger().handlers[:] = before
    assert capfd.readouterr() == ("", "")
