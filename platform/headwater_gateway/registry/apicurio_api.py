"""The part of Apicurio's own REST interface (core API, v3) that its serializers for Kafka use.

An artifact of the group `default` is a subject; content id and global id are the schema's id, which
is also what the serializers put into records, in Confluent's frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater_gateway.registry import questions, registration
from headwater_gateway.registry.errors import RegistryError, version_not_found
from headwater_gateway.registry.http_requests import PlainText, RegistryRequest
from headwater_gateway.registry.parts import RegistryParts
from headwater_gateway.registry.requests import (
    SchemaRequest,
    is_small_number,
    json_object,
    schema_request,
    text_of,
)
from headwater_gateway.registry.rights import Right
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.values import AVRO, LATEST, SubjectVersion

ROOT = "/apis/registry/v3"
GROUP = "default"
LATEST_EXPRESSION = "branch=latest"
FAIL = "FAIL"
ARTIFACT = f"{ROOT}/groups/{{group}}/artifacts/{{subject}}/versions/{{version}}"


class ApicurioResources:
    """The functions of its paths. Any thread may call them."""

    def __init__(self, parts: RegistryParts) -> None:
        self._store = parts.store
        self._formats = parts.formats
        self._rights = parts.rights

    def routes(self) -> dict[str, dict[str, Any]]:
        """Path -> method -> function."""
        found: dict[str, dict[str, Any]] = {
            f"{ROOT}/groups/{{group}}/artifacts": {"POST": self._create},
            f"{ROOT}/search/versions": {"POST": self._search},
            ARTIFACT: {"GET": self._version},
            f"{ARTIFACT}/content": {"GET": self._version_content},
            f"{ARTIFACT}/references": {"GET": self._version_references},
        }
        for kind in ("contentIds", "globalIds"):
            found[f"{ROOT}/ids/{kind}/{{id}}"] = {"GET": self._content}
            found[f"{ROOT}/ids/{kind}/{{id}}/references"] = {"GET": self._references}
        return found

    def _create(self, request: RegistryRequest) -> Any:
        _check_group(request.part("group"))
        document = json_object(request.body)
        subject, wanted = str(document.get("artifactId") or ""), _wanted(document)
        self._rights.check(request.user, Right.WRITE, subject)
        must_be_new = request.text("ifExists", FAIL) == FAIL

        def command(state: RegistryState) -> Any:
            if must_be_new and state.has_subject(subject, deleted=False):
                raise RegistryError(409, 409, f"artifact {subject} exists already")
            normalize = state.normalizes(subject) or request.flag("canonical")
            return registration.register(state, self._formats, subject, wanted, normalize=normalize)

        found: SubjectVersion = self._store.execute(command)
        kind = found.content.schema_type
        artifact = {"groupId": GROUP, "artifactId": subject, "artifactType": kind}
        return {"artifact": artifact, "version": _metadata(found)}

    def _search(self, request: RegistryRequest) -> Any:
        """The versions of a subject with the content of the body."""
        subject = request.text("artifactId")
        self._rights.check(request.user, Right.READ, subject)
        kind = request.text("artifactType", AVRO)
        wanted = schema_request({"schema": text_of(request.body), "schemaType": kind})
        try:
            found = [
                registration.look_up(
                    self._store.state(),
                    self._formats,
                    subject,
                    wanted,
                    normalize=request.flag("canonical"),
                    deleted=False,
                )
            ]
        except RegistryError as error:
            if error.status != 404:
                raise
            found = []
        return {"count": len(found), "versions": [_metadata(v) for v in found]}

    def _find(self, request: RegistryRequest) -> SubjectVersion:
        _check_group(request.part("group"))
        self._rights.check(request.user, Right.READ, request.subject)
        expression = request.part("version")
        if expression != LATEST_EXPRESSION and not is_small_number(expression):
            raise version_not_found(expression[:100])
        number = LATEST if expression == LATEST_EXPRESSION else int(expression)
        return questions.find_version(self._store.state(), request.subject, number, deleted=False)

    def _version(self, request: RegistryRequest) -> Any:
        return _metadata(self._find(request))

    def _version_content(self, request: RegistryRequest) -> Any:
        return PlainText(self._find(request).content.text)

    def _version_references(self, request: RegistryRequest) -> Any:
        return _references(self._find(request))

    def _of_id(self, request: RegistryRequest) -> SubjectVersion:
        state, schema_id = self._store.state(), request.schema_id()
        found = questions.find_by_id(state, schema_id, "")
        holders = list(dict.fromkeys(v.subject for v in state.with_id("", schema_id)))
        if not self._rights.readable(request.user, holders):
            self._rights.check(request.user, Right.READ, found.subject)
        return found

    def _content(self, request: RegistryRequest) -> Any:
        return PlainText(self._of_id(request).content.text)

    def _references(self, request: RegistryRequest) -> Any:
        return _references(self._of_id(request))


def _check_group(group: str) -> None:
    if group != GROUP:
        raise RegistryError(404, 404, f"group {group!r}: there is only {GROUP!r} here")


def _wanted(document: Mapping[str, Any]) -> SchemaRequest:
    """The schema of a CreateArtifact."""
    first = document.get("firstVersion")
    content = first.get("content") if isinstance(first, dict) else None
    if not isinstance(content, dict):
        raise RegistryError(400, 400, "the artifact has no firstVersion with a content")
    given = content.get("references") or []
    rows = [r for r in given if isinstance(r, dict)] if isinstance(given, list) else []
    references = [
        {
            "name": row.get("name"),
            "subject": row.get("artifactId"),
            "version": int(row["version"]) if is_small_number(str(row.get("version"))) else LATEST,
        }
        for row in rows
    ]
    return schema_request(
        {
            "schema": content.get("content"),
            "schemaType": document.get("artifactType"),
            "references": references,
        }
    )


def _metadata(version: SubjectVersion) -> dict[str, Any]:
    return {
        "version": str(version.version),
        "artifactType": version.content.schema_type,
        "globalId": version.schema_id,
        "contentId": version.schema_id,
        "state": "ENABLED",
        "groupId": GROUP,
        "artifactId": version.subject,
    }


def _references(version: SubjectVersion) -> Any:
    return [
        {"groupId": GROUP, "artifactId": r.subject, "version": str(r.version), "name": r.name}
        for r in version.content.references
    ]
