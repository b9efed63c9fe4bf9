"""JSON Schema: the value itself, once the schema accepts it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import encoded, parsed
from headwater_gateway.rest.serdes.port import SerdeError
from headwater_tier.typed.decoding import RegisteredSchema

SHOWN_CHARS = 200


class JsonSchemaSerde:
    """One JSON schema. What it refers to must be among its references: nothing is fetched."""

    def __init__(self, schema: RegisteredSchema) -> None:
        try:
            named = [
                (name, Resource.from_contents(json.loads(text), default_specification=DRAFT7))
                for name, text in schema.references
            ]
            document = json.loads(schema.text)
            kind = validator_for(document, default=jsonschema.Draft7Validator)
            kind.check_schema(document)
            self._validator = kind(document, registry=Registry().with_resources(named))
        except (ValueError, RecursionError, jsonschema.SchemaError) as error:
            raise SerdeError(f"no JSON schema: {str(error)[:SHOWN_CHARS]}") from error

    def encode(self, value: Any) -> bytes:
        """See the port."""
        try:
            error = next(self._validator.iter_errors(value), None)
            if error is not None:
                raise SerdeError(f"{error.json_path}: {error.message[:SHOWN_CHARS]}")
            return encoded(value)
        except (Unresolvable, RecursionError, GatewayError) as fault:
            raise SerdeError(str(fault)[:SHOWN_CHARS]) from fault

    def decode(self, payload: bytes) -> Any:
        """See the port."""
        try:
            return parsed(payload)
        except GatewayError as error:
            raise SerdeError(str(error)) from error
