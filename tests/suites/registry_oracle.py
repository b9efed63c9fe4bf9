"""The same requests to Apicurio's registry (its Confluent-compatible interface) and to Headwater's.

    python -m suites.registry_oracle            # lists what differs, and writes it into the docs

Two replies are alike if status, error code and document are; of a document, ids, guids and
messages of errors are left out, and schemas are compared as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from headwater.errors import UsageError
from headwater.local.cluster_spec import ClusterSpec, check_ports_free
from integration.cluster import LocalCluster
from integration.registry_process import serving
from suites.parts import ROOT, MissingPartError, apicurio_registry
from suites.registry_steps import LIFE, Step, pair_steps

PAGE = ROOT / "docs" / "schema-registry.md"
BEGIN, END = "<!-- differences: begin -->", "<!-- differences: end -->"
READY_S = 90.0
LEFT_OUT = frozenset({"guid", "message", "messages", "ts", "deleted", "normalize"})
SHOWN_CHARS = 60

Told = tuple[int, Any]
"""A status, and what is compared of the reply."""


@contextmanager
def apicurio(port: int, log: Path) -> Iterator[str]:
    """The URL of an Apicurio registry that keeps all in memory."""
    folder, java = apicurio_registry()
    options = ["-Xmx512m", f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    options.append("-Dapicurio.rest.deletion.artifact.enabled=true")
    options.append("-Dapicurio.rest.deletion.artifact-version.enabled=true")
    options.append("-Dapicurio.ccompat.legacy-id-mode.enabled=false")
    with log.open("w") as out:
        command = [str(java), *options, "-jar", str(folder / "quarkus-run.jar")]
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
            _wait(f"{url}/subjects")
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise MissingPartError(f"Apicurio does not answer at {url} within {READY_S:.0f} s")


def ask(client: httpx.Client, url: str, step: Step) -> Told:
    """What a registry says."""
    headers = {"content-type": "application/vnd.schemaregistry.v1+json"}
    content = None if step.body is None else json.dumps(step.body)
    reply = client.request(step.method, url + step.path, content=content, headers=headers)
    try:
        document = reply.json()
    except ValueError:
        document = reply.text
    told = _compared(document)
    if step.method == "POST" and step.path.endswith("/versions") and "id" in told:
        told = {"id": told["id"]}  # newer ones of Confluent's registry tell the rest too
    return reply.status_code, told


def _compared(document: Any) -> Any:
    if isinstance(document, list):
        rows = [_compared(row) for row in document]
        return sorted(rows, key=str)
    if not isinstance(document, dict):
        return document
    found = {k: _compared(v) for k, v in document.items() if k not in LEFT_OUT}
    if isinstance(found.get("schema"), str):
        found["schema"] = _parsed(found["schema"])
    if found.get("schemaType") == "AVRO":
        del found["schemaType"]  # the default, which Confluent's registry leaves out
    return found if "id" not in found else {**found, "id": "..."}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def differences(theirs: str, ours: str) -> tuple[int, list[tuple[str, Told, Told]]]:
    """The number of compared steps, and those whose replies differ."""
    found, count = [], 0
    with httpx.Client(timeout=60) as client:
        for step in (*LIFE, *pair_steps()):
            other, own = ask(client, theirs, step), ask(client, ours, step)
            count += bool(step.name)
            if step.name and other != own:
                found.append((step.name, other, own))
    return count, found


def _shown(told: Told) -> str:
    status, document = told
    if isinstance(document, dict) and "error_code" in document:
        return f"{status}, {document['error_code']}"
    if isinstance(document, dict) and "is_compatible" in document:
        return "fits" if document["is_compatible"] else "does not fit"
    text = json.dumps(document, separators=(",", ":"))
    return f"{status} `{text[:SHOWN_CHARS]}`"


def table(count: int, found: list[tuple[str, Told, Told]]) -> str:
    """Of the docs."""
    lines = [
        f"{count - len(found)} of {count} replies are alike. The others:",
        "",
        "| Request | Apicurio | Headwater |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {_shown(other)} | {_shown(own)} |" for name, other, own in found]
    return "\n".join(lines)


def write_page(text: str) -> None:
    """Put the table between its marks."""
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{rest[rest.index(END) :]}")


def free_base(folder: Path, first: int) -> int:
    """A base port for one broker, from `first` on."""
    for base in range(first, first + 400, 10):
        try:
            check_ports_free(ClusterSpec(folder, "ports", 2, base))
        except UsageError:
            continue
        return base
    raise SystemExit(f"no free ports from {first} on: give --ports-from")


def main() -> int:
    """Compare, print, and with --write change the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ports-from", type=int, default=27_700)
    parser.add_argument("--write", action="store_true", help="write the table into docs/")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        base = free_base(folder, options.ports_from)
        theirs = stack.enter_context(apicurio(base + 5, folder / "apicurio.log"))
        cluster = stack.enter_context(LocalCluster(folder / "cluster", base, brokers=1))
        ours = stack.enter_context(serving(cluster.bootstrap, folder / "registry.log"))
        text = table(*differences(theirs, ours.url))
    print(text)
    if options.write:
        write_page(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
