# Homebrew formula, for a tap of its own: brew install OWNER/tap/ouro
class Ouro < Formula
  include Language::Python::Virtualenv

  desc "Terminal coding agent that remembers"
  homepage "https://github.com/OWNER/ouro"
  url "https://github.com/OWNER/ouro/archive/refs/tags/v0.2.0.tar.gz"
  # `sha256` is set when the tag exists: brew fetch --build-from-source prints it.
  license "MIT"
  head "https://github.com/OWNER/ouro.git", branch: "main"

  depends_on "git"
  depends_on "python@3.13"

  def install
    python = Formula["python@3.13"].opt_bin/"python3.13"
    system python, "-m", "venv", libexec
    pip = libexec/"bin/pip"
    system pip, "install", "--no-compile", "--require-hashes", "-r", "requirements/ouro.txt"
    system pip, "install", "--no-compile", "--no-deps", "--require-hashes", "-r", "requirements/vectors.txt"
    system pip, "install", "--no-compile", "--no-deps", "--no-build-isolation", "."
    with_env("PYTHON" => (libexec/"bin/python").to_s) { system "sh", "scripts/slim_installation.sh" }
    bin.install_symlink libexec/"bin/ouro"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/ouro --version")
    system bin/"ouro", "demo", "--headless"
  end
end
