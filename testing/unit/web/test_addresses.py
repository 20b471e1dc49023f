from __future__ import annotations

import pytest

from hgfleet.web.requests.addresses import served


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("", ""), ("", "")),
        (("/log/tip", "rev=a+b&style=json"), ("/log/tip", "rev=a+b&style=json")),
        (("/log", "style=gitweb"), ("/log", "")),
        (("/log", "style=git%77eb&rev=x"), ("/log", "rev=x")),
        (("/log", "rev=x&style=monoblue&node=1"), ("/log", "rev=x&node=1")),
        (("/gitweb-log/tip", ""), ("/log/tip", "")),
        (("/spartan-summary", "style=coal"), ("/shortlog", "")),
        (("/summary", ""), ("/shortlog", "")),
        (("/file/tip/summary", ""), ("/file/tip/summary", "")),
        (("", "cmd=summary&style=gitweb"), ("", "cmd=shortlog")),
        (("/log", "style=unknown"), ("/log", "style=unknown")),
        (("/json-log", "revcount=5000"), ("/json-log", "revcount=5000")),
        (("/json-log", "revcount=5001&rev=x"), ("/json-log", "revcount=5000&rev=x")),
        (("/log", "revcount=%2B20_000"), ("/log", "revcount=5000")),
        (("/log", "revcount=" + "9" * 5000), ("/log", "revcount=" + "9" * 5000)),
        (("/log", "revcount=-1&&=&x"), ("/log", "revcount=-1&&=&x")),
    ],
)
def test_former_addresses_lead_to_the_same_content(
    asked: tuple[str, str], expected: tuple[str, str]
) -> None:
    assert served(*asked) == expected
    assert served(*expected) == expected
