"""A keyring for several processes: passwords in the file that FAKE_KEYRING names."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend


class FileKeyring(KeyringBackend):
    priority = 5
    name = "a file"

    def get_password(self, service, username):
        return self._read().get(f"{service} {username}")

    def set_password(self, service, username, password):
        self._write({**self._read(), f"{service} {username}": password})

    def delete_password(self, service, username):
        self._write(
            {key: text for key, text in self._read().items() if key != f"{service} {username}"}
        )

    def _read(self):
        path = Path(os.environ["FAKE_KEYRING"])
        return json.loads(path.read_text()) if path.exists() else {}

    def _write(self, passwords):
        Path(os.environ["FAKE_KEYRING"]).write_text(json.dumps(passwords))
