"""Options of `headwater tier serve` about the catalog: ZooKeeper, credentials there, the key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.config.java_properties import read_java_properties
from headwater.local import cluster_file
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.local.zk_properties import (
    security_of_properties,
    zookeeper_file,
    zookeeper_security,
)
from headwater_tier.service.options import CatalogSettings

F = TypeVar("F", bound=Callable[..., Any])


def catalog_options(function: F) -> F:
    """`--zookeeper`, `--zookeeper-config`, `--key-file`."""
    for option in (
        click.option("--key-file", metavar="FILE", help="Seals SCRAM keys in the catalog; default: "
                     "the brokers' headwater.catalog.key.file."),
        click.option("--zookeeper-config", metavar="FILE", help="Properties with the brokers' "
                     "headwater.zookeeper.digest and zookeeper.ssl.*."),
        click.option("--zookeeper", metavar="HOST:PORT,...", help="For the catalog. Default: of "
                     "the cluster of --dir."),
    ):  # fmt: skip
        function = option(function)
    return function


def catalog_settings(
    directory: str,
    zookeeper: str | None,
    zookeeper_config: str | None,
    key_file: str | None,
    *,
    by_directory: bool,
) -> CatalogSettings | None:
    """None without any ZooKeeper: then no catalog is kept. `by_directory`: the cluster was found by
    its folder, which names the ensemble."""
    servers = zookeeper or (zookeeper_of(directory) if by_directory else "")
    if not servers:
        return None
    found = zookeeper_security_of(directory, zookeeper_config)
    return CatalogSettings(servers, found, key_file or "")


def zookeeper_of(directory: str) -> str:
    """The ensemble of the cluster in a folder; empty if there is no cluster."""
    known = cluster_file.load(Path(directory).expanduser().resolve())
    return "" if known is None else known.zookeeper


def zookeeper_security_of(directory: str, config: str | None) -> ZooKeeperSecurity:
    """The credentials and TLS of a properties file, else of the cluster in the folder. Raises
    UsageError."""
    if config is not None:
        return security_of_properties(read_java_properties(config, "--zookeeper-config"))
    return zookeeper_security(zookeeper_file(Path(directory).expanduser()), "--dir")
