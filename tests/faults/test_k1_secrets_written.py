"""K1: secrets in every form; no file that ouro wrote contains one."""

import base64
import random
import re
import string
from pathlib import Path
from urllib.parse import quote

import pytest
from fakes.tool_benches import ready_mask

from ouro.display import CommandOutput, Diff, Display, FileChange
from ouro.memory.manager import MemoryManager
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Thinking, ToolCall, ToolReply, tool, user
from ouro.safety import SecretMask, secret_values, secrets

ALPHABETS = {
    "w": string.ascii_letters + string.digits,
    "x": string.ascii_letters + string.digits + "_-",
    "l": string.ascii_letters,
    "U": string.ascii_uppercase + string.digits,
    "B": string.ascii_uppercase + "234567",
    "h": "0123456789abcdef",
    "d": string.digits,
}
# The formats as their issuers' public documentation describes them; `<w20>` is twenty random
# letters or digits.
DOCUMENTED = {
    "Adafruit IO key": "aio_<w28>",
    "Airtable personal token": "pat<w14>.<h64>",
    "Anthropic API key": "sk-ant-api03-<x93>AA",
    "Artifactory API key": "AKCp<w69>",
    "Atlassian API token": "ATATT3xFfGF0<x180>=<h8>",
    "AWS access key id": "AKIA<B16>",
    "AWS session access key id": "ASIA<B16>",
    "Brevo key": "xkeysib-<h64>-<w16>",
    "Clojars token": "CLOJARS_<h60>",
    "Databricks token": "dapi<h32>",
    "DigitalOcean token": "dop_v1_<h64>",
    "DigitalOcean refresh token": "dor_v1_<h64>",
    "Docker Hub token": "dckr_pat_<x27>",
    "Discord bot token": "MTIzNDU2Nzg5MDEyMzQ1Njc4OQ.<x6>.<x38>",
    "Discord user token": "mfa.<x84>",
    "Doppler token": "dp.pt.<w43>",
    "Dynatrace token": "dt0c01.<B24>.<B64>",
    "EasyPost key": "EZAK<w54>",
    "Figma token": "figd_<x40>",
    "Fly.io token": "fo1_<x43>",
    "GitHub personal token": "ghp_<w36>",
    "GitHub fine-grained token": "github_pat_<w22>_<w59>",
    "GitHub server token": "ghs_<w36>",
    "GitLab personal token": "glpat-<x20>",
    "GitLab runner token": "glrt-<x20>",
    "Google API key": "AIza<x35>",
    "Google OAuth token": "ya29.<x68>",
    "Google OAuth client secret": "GOCSPX-<x28>",
    "Grafana service account token": "glsa_<w32>_<h8>",
    "Groq key": "gsk_<w52>",
    "Hugging Face token": "hf_<l34>",
    "Linear key": "lin_api_<w40>",
    "Mailgun key": "key-<h32>",
    "Mailgun sending key": "<h32>-<h8>-<h8>",
    "New Relic user key": "NRAK-<U27>",
    "Notion token": "ntn_<d11><w35>",
    "npm token": "npm_<w36>",
    "OpenAI project key": "sk-proj-<x74>T3BlbkFJ<x74>",
    "PlanetScale token": "pscale_tkn_<x43>",
    "Postman key": "PMAK-<h24>-<h34>",
    "Pulumi token": "pul-<h40>",
    "PyPI token": "pypi-AgEIcHlwaS5vcmc<x130>",
    "Replicate token": "r8_<w37>",
    "RubyGems key": "rubygems_<h48>",
    "SendGrid key": "SG.<x22>.<x43>",
    "Sentry user token": "sntryu_<h64>",
    "Shopify token": "shpat_<h32>",
    "Slack bot token": "xoxb-<d12>-<d13>-<w24>",
    "Slack app token": "xapp-1-A<U10>-<d13>-<h64>",
    "Square token": "EAAA<x60>",
    "Stripe secret key": "sk_live_<w24>",
    "Stripe restricted key": "rk_live_<w24>",
    "Tailscale key": "tskey-auth-<w17>-<w33>",
    "Telegram bot token": "<d10>:AA<x33>",
    "Terraform Cloud token": "<w14>.atlasv1.<w67>",
    "Twilio key id": "SK<h32>",
    "Vault service token": "hvs.<x95>",
    "xAI key": "xai-<w80>",
}
SHAPES = [
    "{}",
    "the key is {} ok?",
    'KEY="{}"',
    '{{"value": "{}"}}',
    "export X={}\nls",
    "  Value: {}\n",
]


def documented_secrets() -> list[tuple[str, str]]:
    drawn = random.Random(20261121)

    def filled(hole: re.Match[str]) -> str:
        return "".join(drawn.choice(ALPHABETS[hole[1]]) for _ in range(int(hole[2])))

    return [(what, re.sub(r"<(\w)(\d+)>", filled, form)) for what, form in DOCUMENTED.items()]


@pytest.fixture(scope="module")
def mask():
    return ready_mask()


def is_caught(secret: str, shown: str) -> bool:
    """Whether fewer than ten consecutive characters are left."""
    return not any(secret[start : start + 10] in shown for start in range(len(secret) - 9))


