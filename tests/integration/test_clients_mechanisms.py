"""Every client with every mechanism it has; suites/mechanisms.py says what each run must show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from suites import mechanisms
from suites.mechanism_clients import CLIENTS, LACKING, MECHANISMS
from suites.mechanisms import SecuredBroker
from suites.parts import MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with mechanisms.started(tmp_path_factory.mktemp("mechanisms")) as running:
        yield running


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [(c, m) for c in CLIENTS for m in MECHANISMS if (c, m) not in LACKING],
)
def test_a_client_logs_in(broker: SecuredBroker, client: str, mechanism: str) -> None:
    try:
        mechanisms.run(broker, client, mechanism)
    except MissingPartError as error:
        pytest.skip(str(error))
