"""docs/rest.md names every route of the REST interface, and every option of the command."""

from __future__ import annotations

import re

from docs_pages import DOCS
from headwater_gateway.command import gateway
from headwater_gateway.rest.part import RestPart
from headwater_gateway.rest.registry_port import NoRegistry
from unit.gateway.gateways import SETTINGS

CLUSTER = "/v3/clusters/{cluster_id}"


def test_every_route_is_on_the_page() -> None:
    page = (DOCS / "rest.md").read_text()
    paths = {getattr(route, "path", "") for route in RestPart(SETTINGS, NoRegistry()).routes()}
    paths = {path for path in paths if not path.startswith("/kafka/")}
    assert len(paths) > 45
    told = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL)))
    for path in sorted(paths - {"/"}):
        short = path.replace(CLUSTER, "{c}").removeprefix("/v3")
        ends = [short[at:] for at in range(len(short)) if short[at] in "/:{"]
        assert any(end in told for end in ends), path


def test_every_option_is_on_the_page() -> None:
    page = (DOCS / "rest.md").read_text()
    names = {name for p in gateway.params if not getattr(p, "hidden", False) for name in p.opts}
    common = {"--bootstrap-server", "--bootstrap-servers", "--dir", "--command-config"}
    assert [name for name in sorted(names - common) if name not in page] == []
