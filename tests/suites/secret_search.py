"""Searches what a secure cluster leaves behind for each of its secrets.

    make suite-secrets ARGS="--dir D --also demo-out --also /tmp/spark-events"

It reads every file in D and in the other folders (logs, event logs, checkpoints, Delta tables), the
arguments and environments of the cluster's processes, and the znodes that a stranger may read. The
places that hold secrets by design are left out: D/security and D/conf, both private.
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from headwater.local import cluster_file, processes
from headwater.local.data_folders import read_properties
from headwater.security.jaas import parse_jaas

PRIVATE_FOLDERS = ("security", "conf")
KEY_LINE = 2
"""A line in the middle of a PEM key: the first lines of all keys are alike."""
CHUNK_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A secret, named and not shown, in a place where it must not be."""

    place: str
    secret: str


def secrets_of(directory: Path) -> dict[str, str]:
    """Every secret value of a secure cluster, by what it is."""
    security = directory / "security"
    login = parse_jaas(read_properties(security / "client.properties")["sasl.jaas.config"])
    shared = read_properties(security / "secrets.properties")
    keys = {f"key of {p.stem}": _key_line(p) for p in security.glob("*.pem") if p.stem != "ca"}
    return {
        "the admin's password": login.options["password"],
        "the key of delegation tokens": shared["delegation.token.secret.key"],
        "the brokers' ZooKeeper password": shared["headwater.zookeeper.digest"].partition(":")[2],
        **keys,
    }


def search(
    directory: Path, secrets: Mapping[str, str], also: Iterable[Path] = ()
) -> tuple[list[Finding], int]:
    """What was found, and the number of places that were looked at."""
    forms = {form: what for what, secret in secrets.items() for form in _forms(secret)}
    found: set[Finding] = set()
    count = 0
    for place, parts in places(directory, also):
        count += 1
        tail = b""
        longest = max(map(len, forms))
        for part in parts:
            text = tail + part
            found |= {Finding(place, what) for form, what in forms.items() if form in text}
            tail = text[-longest:]
    return sorted(found), count


def places(directory: Path, also: Iterable[Path]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Every place with its content."""
    private = [directory / name for name in PRIVATE_FOLDERS]
    for folder in (directory, *also):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not any(path.is_relative_to(p) for p in private):
                yield str(path), _chunks(path)
    for process in processes.of_cluster(directory):
        for name in ("cmdline", "environ"):
            yield f"{name} of {process.name}", _chunks(Path(f"/proc/{process.pid}/{name}"))
    cluster = cluster_file.load(directory)
    if cluster is not None and cluster.running:
        for path, data in open_znodes(cluster.zookeeper):
            yield f"znode {path}", [data]


def open_znodes(servers: str) -> Iterator[tuple[str, bytes]]:
    """The znodes that a client without credentials may read."""
    client = KazooClient(hosts=servers)
    client.start(CONNECT_TIMEOUT_S)
    left = ["/"]
    try:
        while left:
            path = left.pop()
            try:
                yield path, client.get(path)[0]
                left += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
            except (NoAuthError, NoNodeError):
                continue  # it is shut, or has gone
    finally:
        client.stop()
        client.close()


def _forms(secret: str) -> set[bytes]:
    """A secret as it may be written: plain, quoted for URLs, in base64."""
    raw = secret.encode()
    return {raw, quote(secret, safe="").encode(), base64.b64encode(raw).rstrip(b"=")[:-1]}


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while part := file.read(CHUNK_BYTES):
                yield part
    except OSError:
        return  # it has gone meanwhile


def _key_line(path: Path) -> str:
    return path.read_text().splitlines()[KEY_LINE]


def main() -> int:
    """1 when a secret was found."""
    parser = argparse.ArgumentParser(description=__doc__, prog="secret_search")
    parser.add_argument("--dir", type=Path, required=True, help="the cluster's folder")
    parser.add_argument("--also", type=Path, action="append", default=[], help="more folders")
    parser.add_argument(
        "--secret", action="append", default=[], metavar="FILE", help="one more secret, in a file"
    )
    given = parser.parse_args()
    directory = given.dir.resolve()
    more = {f"the secret of {name}": Path(name).read_text().strip() for name in given.secret}
    secrets = {**secrets_of(directory), **more}
    found, count = search(directory, secrets, given.also)
    for finding in found:
        print(f"{finding.secret} is in {finding.place}")
    print(f"{len(secrets)} secrets, {count} places: {len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
