"""The environment of child processes."""

import pytest

from ouro.safety import child_environment, secret_values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTHROPIC_API_KEY", "x"),
        ("OPENAI_API_KEY", "x"),
        ("GITHUB_TOKEN", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_SESSION_TOKEN", "x"),
        ("DB_PASSWORD", "x"),
        ("NPM_AUTH", "x"),
        ("MYAPIKEY", "x"),
        ("HARMLESS", "ghp_0123456789abcdefghij0123456789abcdef"),
        ("DATABASE_URL", "postgres://me:hunter2@db.example.com/app"),
        ("OTHER", "prefix-value-of-our-own-key-suffix"),
        ("BASH_ENV", "/tmp/x"),
        ("BASH_FUNC_ls%%", "() { rm x; }"),
        ("GIT_DIR", "/x"),
    ],
)
def test_keys_and_shell_control_variables_are_removed(name, value):
    assert name not in child_environment({name: value}, secrets=["value-of-our-own-key"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin"),
        ("HOME", "/home/me"),
        ("VIRTUAL_ENV", "/v"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("JAVA_HOME", "/j"),
        ("GOPATH", "/g"),
        ("NODE_ENV", "test"),
        ("DATABASE_URL", "postgres://me:me@localhost/test"),
        ("GIT_AUTHOR_NAME", "Me"),
        ("LC_ALL", "C"),
        ("MONKEY", "x"),
        ("KEYBOARD_LAYOUT", "de"),
        ("HTTPS_PROXY", "http://proxy:3128"),
    ],
)
def test_common_variables_are_passed_on(name, value):
    assert child_environment({name: value})[name] == value


def test_own_key_is_removed_under_any_name():
    assert "EDITOR_ARGS" not in child_environment(
        {"EDITOR_ARGS": "--with our-own-key"}, secrets=["our-own-key"]
    )


def test_pager_terminal_and_git_prompts_are_disabled():
    environment = child_environment({"PAGER": "less", "TERM": "xterm-256color"})
    assert (environment["PAGER"], environment["TERM"], environment["GIT_TERMINAL_PROMPT"]) == (
        "cat",
        "dumb",
        "0",
    )


def test_removed_secret_values_are_masked():
    environment = {
        "OPENAI_API_KEY": "k" * 8 + "1",
        "GITHUB_TOKEN": "t0kent0ken",
        "DB_PASSWORD": "correct horse",
        "SESSION_COOKIE": "c00kie-c00kie",
        "DATABASE_URL": "postgres://me:hunter2@db.example.com/app",
        "SSH_AUTH_SOCK": "/tmp/ssh-x/agent.1",
        "XAUTHORITY": "/home/me/.Xauthority",
        "KEYBOARD": "qwertz-1234",
        "MAX_TOKENS": "123456789",
        "GIT_AUTHOR_NAME": "Some Body",
        "AUTH": "disabled",
        "LICENSE": "Apache-2.0",
        "SHORT_TOKEN": "abc",
        "HOME": "/home/me",
    }

    values = [
        "k" * 8 + "1",
        "t0kent0ken",
        "correct horse",
        "c00kie-c00kie",
        environment["DATABASE_URL"],
    ]
    assert secret_values(environment) == values
    assert not set(values).intersection(child_environment(environment).values())
