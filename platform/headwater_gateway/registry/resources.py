"""The resources of Confluent's REST interface: path and method -> a function of a request.

Each function says whose rights it needs, asks the state, or executes a command; it returns the
document of the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headwater_gateway.registry import deletion, questions, registration, settings
from headwater_gateway.registry.http_requests import PlainText, RegistryRequest
from headwater_gateway.registry.parts import RegistryParts
from headwater_gateway.registry.requests import (
    SchemaRequest,
    config_request,
    json_object,
    mode_request,
    schema_request,
    version_number,
)
from headwater_gateway.registry.rights import Right
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.subjects import (
    GLOBAL,
    WILDCARD_PREFIX,
    normal_context,
    parse_subject,
)
from headwater_gateway.registry.values import SCHEMA_TYPES, SubjectVersion

Resource = Callable[[RegistryRequest], Any]


class Resources:
    """The functions of all paths. Any thread may call them."""

    def __init__(self, parts: RegistryParts) -> None:
        self._store = parts.store
        self._formats = parts.formats
        self._rights = parts.rights
        self._parts = parts

    def routes(self) -> dict[str, dict[str, Resource]]:
        """Path -> method -> function."""
        return {
            "/": {"GET": lambda _: {}, "POST": lambda _: {}},
            "/subjects": {"GET": self._subjects},
            "/subjects/{subject}": {"POST": self._look_up, "DELETE": self._delete_subject},
            "/subjects/{subject}/versions": {"GET": self._versions, "POST": self._register},
            "/subjects/{subject}/versions/{version}": {
                "GET": self._version,
                "DELETE": self._delete_version,
            },
            "/subjects/{subject}/versions/{version}/schema": {"GET": self._version_text},
            "/subjects/{subject}/versions/{version}/referencedby": {"GET": self._referenced_by},
            "/subjects/{subject}/metadata": {"GET": self._metadata},
            "/schemas": {"GET": self._schemas},
            "/schemas/types": {"GET": lambda _: list(SCHEMA_TYPES)},
            "/schemas/ids/{id}": {"GET": self._by_id},
            "/schemas/ids/{id}/schema": {"GET": self._text_by_id},
            "/schemas/ids/{id}/subjects": {"GET": self._subjects_of_id},
            "/schemas/ids/{id}/versions": {"GET": self._versions_of_id},
            "/schemas/guids/{guid}": {"GET": self._by_guid},
            "/schemas/guids/{guid}/ids": {"GET": self._ids_of_guid},
            "/compatibility/subjects/{subject}/versions": {"POST": self._check},
            "/compatibility/subjects/{subject}/versions/{version}": {"POST": self._check},
            "/config": self._settings_of_all("config"),
            "/config/{subject}": self._settings_of_subject("config"),
            "/mode": self._settings_of_all("mode"),
            "/mode/{subject}": self._settings_of_subject("mode"),
            "/contexts": {"GET": self._contexts},
            "/contexts/{context}": {"DELETE": self._delete_context},
            "/v1/metadata/id": {"GET": self._cluster_id},
            "/v1/metadata/version": {"GET": self._server_version},
        }

    def _settings_of_all(self, kind: str) -> dict[str, Resource]:
        return {m: partial(f, subject=GLOBAL) for m, f in self._settings(kind).items()}

    def _settings_of_subject(self, kind: str) -> dict[str, Resource]:
        def of(function: Callable[..., Any], request: RegistryRequest) -> Any:
            return function(request, subject=request.subject)

        return {m: partial(of, f) for m, f in self._settings(kind).items()}

    def _settings(self, kind: str) -> dict[str, Callable[..., Any]]:
        if kind == "config":
            return {"GET": self._config, "PUT": self._set_config, "DELETE": self._delete_config}
        return {"GET": self._mode, "PUT": self._set_mode, "DELETE": self._delete_mode}

    # --- subjects and versions ----------------------------------------------------------------

    def _readable(self, request: RegistryRequest, subject: str) -> RegistryState:
        """The state, for a user who may read the subject."""
        self._rights.check(request.user, Right.READ, subject)
        return self._store.state()

    def _subjects(self, request: RegistryRequest) -> Any:
        found = questions.list_subjects(
            self._store.state(),
            request.text("subjectPrefix", WILDCARD_PREFIX),
            deleted=request.flag("deleted"),
            deleted_only=request.flag("deletedOnly"),
        )
        readable = self._rights.readable(request.user, found)
        return self._page(request, [s for s in found if s in readable])

    def _page(self, request: RegistryRequest, rows: list[Any]) -> list[Any]:
        return questions.page(rows, request.number("offset", 0), request.number("limit", -1))

    def _versions(self, request: RegistryRequest) -> Any:
        found = questions.list_versions(
            self._readable(request, request.subject),
            request.subject,
            deleted=request.flag("deleted"),
            deleted_only=request.flag("deletedOnly"),
            as_negative=request.flag("deletedAsNegative"),
        )
        return self._page(request, found)

    def _find(self, request: RegistryRequest, *, deleted: bool) -> SubjectVersion:
        state = self._readable(request, request.subject)
        number = version_number(request.part("version"))
        return questions.find_version(state, request.subject, number, deleted=deleted)

    def _version(self, request: RegistryRequest) -> Any:
        found = self._find(request, deleted=request.flag("deleted"))
        document = questions.schema_document(found)
        if request.text("referenceFormat") == questions.QUALIFIED:
            document = questions.qualified_references(found, document)
        return self._in_form(request, found, document)

    def _in_form(
        self, request: RegistryRequest, version: SubjectVersion, document: dict[str, Any]
    ) -> dict[str, Any]:
        state = self._store.state()
        return questions.in_form(state, self._formats, version, document, request.text("format"))

    def _version_text(self, request: RegistryRequest) -> Any:
        return PlainText(self._version(request)["schema"])

    def _referenced_by(self, request: RegistryRequest) -> Any:
        found = self._find(request, deleted=True)
        state = self._store.state()
        ids = questions.referenced_by(state, found, deleted=request.flag("deleted"))
        return self._page(request, ids)

    def _metadata(self, request: RegistryRequest) -> Any:
        wanted = dict(zip(request.texts("key"), request.texts("value"), strict=False))
        found = questions.latest_with_metadata(
            self._readable(request, request.subject),
            request.subject,
            wanted,
            deleted=request.flag("deleted"),
        )
        return self._in_form(request, found, questions.schema_document(found))

    def _register(self, request: RegistryRequest) -> Any:
        subject, wanted = request.subject, schema_request(json_object(request.body))
        self._rights.check(request.user, Right.WRITE, subject)

        def command(state: RegistryState) -> Any:
            normalize = request.flag("normalize") or state.normalizes(subject)
            return registration.register(state, self._formats, subject, wanted, normalize=normalize)

        registered: SubjectVersion = self._store.execute(command)
        document = questions.registered_document(registered)
        return self._in_form(request, registered, document)

    def _look_up(self, request: RegistryRequest) -> Any:
        subject, wanted = request.subject, schema_request(json_object(request.body))
        state = self._readable(request, subject)
        found = registration.look_up(
            state,
            self._formats,
            subject,
            wanted,
            normalize=request.flag("normalize") or state.normalizes(subject),
            deleted=request.flag("deleted"),
        )
        return self._in_form(request, found, questions.schema_document(found))

    def _delete_subject(self, request: RegistryRequest) -> Any:
        subject = request.subject
        self._rights.check(request.user, Right.WRITE, subject)
        permanent = request.flag("permanent")
        return self._store.execute(
            lambda state: deletion.delete_subject(state, subject, permanent=permanent)
        )

    def _delete_version(self, request: RegistryRequest) -> Any:
        subject, number = request.subject, version_number(request.part("version"))
        self._rights.check(request.user, Right.WRITE, subject)
        permanent = request.flag("permanent")
        return self._store.execute(
            lambda state: deletion.delete_version(state, subject, number, permanent=permanent)
        )

    # --- schemas by id ------------------------------------------------------------------------

    def _schemas(self, request: RegistryRequest) -> Any:
        found = questions.list_schemas(
            self._store.state(),
            request.text("subjectPrefix"),
            deleted=request.flag("deleted"),
            latest_only=request.flag("latestOnly"),
        )
        readable = self._rights.readable(request.user, {v.subject for v in found})
        rows = [questions.schema_document(v) for v in found if v.subject in readable]
        return self._page(request, rows)

    def _of_id(self, request: RegistryRequest) -> SubjectVersion:
        """A version with the id, that the user may read."""
        state, schema_id = self._store.state(), request.schema_id()
        found = questions.find_by_id(state, schema_id, request.text("subject"))
        self._check_any(request, [found, *state.with_id(_prefix(found), schema_id)])
        return found

    def _check_any(self, request: RegistryRequest, holders: list[SubjectVersion]) -> None:
        """A schema may be read by whoever may read a subject that has it."""
        names = list(dict.fromkeys(v.subject for v in holders))
        if not self._rights.readable(request.user, names):
            self._rights.check(request.user, Right.READ, names[0])

    def _by_id(self, request: RegistryRequest) -> Any:
        found = self._of_id(request)
        highest = self._store.state().max_id(_prefix(found))
        shown = highest if request.flag("fetchMaxId") else None
        document = questions.by_id_document(found, shown)
        if request.text("referenceFormat") == questions.QUALIFIED:
            document = questions.qualified_references(found, document)
        return self._in_form(request, found, document)

    def _text_by_id(self, request: RegistryRequest) -> Any:
        return PlainText(self._by_id(request)["schema"])

    def _rows_of_id(self, request: RegistryRequest) -> list[SubjectVersion]:
        rows = questions.versions_of_id(
            self._store.state(),
            request.schema_id(),
            request.text("subject"),
            deleted=request.flag("deleted"),
        )
        readable = self._rights.readable(request.user, {v.subject for v in rows})
        return [v for v in rows if v.subject in readable]

    def _subjects_of_id(self, request: RegistryRequest) -> Any:
        names = list(dict.fromkeys(v.subject for v in self._rows_of_id(request)))
        return self._page(request, names)

    def _versions_of_id(self, request: RegistryRequest) -> Any:
        rows = [{"subject": v.subject, "version": v.version} for v in self._rows_of_id(request)]
        return self._page(request, rows)

    def _by_guid(self, request: RegistryRequest) -> Any:
        found = questions.find_by_guid(self._store.state(), request.part("guid"))
        self._check_any(request, found)
        document = questions.by_id_document(found[0], None)
        return self._in_form(request, found[0], document)

    def _ids_of_guid(self, request: RegistryRequest) -> Any:
        found = questions.find_by_guid(self._store.state(), request.part("guid"))
        self._check_any(request, found)
        return [{"context": parse_subject(v.subject).context, "id": v.schema_id} for v in found]

    # --- compatibility, settings, contexts ----------------------------------------------------

    def _check(self, request: RegistryRequest) -> Any:
        subject, wanted = request.subject, schema_request(json_object(request.body))
        state = self._readable(request, subject)
        problems = self._problems(state, request, wanted)
        document: dict[str, Any] = {"is_compatible": not problems}
        if request.flag("verbose"):
            document["messages"] = problems
        return document

    def _problems(
        self, state: RegistryState, request: RegistryRequest, wanted: SchemaRequest
    ) -> list[str]:
        subject = request.subject
        number = version_number(request.part("version")) if request.has("version") else None
        return registration.check(
            state,
            self._formats,
            subject,
            number,
            wanted,
            normalize=request.flag("normalize") or state.normalizes(subject),
        )

    def _config(self, request: RegistryRequest, subject: str) -> Any:
        state = self._store.state() if subject == GLOBAL else self._readable(request, subject)
        return settings.config_of(state, subject, in_scope=request.flag("defaultToGlobal"))

    def _set_config(self, request: RegistryRequest, subject: str) -> Any:
        config = config_request(json_object(request.body))
        self._rights.check(request.user, Right.CONFIGURE, subject)
        return self._store.execute(lambda state: settings.set_config(state, subject, config))

    def _delete_config(self, request: RegistryRequest, subject: str) -> Any:
        self._rights.check(request.user, Right.CONFIGURE, subject)
        return self._store.execute(lambda state: settings.delete_config(state, subject))

    def _mode(self, request: RegistryRequest, subject: str) -> Any:
        state = self._store.state() if subject == GLOBAL else self._readable(request, subject)
        return settings.mode_of(state, subject, in_scope=request.flag("defaultToGlobal"))

    def _set_mode(self, request: RegistryRequest, subject: str) -> Any:
        mode, force = mode_request(json_object(request.body)), request.flag("force")
        self._rights.check(request.user, Right.CONFIGURE, subject)
        return self._store.execute(
            lambda state: settings.set_mode(state, subject, mode, force=force)
        )

    def _delete_mode(self, request: RegistryRequest, subject: str) -> Any:
        self._rights.check(request.user, Right.CONFIGURE, subject)
        return self._store.execute(lambda state: settings.delete_mode(state, subject))

    def _contexts(self, request: RegistryRequest) -> Any:
        prefix = request.text("contextPrefix")
        found = [c for c in self._store.state().contexts() if c.startswith(prefix)]
        return self._page(request, found)

    def _delete_context(self, request: RegistryRequest) -> Any:
        context = normal_context(request.part("context"))
        self._rights.check(request.user, Right.CONFIGURE, GLOBAL)
        return self._store.execute(lambda state: deletion.delete_context(state, context))

    def _cluster_id(self, _request: RegistryRequest) -> Any:
        clusters = {"kafka-cluster": self._parts.cluster_id() or "", "schema-registry-cluster": "_"}
        return {"id": "", "scope": {"path": [], "clusters": clusters}}

    def _server_version(self, _request: RegistryRequest) -> Any:
        return {"version": self._parts.version, "commitId": ""}


def _prefix(version: SubjectVersion) -> str:
    return parse_subject(version.subject).prefix
