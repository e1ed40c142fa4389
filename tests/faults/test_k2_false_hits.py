"""K2: masking leaves code and prose unchanged, is idempotent, and keeps YAML valid."""

import sysconfig
from pathlib import Path

import pytest
from fakes.tool_benches import ready_mask

from ouro.memory.safe_yaml import dump, load

MODULES = (
    "base64 configparser ftplib getpass hashlib hmac http/client http/cookiejar imaplib ipaddress"
    " mailbox netrc os pathlib secrets shutil smtplib socket ssl subprocess token tokenize"
    " urllib/parse urllib/request uuid"
)


@pytest.fixture(scope="module")
def mask():
    return ready_mask()


def test_k2_at_most_four_false_hits_in_twenty_thousand_lines_of_code(mask):
    library = Path(sysconfig.get_path("stdlib"))
    found = [library / f"{name}.py" for name in MODULES.split()]
    texts = [path.read_text() for path in found if path.exists()]
    lines = [line for text in texts for line in text.splitlines()]
    assert len(lines) > 20_000

    changed = [line for text in texts for line in mask(text).splitlines() if "[secret:" in line]

    assert len(changed) * 20_000 / len(lines) <= 4, changed


def test_k2_masking_is_idempotent_and_keeps_yaml_valid(mask):
    from faults.test_k1_secrets_written import SHAPES, documented_secrets

    texts = [shape.format(secret) for _, secret in documented_secrets() for shape in SHAPES]
    masked = [mask(text) for text in texts]

    assert [text for text in masked if mask(text) != text] == []
    assert load(dump({"texts": masked}).encode()) == {"texts": masked}


def test_k2_the_same_secret_always_gets_the_same_placeholder(mask):
    once, again = (mask(f"{name}=tr0ub4dor3x") for name in ("DB_PASSWORD", "db_password"))

    assert once.partition("=")[2] == again.partition("=")[2] != "tr0ub4dor3x"
