"""A login, one record written and read again, with each stock client and each of its mechanisms.

A client is a function that is given a login. It returns when it has read its record, and raises
when it was not let in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth

from suites import parts

MTLS = "mTLS"
OAUTH = "OAUTHBEARER"
GSSAPI = "GSSAPI"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTH, GSSAPI, MTLS)
SERVICE = "kafka"
MODULES = "org.apache.kafka.common.security"
WAIT_S = 20.0
REFUSED_S = 6.0
"""How long a client without an error of its own tries a login that is refused."""
PROGRAM_S = 90.0
SHOWN_CHARACTERS = 1_500
QUIET = {"log_level": 0, "error_cb": lambda _error: None}


@dataclasses.dataclass(frozen=True)
class Login:
    """Who logs in where by what, and the record."""

    bootstrap: str
    mechanism: str
    topic: str
    value: str
    group: str
    username: str
    password: str
    token: str
    authority: Path
    certificate: Path
    key: Path
    keytab: Path
    ticket: Path
    krb5: Path
    realm: str
    is_welcome: bool = True

    @property
    def protocol(self) -> str:
        """`security.protocol`."""
        return "SSL" if self.mechanism == MTLS else "SASL_SSL"

    def file(self) -> Path:
        """This login as JSON, for the programs in other languages."""
        path = self.authority.parent / f"{self.value}.json"
        path.write_text(json.dumps(dataclasses.asdict(self), default=str))
        return path


class NotLetInError(Exception):
    """The client could not write its record, or not read it."""


Client = Callable[[Login], None]


# librdkafka.


def librdkafka(login: Login) -> None:
    """confluent-kafka; its wheels have no Kerberos, so kcat of the system does that."""
    if login.mechanism == GSSAPI:
        _kcat(login)
        return
    settings = {**_librdkafka_settings(login), **QUIET}
    producer = confluent_kafka.Producer(settings)
    producer.produce(login.topic, login.value)
    left = producer.flush(WAIT_S if login.is_welcome else REFUSED_S)
    if left:
        producer.purge()
        raise NotLetInError(f"{left} record not delivered")
    reader = {"group.id": login.group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, **reader})
    consumer.subscribe([login.topic])

    def values() -> Iterator[bytes]:
        while True:
            message = consumer.poll(0.2)
            has_value = message is not None and message.error() is None
            yield (message.value() or b"") if has_value else b""

    try:
        _await(login, values())
    finally:
        consumer.close()


def _librdkafka_settings(login: Login) -> dict[str, object]:
    made: dict[str, object] = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "ssl.ca.location": str(login.authority),
    }
    if login.mechanism == MTLS:
        files = {"certificate": login.certificate, "key": login.key}
        return made | {f"ssl.{kind}.location": str(path) for kind, path in files.items()}
    made["sasl.mechanism"] = login.mechanism
    if login.mechanism == OAUTH:
        end = time.time() + WAIT_S * 10
        return made | {"oauth_cb": lambda _config: (login.token, end)}
    if login.mechanism == GSSAPI:
        names = {"keytab": login.keytab, "principal": login.username}
        return made | {f"sasl.kerberos.{name}": str(value) for name, value in names.items()}
    return made | {"sasl.username": login.username, "sasl.password": login.password}


def _kcat(login: Login) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        raise parts.MissingPartError("kcat is not installed (apt install kcat)")
    if not any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so")):
        raise parts.MissingPartError(
            "libsasl2 has no Kerberos (apt install libsasl2-modules-gssapi-mit)"
        )
    settings = _librdkafka_settings(login).items()
    base = [kcat, *(part for key, value in settings for part in ("-X", f"{key}={value}"))]
    environment = {"KRB5CCNAME": f"FILE:{login.ticket}"}
    base += ["-t", login.topic]
    timed = ("-X", f"message.timeout.ms={int(REFUSED_S * 1000)}")
    _told([*base, *timed, "-P"], environment, login.value)
    told = _told([*base, "-C", "-o", "beginning", "-e", "-q"], environment)
    if login.value not in told.split():
        raise NotLetInError(told)


# Python.


def kafka_python(login: Login) -> None:
    """kafka-python."""
    settings: dict[str, object] = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "ssl_cafile": str(login.authority),
        "bootstrap_timeout_ms": int((WAIT_S if login.is_welcome else REFUSED_S) * 1000),
    }
    if login.mechanism == MTLS:
        settings |= {"ssl_certfile": str(login.certificate), "ssl_keyfile": str(login.key)}
    else:
        settings |= {"sasl_mechanism": login.mechanism, **_password(login)}
    if login.mechanism == OAUTH:

        class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):
            def token(self) -> str:
                return login.token

        settings["sasl_oauth_token_provider"] = Provider()
    with _ticket(login):
        producer = kafka.KafkaProducer(**settings)
        try:
            producer.send(login.topic, login.value.encode()).get(WAIT_S)
        finally:
            producer.close(timeout=1)
        reader = {"group_id": login.group, "auto_offset_reset": "earliest"}
        consumer = kafka.KafkaConsumer(login.topic, **settings, **reader)

        def values() -> Iterator[bytes]:
            while True:
                rows = consumer.poll(timeout_ms=200)
                yield from [record.value for found in rows.values() for record in found] or [b""]

        try:
            _await(login, values())
        finally:
            consumer.close()


def aio(login: Login) -> None:
    """aiokafka."""
    with _ticket(login):
        asyncio.run(_aio(login))


async def _aio(login: Login) -> None:
    context = ssl.create_default_context(cafile=str(login.authority))
    settings: dict[str, object] = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "ssl_context": context,
    }
    if login.mechanism == MTLS:
        context.load_cert_chain(login.certificate, login.key)
    else:
        settings |= {"sasl_mechanism": login.mechanism, **_password(login)}
    if login.mechanism == OAUTH:

        class Provider(aiokafka.abc.AbstractTokenProvider):
            async def token(self) -> str:
                return login.token

        settings["sasl_oauth_token_provider"] = Provider()
    producer = aiokafka.AIOKafkaProducer(**settings)
    try:
        await producer.start()
        await asyncio.wait_for(producer.send_and_wait(login.topic, login.value.encode()), WAIT_S)
    finally:
        await producer.stop()
    reader = {"group_id": login.group, "auto_offset_reset": "earliest"}
    consumer = aiokafka.AIOKafkaConsumer(login.topic, **settings, **reader)
    await consumer.start()
    try:
        async with asyncio.timeout(WAIT_S):
            while (await consumer.getone()).value != login.value.encode():
                pass
    finally:
        await consumer.stop()


def _password(login: Login) -> dict[str, object]:
    if login.mechanism in (OAUTH, GSSAPI):
        return {"sasl_kerberos_service_name": SERVICE} if login.mechanism == GSSAPI else {}
    return {"sasl_plain_username": login.username, "sasl_plain_password": login.password}


@contextmanager
def _ticket(login: Login) -> Iterator[None]:
    """The ticket is that of this process, for clients that take the one of the environment."""
    if login.mechanism != GSSAPI:
        yield
        return
    os.environ["KRB5CCNAME"] = f"FILE:{login.ticket}"
    try:
        yield
    finally:
        del os.environ["KRB5CCNAME"]


def _await(login: Login, values: Iterator[bytes]) -> None:
    end = time.monotonic() + WAIT_S
    while next(values) != login.value.encode():
        if time.monotonic() > end:
            raise NotLetInError("the record did not come")


# Java, JavaScript, Go.


def java(login: Login) -> None:
    """Kafka's own clients; Java compiles the one file as it starts."""
    token = login.authority.parent / f"{login.value}.jwt"
    token.write_text(login.token)
    rows = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": login.authority,
    }
    if login.mechanism == MTLS:
        pair = login.authority.parent / f"{login.value}.pem"
        pair.write_text(login.key.read_text() + login.certificate.read_text())
        rows |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": pair}
    else:
        rows |= {"sasl.mechanism": login.mechanism, "sasl.jaas.config": _java_login(login)}
    if login.mechanism == OAUTH:
        handler = f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
        rows |= {
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
    if login.mechanism == GSSAPI:
        rows["sasl.kerberos.service.name"] = SERVICE
    properties = login.authority.parent / f"{login.value}.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    flags = (
        *("-cp", parts.kafka_jars(), f"-Djava.security.krb5.conf={login.krb5}"),
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={token}",
    )
    source = parts.PROGRAMS / "java" / "Login.java"
    record = (login.topic, login.value, login.group)
    _told(["java", *flags, str(source), str(properties), *record])


