"""The send queue of a connection with TLS: slices of files are read, encrypted, and written."""

from __future__ import annotations

import os
from typing import ClassVar, cast

from headwater_broker.api.replies import FilePart
from headwater_broker.network.send_queue import SendQueue, short_file
from headwater_broker.network.tls_transport import TlsTransport


class TlsSendQueue(SendQueue):
    """A `SendQueue` whose bytes all pass through the transport."""

    allows_sendfile: ClassVar[bool] = False

    __slots__ = ()

    def _write_slice(self, part: FilePart) -> int:
        transport = cast(TlsTransport, self._transport)
        scratch = transport.scratch
        if part.size < len(scratch):
            scratch = scratch[: part.size]
        try:
            count = os.preadv(part.fd, [scratch], part.position)
        except OSError as error:
            self._break(error)
            return 0
        if not count:
            self._break(short_file(part))
            return 0
        self._took(part, count)
        transport.write(scratch[:count])
        return count
