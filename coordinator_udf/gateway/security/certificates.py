"""The gateway's key and certificates, read again when their files are written to."""

from __future__ import annotations

import datetime as dt
import logging
import ssl
from pathlib import Path
from typing import Final

from cryptography import x509

from coordinator_udf.gateway.file_stamps import FileStamp, file_stamp
from coordinator_udf.gateway.security.settings import SecuritySettings, server_tls

_log: Final = logging.getLogger(__name__)

#: How long before a certificate ends it is said: time for a person to renew it, and a quarter of what those that are
#: renewed by programs have left then (90 days, a third of them).
_WARNED_BEFORE: Final = dt.timedelta(days=7)


class Certificates:
    """What clients are met with by TLS.

    Attributes:
        tls: the context of now; None without TLS. New files make a new one, as one that is in use mustn't change.

    Raises:
        GatewaySettingsError: a file can't be used.
    """

    def __init__(self, settings: SecuritySettings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        named = (settings.keystore, settings.truststore) if settings.has_tls else ()
        self._files = [directory / name for name in named if name is not None]
        self._stamps = self._look()
        self.tls = self._read()

    def look_again(self) -> ssl.SSLContext | None:
        """Returns the context of now, of the files as they are now.

        Raises:
            GatewaySettingsError: a file can't be used; the context stays as it was.
        """
        if (stamps := self._look()) != self._stamps:
            self.tls = self._read()
            self._stamps = stamps
            _log.info("clients that connect are met with the certificates of %s as they are now", self._files[0])
        return self.tls

    def _look(self) -> list[FileStamp | None]:
        return [file_stamp(file) for file in self._files]

    def _read(self) -> ssl.SSLContext | None:
        tls = server_tls(self._settings, self._directory)
        if tls is not None:
            _warn_of_end(self._files[0])
        return tls


def _warn_of_end(keystore: Path) -> None:
    """Says it where the gateway's own certificate, the first of its file, has ended or does so soon."""
    end = x509.load_pem_x509_certificates(keystore.read_bytes())[0].not_valid_after_utc
    if end - dt.datetime.now(dt.UTC) < _WARNED_BEFORE:
        _log.warning("the certificate of %s ends at %s; clients don't believe it after that", keystore, end)
