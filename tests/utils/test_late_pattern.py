import re
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


def test_only_what_the_thread_imports_gets_late_patterns():
    def elsewhere():
        kinds.append(type(re.compile("b")))

    kinds = []
    with late_patterns():
        late = re.compile("(a)")
        assert late.match("a")[1] == "a"  # used at import
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with late_patterns():
            pass
    assert kinds == [re.Pattern]
    assert isinstance(re.compile("c"), re.Pattern)
