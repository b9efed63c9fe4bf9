"""`headwater registry`: the schema registry's process, and a few questions to a registry."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from headwater.cli.command_config import client_properties
from headwater.cli.options import bootstrap_options, bootstrap_servers, within
from headwater.cli.settings import parse_settings
from headwater.client.security_options import security_keywords
from headwater.config.java_properties import read_java_properties
from headwater.errors import UsageError
from headwater.local.service_spec import REGISTRY_PORT
from headwater.security.tls_context import ClientValues, server_context
from headwater_gateway.app.user_logins import users_log_in
from headwater_gateway.registry.broker_rights import connector
from headwater_gateway.registry.questions_command import check, register, schema, subjects
from headwater_gateway.registry.running import running_registry
from headwater_gateway.registry.schemas_topic import (
    REPLICATION_FACTOR,
    TOPIC,
    TopicOptions,
)
from headwater_gateway.serving.server import ExposureOptions, Listener, check_exposure
from headwater_gateway.serving.server import serve as serve_app


@click.group()
def registry() -> None:
    """The schema registry: Confluent's REST interface, its state in the topic _schemas."""


for command in (subjects, schema, register, check):
    registry.add_command(command)


@registry.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST",
              help="Address to listen at. Off loopback it needs TLS and a login.")  # fmt: skip
@click.option("--port", type=int, callback=within(1, 65_535), default=REGISTRY_PORT,
              show_default=True, metavar="PORT", help="Port to listen at.")  # fmt: skip
@click.option("--listener-properties", metavar="FILE",
              help="ssl.* properties of the listener, as a broker's.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="A name by which clients reach the registry. May be repeated.")  # fmt: skip
@click.option("--topic", default=TOPIC, show_default=True, metavar="TOPIC",
              help="The topic of the registry's state; created if there is none.")  # fmt: skip
@click.option("--replication-factor", type=int, callback=within(1, 32_767),
              default=REPLICATION_FACTOR, show_default=True, metavar="N",
              help="Replicas of that topic when it is created, at most one a broker.")  # fmt: skip
@click.option("--topic-config", "topic_configs", multiple=True, metavar="KEY=VALUE",
              help="A config of that topic when it is created. May be repeated.")  # fmt: skip
@click.option("--user-bootstrap-server", metavar="HOST:PORT,...",
              help="The brokers' listener at which users log in, if it is another.")  # fmt: skip
@click.option("--supervised", is_flag=True, hidden=True)
@bootstrap_options
def serve(
    host: str,
    port: int,
    listener_properties: str | None,
    allowed_hosts: tuple[str, ...],
    topic: str,
    replication_factor: int,
    topic_configs: tuple[str, ...],
    user_bootstrap_server: str | None,
    supervised: bool,
    bootstrap_server: str | None,
    directory: str,
) -> int:
    """Serve the registry until Ctrl-C.

    Several may serve one topic: each answers reads, and takes the writing over when it is asked to
    write.
    """
    listener = _listener(host, port, listener_properties)
    properties = client_properties()
    has_login = users_log_in(properties, user_bootstrap_server)
    check_exposure(listener, exposure_options(host), has_login=has_login)
    servers = bootstrap_servers(bootstrap_server, directory)
    options = TopicOptions(
        servers,
        topic,
        replication_factor,
        security_keywords(properties),
        parse_settings(topic_configs, "--topic-config"),
    )
    connect = connector(user_bootstrap_server or servers, properties) if has_login else None
    with ExitStack() as stack:
        app = running_registry(stack, options, connect, (host, *allowed_hosts))
        return serve_app(app, listener, until_stdin_ends=supervised)


def exposure_options(host: str) -> ExposureOptions:
    """The options by which the registry may listen off loopback."""
    tls = "--listener-properties with ssl.keystore.location"
    return ExposureOptions(f"--host {host}", tls, "--host 127.0.0.1")


def _listener(host: str, port: int, path: str | None) -> Listener:
    if path is None:
        return Listener(host, port)
    if not Path(path).is_file():
        raise UsageError(f"--listener-properties {path}: there is no such file")
    properties = read_java_properties(path, "--listener-properties")
    return Listener(host, port, server_context(ClientValues(properties)))
