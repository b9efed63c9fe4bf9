"""ssl.principal.mapping.rules: cases of Kafka's SslPrincipalMapperTest, and bad rules."""

from __future__ import annotations

import pytest

from headwater.errors import UsageError
from headwater.security.principal import NoMatchingRuleError, principal_mapper

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("O=mycp,CN=duke.x,C=US", "DUKE.X"),
        ("OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
    ],
)
def test_the_first_rule_that_matches_counts(subject: str, name: str) -> None:
    assert principal_mapper(RULES).name_of(subject) == name


@pytest.mark.parametrize("text", ["", "DEFAULT", " DEFAULT "])
def test_the_default_is_the_whole_name(text: str) -> None:
    assert principal_mapper(text).name_of("CN=a,O=b") == "CN=a,O=b"


def test_a_pattern_matches_the_whole_name_or_nothing() -> None:
    mapper = principal_mapper("RULE:CN=admin/super/")
    assert mapper.name_of("CN=admin") == "super"
    with pytest.raises(NoMatchingRuleError):
        mapper.name_of("CN=admin,O=evil")
    with pytest.raises(NoMatchingRuleError):
        mapper.name_of("CN=admin\n")


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (r"RULE:^CN=(.*)$/a\/$1/", "a/x"),
        (r"RULE:^CN=(.*)$/$1$2/", "x$2"),
        (r"RULE:^CN=(.*)$/$12/", "x2"),
        (r"RULE:^CN=(.*)$/\$1/", "$1"),
        (r"RULE:CN=(.*?)/$1/", "x"),
    ],
)
def test_replacements_are_read_as_in_java(rule: str, name: str) -> None:
    assert principal_mapper(rule).name_of("CN=x") == name


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT RULE:a/b/",
        "RULE:CN=(.*?)",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU",
        "RULE:^CN=(.*?)$/$1,DEFAULT",
        "RULE:([/x/",
    ],
)
def test_a_bad_rule_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"ssl\.principal\.mapping\.rules"):
        principal_mapper(text)
