import re
import subprocess
import sys
import threading

import pytest

from ouro.utils.late_pattern import late_pattern, late_patterns


def test_a_late_pattern_is_compiled_at_its_first_use():
    broken = late_pattern("(")
    with pytest.raises(re.error):
        broken.search("a")
    found = late_pattern(r"(?P<name>B)", re.IGNORECASE)
    assert found.search("abc")["name"] == found.sub("b", "b") == "b"
    assert found.groups == 1


def test_patterns_of_an_import_are_late_in_its_own_thread_only(tmp_path, monkeypatch):
    (tmp_path / "with_patterns.py").write_text("import re\nFOUND = re.compile('(')\n")
    monkeypatch.syspath_prepend(tmp_path)
    compile_now, compiled = re.compile, []
    with late_patterns():
        import with_patterns

        other = threading.Thread(target=lambda: compiled.append(re.compile("a")))
        other.start()
        other.join()
    assert isinstance(compiled[0], re.Pattern)
    assert re.compile is compile_now
    with pytest.raises(re.error):
        with_patterns.FOUND.search("a")


def test_yaml_is_read_and_written_with_late_patterns():
    code = (
        "import re; from datetime import date; from ouro.utils.yaml import parse_yaml,"
        " plain_values\nassert plain_values(parse_yaml('a: [1, x]', 'n')) == {'a': ['1',"
        " 'x']}\nimport yaml; from yaml.reader import Reader, ReaderError; known = {'when':"
        " date(2026, 11, 23), 'n': 1.5}\nassert not isinstance(Reader.NON_PRINTABLE,"
        " re.Pattern)\nassert yaml.load(yaml.safe_dump(known), yaml.SafeLoader) =="
        " yaml.safe_load(yaml.safe_dump(known)) == known\ntry: yaml.load('\\x07',"
        " yaml.SafeLoader)\nexcept ReaderError: sys = __import__('sys'); sys.exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 3
