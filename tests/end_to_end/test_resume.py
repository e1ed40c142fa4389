"""A session resumed in another process: what is sent begins with the very bytes that were sent before."""

import itertools
import json

import pytest
from fakes.model_server import ModelServer
from fakes.ouro_program import ANTHROPIC, OuroProgram


def sent_before(raw: bytes) -> bytes:
    """A request up to the end of its last message: what a provider can have in its cache."""
    text = raw.decode()
    start = text.index('"messages":') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[: end - 1].encode()


def without_cache_marks(raw: bytes) -> bytes:
    """Anthropic's marks say where to cache, and move on with the conversation; they are not what is cached."""
    return raw.replace(b',"cache_control":{"type":"ephemeral"}', b"")


@pytest.mark.parametrize("model", ["openai/test-model", ANTHROPIC])
def test_after_a_resume_a_request_begins_with_the_bytes_of_the_one_before(ouro, model):
    (ouro.folder / "long.txt").write_text("a long line of output: é\n" * 1500)
    odd = "run: printf 'tabs\\t, blanks \\n\\n--- ... and \\302\\205'"
    ouro.headless("-m", model, "-p", f"read: long.txt\nread: api.py\n{odd}")
    ouro.headless("-m", model, "--resume", "latest", "-p", "say: Once more.")
    ouro.headless("-m", model, "--resume", "latest", "-p", "read: api.py")

    requests = [without_cache_marks(request.raw) for request in ouro.server.requests]
    assert len(requests) >= 5
    for before, after in itertools.pairwise(requests):
        prefix = sent_before(before)
        assert after[: len(prefix)] == prefix


def test_a_session_reworded_by_hand_is_sent_as_it_was_edited(ouro: OuroProgram):
    server: ModelServer = ouro.server
    ouro.headless("-p", "say: The answer is 41.")
    [path] = (ouro.home / "sessions").glob("2*/session.yaml")
    by_hand = path.read_text().replace("is 41.", "is 42.")
    by_hand = by_hand.replace("---\nmessage: 2\n", "---\nrole: user\ntext: added by hand\n...\n---\nmessage: 2\n")
    path.write_text(by_hand)
    ouro.headless("--resume", "latest", "-p", "say: Yes.")

    sent = json.dumps(server.requests[-1].messages)
    assert sent.index("say: The answer is 42.") < sent.index("added by hand") < sent.rindex("The answer is 42.")
    assert "is 41." not in sent
