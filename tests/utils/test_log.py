"""The log: one file, never the screen."""

import logging

from ouro.utils.log import log, mask_log, start_log
from ouro.utils.runtime import get_log_path


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
