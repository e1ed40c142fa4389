import re

import pytest

from ouro.utils.late_pattern import late_pattern


def test_a_late_pattern_is_compiled_at_its_first_use():
    broken = late_pattern("(")
    with pytest.raises(re.error):
        broken.search("a")
    found = late_pattern(r"(?P<name>B)", re.IGNORECASE)
    assert found.search("abc")["name"] == found.sub("b", "b") == "b"
    assert found.groups == 1
