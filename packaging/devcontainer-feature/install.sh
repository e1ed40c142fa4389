#!/bin/sh
# Installs ouro for all users of a development container. Its home is a volume: memory and sessions survive a rebuild.
set -eu
: "${SOURCE:?the option source is empty}"
if command -v apt-get >/dev/null; then
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends git bubblewrap ca-certificates python3 python3-venv >/dev/null
fi
command -v git >/dev/null || { echo "ouro needs git." >&2; exit 1; }
python3 -m venv /opt/ouro-uv
/opt/ouro-uv/bin/pip install -q uv
UV_TOOL_DIR=/opt/ouro UV_TOOL_BIN_DIR=/usr/local/bin UV_PYTHON_INSTALL_DIR=/opt/ouro-python \
  /opt/ouro-uv/bin/uv tool install -q --python '>=3.11' "$SOURCE"
rm -rf /opt/ouro-uv
mkdir -p /var/lib/ouro
chown "${_REMOTE_USER:-root}" /var/lib/ouro
chmod 700 /var/lib/ouro
ouro --version
