"""U1: an error message at the end of ouro sends no control sequence of foreign text to the
terminal.
"""

import pytest
from fakes.ouro_program import OuroProgram

OWNED = "a\x1b]0;owned\x07b\x1b[2Jc\u202ed\x9b31me"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "hi", "--cd", "{folder}"],
        ["-p", "hi", "--cd", "{folder}/none"],
        ["-p", "hi", "--model", OWNED],
        ["-p", "hi", "--resume", OWNED],
        ["-p", "hi", "--allow", f"shell({OWNED}"],
        ["sessions", "show", OWNED],
    ],
)
def test_u1_error_messages_contain_no_escape_sequence(tmp_path, model_server, arguments):
    folder = tmp_path / OWNED
    folder.mkdir()
    (folder / "AGENTS.md").write_text("be brief\n")
    ouro = OuroProgram(model_server, tmp_path)
    done = ouro.headless(*(each.replace("{folder}", str(folder)) for each in arguments))
    assert done.code != 0
    assert done.err.startswith("ouro")
    assert [
        each for each in ("\x1b", "\x07", "\x9b", "\u202e") if each in done.out + done.err
    ] == []
