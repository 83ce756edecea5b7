"""Puts together what the file of --security asks for."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from coordinator_udf.gateway.file_stamps import file_stamp
from coordinator_udf.gateway.security.acls import Acls
from coordinator_udf.gateway.security.admission import SecureAdmission, Strangers
from coordinator_udf.gateway.security.certificates import Certificates
from coordinator_udf.gateway.security.oauthbearer import OAuthBearerExchange, TokenCheck
from coordinator_udf.gateway.security.quotas import Quotas
from coordinator_udf.gateway.security.sasl import OAUTHBEARER, Begin, user_mechanisms
from coordinator_udf.gateway.security.sasl_authentication import Authenticator
from coordinator_udf.gateway.security.settings import SecuritySettings, read_security, upstream_tls
from coordinator_udf.gateway.security.users import UserFile
from coordinator_udf.gateway.security.web_keys import WebKeys
from coordinator_udf.gateway.settings import GatewaySettingsError
from coordinator_udf.gateway.upstream.login import Credentials


class Security:
    """All that a gateway authenticates clients and authorizes requests with.

    Attributes:
        settings: as the file says; of ACLs and super users what it said when it was read first.
        directory: where the files are that the settings name.

    Args:
        path: the file of --security. It, the file of users and those of certificates are read again when they are
            written to.

    Raises:
        GatewaySettingsError: a file can't be used; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = file_stamp(path)
        self.settings = read_security(path)
        self.directory = path.parent
        self._acls = _acls(self.settings)
        self.quotas = Quotas(self.settings.quotas)
        settings = self.settings
        self._users = None
        if settings.has_sasl and settings.user_mechanisms and settings.users is not None:
            self._users = UserFile(self.directory / settings.users)
        self._tokens = _token_check(settings, self.directory) if settings.has_sasl else None
        self._certificates = Certificates(settings, self.directory)
        self.admission = SecureAdmission(
            settings=settings,
            tls=self._certificates.tls,
            authenticator=Authenticator(
                mechanisms=self._mechanisms(),
                # One thread: who tries passwords takes no more than that.
                passwords=ThreadPoolExecutor(1, thread_name_prefix="gateway-passwords"),
                failure_delay_ms=settings.failure_delay_ms,
                frame_bytes_max=settings.token_bytes_max,
                reauthenticate_ms=settings.reauthenticate_ms,
            ),
            strangers=Strangers(settings.strangers_max),
        )

    def _mechanisms(self) -> Mapping[str, Begin]:
        """Returns what begins an authentication by each mechanism, in the order of the settings."""
        begins: dict[str, Begin] = {}
        if self._users is not None:
            begins |= user_mechanisms(self.settings.user_mechanisms, self._users)
        if self._tokens is not None:
            begins[OAUTHBEARER] = partial(OAuthBearerExchange, self._tokens)
        return {name: begins[name] for name in self.settings.mechanisms if name in begins}

    def acls(self) -> Acls | None:
        """Returns the rules of now; None where everybody may do everything."""
        return self._acls

    def look_again(self) -> None:
        """Takes over new users, keys and certificates, and the ACLs and super users of the file of --security.

        Raises:
            GatewaySettingsError: some can't be read; what these say stays as it was, the others are taken over.
        """
        looks = [self._look_at_acls, self._look_at_certificates]
        if self._users is not None:
            looks.append(self._users.look_again)
        if self._tokens is not None:
            # Last, as a provider may take its time.
            looks.append(self._tokens.keys.look_again)
        failures: list[str] = []
        for look in looks:
            try:
                look()
            except GatewaySettingsError as error:
                failures.append(str(error))
        if failures:
            raise GatewaySettingsError("; ".join(failures))

    def _look_at_acls(self) -> None:
        if (stamp := file_stamp(self._path)) != self._stamp:
            self._acls = _acls(read_security(self._path))
            self._stamp = stamp

    def _look_at_certificates(self) -> None:
        self.admission.tls = self._certificates.look_again()

    def upstream_tls(self) -> ssl.SSLContext | None:
        """Returns the TLS context for connections to brokers of the cluster; None without TLS.

        Raises:
            GatewaySettingsError: a file can't be used.
        """
        return upstream_tls(self.settings, self.directory)

    def upstream_credentials(self) -> Credentials | None:
        """Returns the gateway's own name and password in the cluster; None where it doesn't authenticate.

        Raises:
            GatewaySettingsError: the file with its password can't be read.
        """
        settings = self.settings
        if settings.upstream_username is None or settings.upstream_password is None:
            return None
        path = self.directory / settings.upstream_password
        try:
            password = path.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise GatewaySettingsError(f"upstream.sasl.password.location {path} can't be read: {error}") from error
        return Credentials(settings.upstream_mechanism, settings.upstream_username, password)


def _acls(settings: SecuritySettings) -> Acls | None:
    if not settings.acls:
        return None
    return Acls(settings.acls, settings.super_users, allow_without_acl=settings.allow_without_acl)


def _token_check(settings: SecuritySettings, directory: Path) -> TokenCheck | None:
    location, issuer = settings.jwks, settings.token_issuer
    if OAUTHBEARER not in settings.mechanisms or location is None or issuer is None:
        return None
    keys = WebKeys(location, directory, refresh_ms=settings.jwks_refresh_ms, truststore=settings.jwks_truststore)
    return TokenCheck(
        keys=keys,
        issuer=issuer,
        audiences=settings.token_audiences,
        skew_s=settings.token_skew_s,
        user_claim=settings.token_user_claim,
    )
