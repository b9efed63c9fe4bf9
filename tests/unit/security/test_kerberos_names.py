"""sasl.kerberos.principal.to.local.rules, as Kafka's KerberosShortNamer applies them."""

from __future__ import annotations

import pytest

from headwater.errors import UsageError
from headwater.security.kerberos_names import LocalNames

RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[1:$1@$0](.*@OTHER)s/@.*///L",
    "RULE:[2:$2](upper)s/r/R//U",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("alice@REALM", "alice"),
        ("kafka/host@REALM", "kafka"),
        ("App.service@ANY", "service"),
        ("App.service/host@ANY", "service"),
        ("Bob@OTHER", "bob"),
        ("x/upper@ANY", "UPPER"),
        ("alice@ELSEWHERE", None),
        ("alice", None),
        ("a/b/c@REALM", None),
        ("", None),
        ("@REALM", None),
    ],
)
def test_rules_give_names(principal: str, name: str | None) -> None:
    assert LocalNames(RULES, "REALM").name_of(principal) == name


def test_a_name_with_a_realm_or_a_host_is_none() -> None:
    assert LocalNames(("RULE:[1:$1@$0]",), "REALM").name_of("alice@REALM") is None
    assert LocalNames(("RULE:[2:$1/$2]",), "REALM").name_of("a/b@REALM") is None


@pytest.mark.parametrize("rule", ["default", "RULE:[1:$1", "RULE:[1:$1](()", "RULE:[1:$1](a)s/a/b"])
def test_a_rule_that_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(UsageError, match=r"principal\.to\.local\.rules"):
        LocalNames((rule,), "REALM")
