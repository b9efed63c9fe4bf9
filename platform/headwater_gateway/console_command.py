"""`headwater console`: runs the gateway with the console alone, and says where its pages are."""

from __future__ import annotations

from typing import Any

import click

from headwater_gateway.command import gateway
from headwater_gateway.console.addresses import ROOT

PARAMETERS = [p for p in gateway.params if p.name != "no_console"]


@click.command(params=PARAMETERS)
def console(**options: Any) -> int:
    """Serve the console, and with it the gateway, until Ctrl-C.

    Open its address in a browser. Where the brokers have a login, users log in there with their own
    user and password, and the brokers' ACLs decide.

    \b
    headwater console --dir D                      # a cluster of `headwater up`
    headwater console --read-only --bootstrap-server HOST:9092
    """
    scheme = "https" if options["tls_certificate"] else "http"
    click.echo(f"console: {scheme}://{options['listen']}{ROOT}/", err=True)
    assert gateway.callback is not None
    code: int = gateway.callback(no_console=False, **options)
    return code
