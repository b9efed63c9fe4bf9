"""`headwater gateway`: REST, schema registry and console of a cluster in one process."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
from starlette.types import ASGIApp

from headwater.cli.command_config import client_properties
from headwater.cli.options import bootstrap_options, bootstrap_servers
from headwater.client.security_options import security_keywords
from headwater.errors import UsageError
from headwater.local.service_spec import GATEWAY_PORT
from headwater.security.tls_context import ClientValues, server_context
from headwater.system import SystemClock, SystemEntropy
from headwater_gateway.app.application import GatewayApp
from headwater_gateway.app.audit import AUDIT_LOGGER, Audit
from headwater_gateway.app.client_pools import ClientPools
from headwater_gateway.app.guard import Guard
from headwater_gateway.app.login import PASSWORD_MECHANISMS, password_mechanism
from headwater_gateway.app.parts import Part, Services
from headwater_gateway.app.sdk_clients import SdkConnector
from headwater_gateway.app.sessions import LIFETIME_S, Sessions
from headwater_gateway.app.settings import OWN_REGISTRY, GatewaySettings
from headwater_gateway.app.user_logins import users_log_in
from headwater_gateway.console.part import ConsolePart
from headwater_gateway.registry.broker_rights import connector, without_identity
from headwater_gateway.registry.clients import HttpRegistry, OwnRegistry, SchemaRegistry
from headwater_gateway.registry.part import RegistryPart
from headwater_gateway.registry.running import running_registry
from headwater_gateway.registry.schemas_topic import TopicOptions
from headwater_gateway.rest.part import RestPart
from headwater_gateway.rest.registry_port import NoRegistry
from headwater_gateway.serving.server import ExposureOptions, Listener, check_exposure, serve


def addresses(_context: object, _option: object, given: tuple[str, ...]) -> tuple[str, ...]:
    """IP addresses or networks of an option. Raises UsageError: a name, or `*`, is none."""
    for text in given:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise UsageError(
                f"--trusted-proxy {text!r}: give the address of the proxy, as 127.0.0.1, or its"
                " network, as 10.1.2.0/24"
            ) from None
    return given


@click.command()
@click.option("--listen", default=f"127.0.0.1:{GATEWAY_PORT}", show_default=True,
              metavar="HOST:PORT",
              help="Where to listen. Off loopback it needs TLS and a login.")  # fmt: skip
@click.option("--tls-certificate", metavar="FILE",
              help="Certificate chain in PEM, or chain and key in one file.")  # fmt: skip
@click.option("--tls-key", metavar="FILE", help="Private key in PEM.")
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="A name by which clients reach the gateway. May be repeated.")  # fmt: skip
@click.option("--user-bootstrap-server", metavar="HOST:PORT,...",
              help="The brokers' listener at which users log in, if it is another.")  # fmt: skip
@click.option("--user-sasl-mechanism", type=click.Choice(PASSWORD_MECHANISMS),
              help="For passwords. [default: --command-config's, or SCRAM-SHA-512]")  # fmt: skip
@click.option("--schema-registry", metavar="[URL]", is_flag=False, flag_value=OWN_REGISTRY,
              help="Schemas of records: the registry at a URL; without a URL this process "
              "serves one, as `headwater registry serve` does.")  # fmt: skip
@click.option("--read-only", is_flag=True, help="Leave out every route that changes anything.")
@click.option("--session-hours", type=click.FloatRange(0, min_open=True), metavar="H",
              default=LIFETIME_S / 3600, show_default=True,
              help="A browser has to log in again after so long, used or not.")  # fmt: skip
@click.option("--trusted-proxy", "trusted_proxies", multiple=True, metavar="ADDRESS",
              callback=addresses,
              help="A proxy that ends TLS before the gateway: its X-Forwarded-For and "
              "X-Forwarded-Proto count. May be repeated.")  # fmt: skip
@click.option("--no-console", is_flag=True, help="Leave out the console's pages.")
@click.option("--supervised", is_flag=True, hidden=True)
@bootstrap_options
def gateway(
    listen: str,
    tls_certificate: str | None,
    tls_key: str | None,
    allowed_hosts: tuple[str, ...],
    user_bootstrap_server: str | None,
    user_sasl_mechanism: str | None,
    schema_registry: str | None,
    read_only: bool,
    session_hours: float,
    trusted_proxies: tuple[str, ...],
    no_console: bool,
    supervised: bool,
    bootstrap_server: str | None,
    directory: str,
) -> int:
    """Serve Kafka's REST interface and the console until Ctrl-C.

    Where the brokers have a login, each request brings its user's (Basic: a password; Bearer: an
    OAuth token), and the brokers' ACLs decide: the gateway has no rights of its own.

    \b
    headwater gateway --dir D                      # a cluster of `headwater up`
    curl http://127.0.0.1:8082/topics
    """
    listener = _listener(listen, tls_certificate, tls_key)
    properties = client_properties()
    has_login = users_log_in(properties, user_bootstrap_server)
    check_exposure(listener, _exposure(listen, trusted_proxies), has_login=has_login)
    servers = bootstrap_servers(bootstrap_server, directory)
    settings = GatewaySettings(
        user_bootstrap_server or servers,
        shared_properties(properties, has_login=has_login),
        has_login,
        user_sasl_mechanism or password_mechanism(properties),
        listener.host,
        listener.port,
        listener.tls is not None,
        allowed_hosts,
        read_only,
        schema_registry or "",
        session_s=session_hours * 3600,
        trusted_proxies=trusted_proxies,
    )
    own = OwnAccess(servers, properties)
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)
    app = gateway_app(settings, own, has_console=not no_console)
    return serve(
        app,
        listener,
        until_stdin_ends=supervised,
        lifespan=app.lifespan(),
        trusted_proxies=trusted_proxies,
    )


@dataclass(frozen=True, slots=True)
class OwnAccess:
    """How the process itself reaches the brokers: for the registry's topic only."""

    servers: str
    properties: Mapping[str, str] = field(repr=False)


