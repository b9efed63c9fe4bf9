"""sasl.jaas.config: what is read as in Java, modules that are refused, errors without secrets."""

from __future__ import annotations

import pytest

from headwater.errors import UsageError
from headwater.security.jaas import LoginModule, parse_jaas

PLAIN = LoginModule.PLAIN.value


def test_a_line_as_in_kafkas_documentation() -> None:
    login = parse_jaas(
        'org.apache.kafka.common.security.scram.ScramLoginModule required \\n username="alice"'
        ' password="alice-secret";'.replace("\\n", "\n")
    )
    assert login.module is LoginModule.SCRAM
    assert login.options == {"username": "alice", "password": "alice-secret"}
    assert "alice-secret" not in repr(login)


def test_the_users_of_a_broker() -> None:
    login = parse_jaas(
        f'{PLAIN} required username="admin" password="a" user_admin="a" user_b_c="x;=y" user_="n";'
    )
    assert login.users() == {"admin": "a", "b_c": "x;=y"}


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ('"a b"', "a b"),
        ("'a \"b'", 'a "b'),
        (r'"a\"b\\c"', r'a"b\c'),
        (r'"\101\n\q"', "A\nq"),
        (r'"\3777"', "\xff7"),
        ("unquoted-1.2", "unquoted-1.2"),
        ("12345", "12345"),
        ('"пароль"', "пароль"),
        ('"a//b /* c */"', "a//b /* c */"),
        ("a/* comment */", "a"),
        ("a // comment\n", "a"),
        ('""', ""),
    ],
)
def test_values(value: str, means: str) -> None:
    login = parse_jaas(f"{PLAIN} Required password={value};")
    assert login.options == {"password": means}


def test_databricks_names_of_the_modules() -> None:
    assert parse_jaas(f"kafkashaded.{PLAIN} required;").module is LoginModule.PLAIN


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "org.apache.kafka.common.security.plain.PlainLoginModule2",
        "java.lang.Runtime",
        "PlainLoginModule",
    ],
)
def test_other_modules_are_refused(module: str) -> None:
    """CVE-2025-27818, CVE-2025-27819: Jndi and Ldap modules run what an attacker serves."""
    with pytest.raises(UsageError, match=f"{module} is not known; known are PlainLoginModule"):
        parse_jaas(f'{module} required user.provider.url="ldap://attacker";')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no login module"),
        (" /* only */ ", "names no login module"),
        (f"{PLAIN};", "not followed by"),
        (f"{PLAIN} needed username=s3cret;", "not followed by"),
        (f'{PLAIN} required username="a" password="s3cret"', "does not end with a semicolon"),
        (f'{PLAIN} required password="s3cret', "a quoted value does not end"),
        (f'{PLAIN} required password="s3cret\n";', "a quoted value does not end"),
        (f"{PLAIN} required password=;", "option 1 is not written"),
        (f'{PLAIN} required a=b password "s3cret";', "option 2 is not written"),
        (f'{PLAIN} required ="s3cret";', "option 1 is not written"),
        (f"{PLAIN} required; {PLAIN} required;", "more than one login module"),
    ],
)
def test_errors_name_the_key_and_no_secret(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse_jaas(text, "listener.name.x.plain.sasl.jaas.config")
    assert str(caught.value).startswith("listener.name.x.plain.sasl.jaas.config: ")
    assert "s3cret" not in str(caught.value)


def test_a_password_in_place_of_the_module_is_not_shown() -> None:
    with pytest.raises(UsageError, match="login module the first word is not known") as caught:
        parse_jaas('"s3cret-value" required;')
    assert "s3cret" not in str(caught.value)