def _java_login(login: Login) -> str:
    if login.mechanism == OAUTH:
        return f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    if login.mechanism == GSSAPI:
        return (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{login.keytab}" principal="{login.username}@{login.realm}";'
        )
    module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
    who = f'username="{login.username}" password="{login.password}"'
    return f"{MODULES}.{module} required {who};"


def kafkajs(login: Login) -> None:
    """KafkaJS."""
    command, environment = parts.kafkajs()
    source = parts.PROGRAMS / "kafkajs" / "login.js"
    _told([*command, str(source), str(login.file())], environment)


def franz_go(login: Login) -> None:
    """franz-go."""
    _told([str(parts.go_program("franz_login")), str(login.file())])


def _told(
    command: Sequence[str], environment: Mapping[str, str] | None = None, stdin: str = ""
) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    if done.returncode:
        told = f"{done.stderr[-SHOWN_CHARACTERS:]}{done.stdout[-SHOWN_CHARACTERS:]}"
        raise NotLetInError(told)
    return done.stdout


PYTHON_CLIENTS: Mapping[str, Client] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aio,
}
OUTSIDE_CLIENTS: Mapping[str, Client] = {"Java": java, "KafkaJS": kafkajs, "franz-go": franz_go}
CLIENTS: Mapping[str, Client] = {**PYTHON_CLIENTS, **OUTSIDE_CLIENTS}
LACKING = {("KafkaJS", GSSAPI)}
"""What a client has not."""