def gateway_app(settings: GatewaySettings, own: OwnAccess, *, has_console: bool) -> GatewayApp:
    """The application with its parts."""
    clock, entropy = SystemClock(), SystemEntropy()
    audit = Audit(clock)
    services = Services(
        settings,
        ClientPools(SdkConnector(settings), clock, entropy, on_refused=audit.login_refused),
        clock,
        entropy,
        audit,
        Sessions(
            clock, entropy, is_secure=settings.is_reached_by_tls, lifetime_s=settings.session_s
        ),
    )
    hosts = (settings.host, *settings.allowed_hosts)
    guard = Guard(hosts, is_tls=settings.is_reached_by_tls)
    return GatewayApp(parts_of(settings, own, has_console=has_console), services, guard)


def parts_of(settings: GatewaySettings, own: OwnAccess, *, has_console: bool) -> list[Part]:
    """What answers."""
    parts: list[Part] = []
    schemas: SchemaRegistry = NoRegistry()
    if settings.schema_registry == OWN_REGISTRY:
        registry = RegistryPart(_registry(settings, own), is_read_only=settings.is_read_only)
        parts.append(registry)
        schemas = OwnRegistry(registry)
    elif settings.schema_registry:
        schemas = HttpRegistry(
            settings.schema_registry, settings.properties, has_login=settings.has_login
        )
    if has_console:
        parts.append(ConsolePart(settings, schemas))
    return [*parts, RestPart(settings, schemas)]


def _registry(settings: GatewaySettings, own: OwnAccess) -> Callable[[ExitStack], ASGIApp]:
    """How the registry of this process begins: its topic by the gateway's own login."""
    options = TopicOptions(own.servers, security=security_keywords(own.properties))
    connect = None
    if settings.has_login:
        connect = connector(settings.bootstrap_servers, own.properties)
    hosts = (settings.host, *settings.allowed_hosts)
    return lambda stack: running_registry(stack, options, connect, hosts)


def shared_properties(properties: Mapping[str, str], *, has_login: bool) -> dict[str, str]:
    """The gateway's own properties without what proves who it is, where users log in."""
    return without_identity(properties) if has_login else dict(properties)


def _listener(listen: str, certificate: str | None, key: str | None) -> Listener:
    host, mark, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not mark or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise UsageError(f"--listen {listen!r}: write HOST:PORT, as 127.0.0.1:{GATEWAY_PORT}")
    if certificate is None and key is not None:
        raise UsageError("--tls-key needs --tls-certificate")
    if certificate is None:
        return Listener(host, int(port))
    if key is None:
        values = {"ssl.keystore.location": str(Path(certificate).expanduser())}
    else:
        values = {
            "ssl.keystore.certificate.chain": _pem("--tls-certificate", certificate),
            "ssl.keystore.key": _pem("--tls-key", key),
        }
    return Listener(host, int(port), server_context(ClientValues(values)))


def _pem(option: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {path}: give a file in PEM: {error}") from None


def _exposure(listen: str, proxies: Sequence[str]) -> ExposureOptions:
    tls = "--tls-certificate and --tls-key"
    loopback = f"--listen 127.0.0.1:{GATEWAY_PORT}"
    before = f"--trusted-proxy {proxies[0]}" if proxies else ""
    return ExposureOptions(f"--listen {listen}", tls, loopback, proxies=before)
