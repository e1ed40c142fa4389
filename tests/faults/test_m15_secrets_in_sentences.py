"""M15: memory refuses a secret that only the words around it show, in any order and language."""

import asyncio

import pytest
from fakes.tool_benches import call

from ouro.errors import SecretInMemory, ToolError
from ouro.memory.long_term import FileEdit, GitMemoryStore
from ouro.memory.long_term.trust.approval import decide
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import user
from ouro.safety import GuardedMemory, SecretMask, Workspace
from ouro.tools.edit import Write
from ouro.tools.files_seen import FilesSeen

TOLD = [
    "The database password is hunter2",
    "The database password is swordfish.",
    "the password for the staging db is tr0ub4dor&3, change it on Monday",
    "Password: Sommer2024!",
    "password of the router - guest4711x",
    "Our wifi passphrase is correct horse battery staple",
    "the passphrase is 'correct horse battery staple'",
    "hunter2 is the admin password",
    "log in as admin with password Winter2023!",
    "use `hunter2` as the password",
    "The PIN of the safe is 4821.",
    "pin: 0042",
    "PIN 9341",
    "The deploy token is abc123def",
    'the client secret is "q8w7e6r5"',
    "**Password**: hunter2",
    "Das Passwort ist Geheim123",
    "Das Datenbankpasswort lautet Sonnenblume",
    "Kennwort für den Server: blau77grau",
    "Le mot de passe est soleil42",
    "mot de passe : tournesol",
    "La contraseña del servidor es girasol9",
    "A senha do banco é girassol88",
    "La password del server è girasole7",
    "Hasło do bazy to slonecznik5",
    "Пароль от сервера: podsolnuh7",
    "数据库密码是hunter2",
    "パスワードは himawari8 です",
    "비밀번호는 haebaragi7",
    "swordfish is the wifi password",
    "the passwords: hunter2",
    "Het wachtwoord is zonnebloem3",
    "the admin pw is heron-Blaukraut, it opens the dashboard",
    "le mdp du serveur est Coquelicot9!",
    "the OTP is 493 201, hurry",
    "your verification code is 882-113",
    "SMS code 771203",
    "Der Bestätigungscode lautet 55821",
    "código de verificación: 90812",
    "doğrulama kodu 338211",
    "код подтверждения 7714, введи его",
    "验证码是 482913",
    "認証コードは 482913 です",
    "recovery phrase for the wallet is: orbit velvet mango river siren lunar pistol cabin dwarf"
    " echo amber fossil",
]
HARMLESS = [
    "the password policy is 12 characters",
    "the token budget is 1500",
    "The password is stored in the vault",
    "The password must be 12 characters long",
    "the password is 1500 characters at most",
    "the password is required",
    "The API token is read from $API_TOKEN",
    "password: string",
    "the token is a JWT",
    "the password is hashed with argon2id",
    "Token: optional, per user",
    "the LED pin is 13",
    "Pin dependencies: use exact versions",
    "The secret is simplicity",
    "the password is in 1Password, entry staging",
    "the access token is short-lived and read-only",
    "password reset is tested in tests/test_reset.py",
    "the secret is base64 encoded",
    "the password field is called pwd_hash",
    "Das Passwort ist falsch",
    "Das Passwort ist abgelaufen und muss neu gesetzt werden",
    "Le mot de passe est obligatoire",
    "La contraseña es incorrecta",
    "never ask for the password of the user",
    "the token limit of the model is 128000",
    "the token is valid for 3600 seconds",
    "Use the secret from `.env.local`",
    "the password is `$DB_PASSWORD`",
    "run pwd in the repo first",
    "we store the pw as a bcrypt hash",
    "the verification code has 6 digits",
    "OTP codes expire after 300 seconds",
    "The security code is checked in src/otp.py",
    "the OTP service listens on port 8417",
    "the seed phrase must have 12 words",
    "pin the version to 2024.1",
    "密码是必填的",
]


@pytest.fixture(scope="module")
def mask():
    return SecretMask(patience=0.0)


@pytest.mark.parametrize("text", TOLD)
def test_m15_a_secret_in_a_sentence_is_found(mask, text):
    assert mask.kind_in_memory(f"# Facts\n\n- uses uv\n- {text}\n- tabs\n")


@pytest.mark.parametrize("text", HARMLESS)
def test_m15_a_sentence_about_secrets_is_allowed(mask, text):
    assert mask.kind_in_memory(f"# Facts\n\n- {text}\n- tabs\n") == ""


def test_m15_no_way_into_memory_takes_a_secret_in_a_sentence(home, mask, tmp_path):
    git_dir = home / ".ouro" / "history.git" / "user.git"
    store = GitMemoryStore(
        home / ".ouro" / "memory", "user", git_dir, finds_secret=mask.kind_in_memory
    )
    store.save_and_commit({"facts.md": "- one\n"}, "Learn")
    folder = GuardedMemory(store.folder, store.repository.state_dir)
    seen = FilesSeen(Workspace(tmp_path, memory=[folder]), mask.kind_in_memory)
    text = f"- {TOLD[0]}\n"

    with pytest.raises(SecretInMemory):
        store.save_and_commit({"facts.md": text}, "Learn")
    with pytest.raises(ToolError, match="holds a secret"):
        asyncio.run(call(Write(seen), path=str(store.folder / "preferences.md"), content=text))
    captured = FileEdit("facts.md", "- one\n", text)
    state = decide(captured, Provenance([user(TOLD[0])]), mask.kind_in_memory).state

    assert state == "refused"
    assert store.load_all().core == {"facts": "- one\n"}


@pytest.mark.parametrize(
    "text",
    [
        "Кошелёк открывается L4rK9zmQwT2vB8nXc5dYp1sHf6gJ3aEu, проверь баланс",
        "the robot logs in with q7RtZ2mKx9LwB4vNc8Hs6Yd1",
    ],
)
def test_m15_random_word_is_a_secret_without_a_name_in_any_language(mask, text):
    assert mask.kind_in_memory(text) == "random word in a sentence"


@pytest.mark.parametrize(
    "text",
    [
        "The design is at https://design.test/file/L4rK9zmQwT2vB8nXc5dYp1sH/shop",
        "Builds of iOS15AndMacOS12BuildTarget run at night",
        "The last good commit is 9f8e7d6c5b4a39281706f5e4d3c2b1a098765432",
        "Catch HTTP2StreamResetErrorCode404Handler in the proxy",
    ],
)
def test_m15_names_addresses_and_commits_are_no_random_words(mask, text):
    assert mask.kind_in_memory(text) == ""
