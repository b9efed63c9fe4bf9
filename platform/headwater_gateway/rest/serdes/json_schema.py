"""JSON Schema: the value itself, once the schema accepts it."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import encoded, parsed
from headwater_gateway.rest.serdes.port import SerdeError
from headwater_gateway.rest.serdes.time_limit import time_limit
from headwater_tier.typed.decoding import RegisteredSchema

SHOWN_CHARS = 200
LIMIT_S = 0.5
"""Of a value's validation, while nobody else is served. A schema that took longer is not used any
more."""


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
            self._is_slow = False
            self._validator = kind(document, registry=Registry().with_resources(named))
        except (ValueError, RecursionError, jsonschema.SchemaError) as error:
            raise SerdeError(f"no JSON schema: {str(error)[:SHOWN_CHARS]}") from error

    def encode(self, value: Any) -> bytes:
        """See the port."""
        if self._is_slow:
            raise self._slow()
        try:
            with time_limit(LIMIT_S):
                error = next(self._validator.iter_errors(value), None)
            if error is not None:
                raise SerdeError(f"{error.json_path}: {error.message[:SHOWN_CHARS]}")
            return encoded(value)
        except TimeoutError:
            self._is_slow = True
            raise self._slow() from None
        except (Unresolvable, RecursionError, ArithmeticError, re.error, GatewayError) as fault:
            raise SerdeError(str(fault)[:SHOWN_CHARS]) from fault

    def _slow(self) -> SerdeError:
        return SerdeError(f"the schema took more than {LIMIT_S:g} s for a value: simplify it")

    def decode(self, payload: bytes) -> Any:
        """See the port."""
        try:
            return parsed(payload)
        except GatewayError as error:
            raise SerdeError(str(error)) from error