@pytest.mark.parametrize(
    "form",
    [
        "MTE5OTg3NjU0MzIxMDk4NzY1NA.GxYz<w2>.<x38>",
        "NRAK-<U27>",
        "<h36>NRAL",
        "NRII-<x32>",
        "crsr_<h64>",
        "key_<h64>",
        "AQ.Ab8RN6<x44>",
        "AQ.Cd<x40>",
    ],
)
def test_k1_keys_of_agents_chats_and_monitors_are_always_caught(mask, form):
    drawn = random.Random(form)
    fill = lambda hole: "".join(drawn.choice(ALPHABETS[hole[1]]) for _ in range(int(hole[2])))  # noqa: E731
    secret = re.sub(r"<(\w)(\d+)>", fill, form)

    for shape in (*SHAPES, "it answered {} to me", "- {}\n"):
        assert is_caught(secret, mask(shape.format(secret)))


def test_k1_nine_in_ten_documented_token_formats_are_caught(mask):
    drawn = [
        (what, secret, shape.format(secret))
        for what, secret in documented_secrets()
        for shape in SHAPES
    ]

    missed = [(what, text) for what, secret, text in drawn if not is_caught(secret, mask(text))]

    assert len(missed) <= len(drawn) // 10, sorted({what for what, _ in missed})
    assert not [what for what, _ in missed if what.startswith(("Discord", "Mailgun", "Telegram"))]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://app:s3cr3tPassw0rd@db.local:5432/x", "s3cr3tPassw0rd"),
        ("curl -H 'Authorization: Basic dXNlcjpwYXNzd29yZDEyMw=='", "dXNlcjpwYXNzd29yZDEyMw"),
        ("Authorization: Bearer 9f8e7d6c5b4a39281706", "9f8e7d6c5b4a39281706"),
        ("Cookie: session=8d7f6a5b4c3d2e1f00; theme=dark", "8d7f6a5b4c3d2e1f00"),
        ("machine example.invalid login me password tr0ub4dor", "tr0ub4dor"),
        ("db.local:5432:app:me:tr0ub4dor", "tr0ub4dor"),
        ("mysql --password=tr0ub4dor3 -h x", "tr0ub4dor3"),
        ("curl -u me:tr0ub4dor3 https://x.invalid", "tr0ub4dor3"),
        ("DB_PASSWORD=tr0ub4dor3", "tr0ub4dor3"),
        ("DB_PA\u017f\u017fWORD=tr0ub4dor3", "tr0ub4dor3"),
        ("Set-Coo\u212aie: session=8d7f6a5b4c3d2e1f00", "8d7f6a5b4c3d2e1f00"),
        ('{"client_secret": "tr0ub4dor3&x"}', "tr0ub4dor3&x"),
        (f"https://discord.com/api/webhooks/1234567890123456789/{'aB3x' * 17}", "aB3x" * 17),
        (f"https://api.telegram.org/bot1234567890:AA{'xY9' * 11}/getMe", "xY9" * 11),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq0nXxq\nMIIEpAIBAAKC", "MIIEpAIBAAKCAQEA7bq0nXxq"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "dozjgNryP4J3jVmNHl0w5N"),
    ],
)  # fmt: skip
def test_k1_secret_with_a_name_or_known_position_is_masked(mask, text, secret):
    assert secret not in mask(text)


def test_k1_prefilters_skip_no_pattern_that_matches(mask, monkeypatch):
    texts = [shape.format(secret) for _, secret in documented_secrets() for shape in SHAPES]
    masked = [mask(text) for text in texts]

    monkeypatch.setattr(secrets, "_REQUIRED_TEXTS", {})
    monkeypatch.setattr(secrets, "_BEGINNINGS", {})

    assert [mask(text) for text in texts] == masked


@pytest.mark.usefixtures("cpu_limit")
@pytest.mark.parametrize("part", ["sk-", "pwd:", "key-", "--token=/", "bearer a."])
def test_k1_repeated_secret_prefix_is_scanned_in_linear_time(part):
    """Without limits in the lookaheads 40 KB of `sk-` took 8 s: a file that a tool reads could
    block ouro.
    """
    text = part * (100_000 // len(part)) + "("

    assert secrets.SecretMask(patience=0.0).mask(text) == text


async def test_k1_no_file_contains_a_known_key_in_any_encoding(home, tmp_path, monkeypatch):
    ours, theirs = "k9-Qx/7+mZ=plain words", "environment&secret#2026"
    monkeypatch.setenv("SERVICE_TOKEN", theirs)
    import os

    mask = SecretMask([ours, *secret_values(os.environ)]).mask
    root = home / ".ouro" / "sessions"
    store = YamlFileMemoryStore(root, mask)
    memory = MemoryManager.start(store, project=str(tmp_path), model="test/model")
    for secret in (ours, theirs):
        encoded = base64.b64encode(f"user:{secret}".encode()).decode()
        shown = f"{secret}\nhttps://x.invalid/?k={quote(secret, safe='')} {encoded}"
        await memory.add(user(shown))
        call = ToolCall(
            "c", "shell", {"command": f"echo {secret}", "env": [{secret: secret}]}, malformed=secret
        )
        await memory.add(Message("assistant", (Thinking(shown), Text(shown), call)))
        change = FileChange(".env", None, f"X={secret}\n")
        await memory.add(
            tool(
                ToolReply("c", "shell", shown, display=Display(secret, CommandOutput(shown, shown)))
            )
        )
        await memory.add(
            tool(ToolReply("d", "write", shown, display=Display(secret, Diff((change,)))))
        )
    memory.set_title(ours)
    await memory.close()
    await store.list_sessions()

    written = [
        path.read_bytes()
        for path in Path(home).rglob("*")
        if path.is_file() and "secret-rules" not in str(path)
    ]
    forms = [
        form
        for secret in (ours, theirs)
        for form in (
            secret,
            quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode()[:-4],
        )
    ]
    assert [form for form in forms for data in written if form.encode() in data] == []
    assert len(written) >= 3
