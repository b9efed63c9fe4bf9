"""Values that are text as they are (Kafka's StringDeserializer): one column, valid UTF-8 only."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater_tier.typed.formats.column_types import STRING, VALUE_COLUMN
from headwater_tier.typed.formats.misfit import malformed


class StringRows:
    """Reads rows of one string (`headwater_tier.typed.formats.rows.RowReader`)."""

    schema = pa.schema([pa.field(VALUE_COLUMN, STRING)])

    def read(self, blob: bytes) -> dict[str, Any]:
        """The row. Raises NotFittingError."""
        try:
            return {VALUE_COLUMN: blob.decode("utf-8")}
        except UnicodeDecodeError as error:
            raise malformed(f"byte {error.start} is no UTF-8") from None
