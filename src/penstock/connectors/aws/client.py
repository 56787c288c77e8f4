"""Clients of AWS: regions, endpoints, credentials, and which errors pass.

`AwsSettings` has the properties of Flink's connectors of AWS, such as `aws.region` and `aws.credentials.provider`. It
travels with the job; `connect` makes a client of boto3 where it is used. Clients do not retry: the sources and sinks
do, because they know what may be sent again, and count it.

Credentials come from the usual chain (environment, profile, web identity, container, instance) unless a property names
another provider. Secret keys are hidden in logs, errors and printed forms.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.secrets import hide, remember, shown
from penstock.connectors.base import require

REGION: Final = "aws.region"
ENDPOINT: Final = "aws.endpoint"
TRUST_ALL: Final = "aws.trust.all.certificates"
CREDENTIALS: Final = "aws.credentials."
PROVIDER: Final = "aws.credentials.provider"
ACCESS_KEY: Final = "aws.credentials.basic.accesskeyid"
SECRET_KEY: Final = "aws.credentials.basic.secretkey"
PROFILE_PATH: Final = "aws.credentials.profile.path"
PROFILE_NAME: Final = "aws.credentials.profile.name"
ROLE_ARN: Final = "aws.credentials.role.arn"
ROLE_SESSION: Final = "aws.credentials.role.sessionName"
ROLE_EXTERNAL_ID: Final = "aws.credentials.role.externalId"
ROLE_STS_ENDPOINT: Final = "aws.credentials.role.stsEndpoint"
ROLE_PROVIDER: Final = "aws.credentials.role.provider"
TOKEN_FILE: Final = "aws.credentials.webIdentityToken.file"
#: All properties, in Flink's words for tables.
PROPERTIES: Final = (REGION, ENDPOINT, TRUST_ALL, PROVIDER, ACCESS_KEY, SECRET_KEY, PROFILE_PATH, PROFILE_NAME,
                     ROLE_ARN, ROLE_SESSION, ROLE_EXTERNAL_ID, ROLE_STS_ENDPOINT, ROLE_PROVIDER,
                     TOKEN_FILE)  # fmt: skip
PROVIDERS: Final = ("AUTO", "BASIC", "ENV_VAR", "PROFILE", "ASSUME_ROLE", "WEB_IDENTITY_TOKEN")
_JAVA: Final = {
    "SYS_PROP": "it reads properties of a Java process",
    "CUSTOM": "it names a Java class",
}

#: Codes of errors of a service that accepts the same request later, at a lower rate.
THROTTLING: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "KMSThrottlingException",
        "KmsThrottled",
        "LimitExceededException",
        "OverLimit",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "ThroughputExceeded",
        "TooManyRequestsException",
    }
)
#: Codes of other errors after which the same request may succeed.
TRANSIENT: Final = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalFailureException",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ResourceInUseException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    }
)


def load_library(user: str) -> Any:
    """Return the module `boto3`. Raises `ConfigurationError`, naming the user, if it is not installed."""
    require("boto3", user, "boto3", "aws")
    return importlib.import_module("boto3")


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Where a service is, and as whom it is used. Secrets are left out of the printed form.

    Attributes:
        properties: Flink's properties, in the form of tables (`aws.credentials.basic.secretkey`) or of data streams
            (`aws.credentials.provider.basic.secretkey`), which mean the same.

    Raises:
        ConfigurationError: for an unknown property, a provider that misses a property, or another value.
        UnsupportedError: for a provider that only Java has.
    """

    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        renamed = {
            key.replace(f"{PROVIDER}.", CREDENTIALS, 1): str(value) for key, value in dict(self.properties).items()
        }
        remember(renamed)
        object.__setattr__(self, "properties", renamed)
        unknown = sorted(set(renamed) - set(PROPERTIES))
        if unknown:
            raise ConfigurationError(
                f"AWS has no property {', '.join(map(repr, unknown))}; there are {', '.join(PROPERTIES)}"
            )
        if renamed.get(TRUST_ALL, "false").lower() not in ("true", "false"):
            raise ConfigurationError(f"{TRUST_ALL} is true or false, not {renamed[TRUST_ALL]!r}")
        self._check(self.provider)

    def __repr__(self) -> str:
        return f"AwsSettings({shown(self.properties)!r})"

    @property
    def provider(self) -> str:
        """The provider of credentials; BASIC if keys are given without one."""
        has_keys = ACCESS_KEY in self.properties and SECRET_KEY in self.properties
        name = self.properties.get(PROVIDER, "AUTO").upper()
        return "BASIC" if name == "AUTO" and has_keys else name

    def _check(self, provider: str) -> None:
        if provider in _JAVA:
            raise UnsupportedError(
                f"{PROVIDER} = {provider} is not supported: {_JAVA[provider]}. Use one of {', '.join(PROVIDERS)}"
            )
        if provider not in PROVIDERS:
            raise ConfigurationError(f"{PROVIDER} is one of {', '.join(PROVIDERS)}, not {provider!r}")
        needed = {
            "BASIC": (ACCESS_KEY, SECRET_KEY),
            "ASSUME_ROLE": (ROLE_ARN,),
            "WEB_IDENTITY_TOKEN": (ROLE_ARN, TOKEN_FILE),
        }
        missing = [key for key in needed.get(provider, ()) if key not in self.properties]
        if missing:
            raise ConfigurationError(f"{PROVIDER} = {provider} needs {', '.join(missing)}")
        if provider == "ASSUME_ROLE":
            source = self.properties.get(ROLE_PROVIDER, "AUTO").upper()
            if source == "ASSUME_ROLE":
                raise UnsupportedError(f"{ROLE_PROVIDER} = ASSUME_ROLE is not supported: chain roles in a profile")
            self._check(source)

    def connect(self, service: str, user: str, connections: int = 10, read_timeout_s: float = 60.0) -> Any:
        """Return a client of boto3, which threads may share.

        Args:
            service: its name in boto3, such as `kinesis`.
            user: the feature that connects, for errors.
            connections: how many requests it may have in flight.
            read_timeout_s: how long an answer may take.

        Raises:
            ConfigurationError: if boto3 is not installed, no region is known, or a profile does not exist.
        """
        boto3 = load_library(user)
        errors = importlib.import_module("botocore.exceptions")
        properties = self.properties
        try:
            session = self._build_session(boto3)
            parsers = session._session.get_component("response_parser_factory")
            # the library's own parser makes dates of a local time zone, which costs more than the rest of a record
            parsers.set_parser_defaults(timestamp_parser=_keep)
            return session.client(
                service,
                region_name=properties.get(REGION),
                endpoint_url=properties.get(ENDPOINT),
                verify=False if properties.get(TRUST_ALL, "false").lower() == "true" else None,
                config=importlib.import_module("botocore.config").Config(
                    connect_timeout=10,
                    read_timeout=read_timeout_s,
                    max_pool_connections=connections,
                    retries={"total_max_attempts": 1},
                    parameter_validation=False,
                    tcp_keepalive=True,
                    user_agent_extra="penstock",
                ),
            )
        except errors.NoRegionError as error:
            raise ConfigurationError(f"{user}: no region is known: set {REGION}") from error
        except (errors.BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"{user}: {hide(str(error))}") from error

    def _build_session(self, boto3: Any) -> Any:
        core = importlib.import_module("botocore.session").Session(profile=self.properties.get(PROFILE_NAME))
        core.register_component("data_loader", _create_loader())
        if PROFILE_PATH in self.properties:
            core.set_config_variable("credentials_file", self.properties[PROFILE_PATH])
        provider = self.provider
        if provider == "ASSUME_ROLE":
            source = self.properties.get(ROLE_PROVIDER, "AUTO").upper()
            has_keys = ACCESS_KEY in self.properties
            _restrict(core, "BASIC" if source == "AUTO" and has_keys else source, self.properties)
            core._credentials = self._assume_role(core)
        elif provider == "WEB_IDENTITY_TOKEN":
            core._credentials = self._exchange_token(core)
        else:
            _restrict(core, provider, self.properties)
        return boto3.Session(botocore_session=core, region_name=self.properties.get(REGION))

    def _role_arguments(self) -> dict[str, str]:
        names = {"RoleSessionName": ROLE_SESSION, "ExternalId": ROLE_EXTERNAL_ID}
        return {name: self.properties[key] for name, key in names.items() if key in self.properties}

    def _sts(self, core: Any) -> Any:
        def create(service: str, **arguments: Any) -> Any:
            more = {"region_name": self.properties.get(REGION), "endpoint_url": self.properties.get(ROLE_STS_ENDPOINT)}
            return core.create_client(service, **{**arguments, **more})

        return create

    def _assume_role(self, core: Any) -> Any:
        credentials = importlib.import_module("botocore.credentials")
        fetcher = credentials.AssumeRoleCredentialFetcher(
            self._sts(core), core.get_credentials(), self.properties[ROLE_ARN], extra_args=self._role_arguments()
        )
        return credentials.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def _exchange_token(self, core: Any) -> Any:
        credentials = importlib.import_module("botocore.credentials")
        utils = importlib.import_module("botocore.utils")
        arguments = {name: value for name, value in self._role_arguments().items() if name == "RoleSessionName"}
        fetcher = credentials.AssumeRoleWithWebIdentityCredentialFetcher(
            self._sts(core),
            utils.FileWebIdentityTokenLoader(self.properties[TOKEN_FILE]),
            self.properties[ROLE_ARN],
            extra_args=arguments,
        )
        return credentials.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role-with-web-identity")


@cache
def _create_loader() -> Any:
    """Return what reads the descriptions of services; the clients of a process share it, since it reads megabytes."""
    return importlib.import_module("botocore.loaders").create_loader()


def _restrict(core: Any, provider: str, properties: Mapping[str, str]) -> None:
    """Let a session take its credentials from one provider alone; AUTO is the whole chain."""
    if provider == "BASIC":
        core.set_credentials(properties[ACCESS_KEY], properties[SECRET_KEY])
    elif provider in ("ENV_VAR", "PROFILE"):
        names = {"ENV_VAR": ("env",), "PROFILE": ("assume-role", "sso", "shared-credentials-file", "config-file")}
        resolver = core.get_component("credential_provider")
        resolver.providers = [each for each in resolver.providers if each.METHOD in names[provider]]


def _keep(value: Any) -> Any:
    """Return a time as it comes: seconds since 1970, or a date."""
    return value


def read_ms(time: Any) -> int:
    """Return the milliseconds of a time in an answer, which some protocols of AWS have as a number, others as text."""
    if isinstance(time, int | float):
        return round(time * 1_000)
    if isinstance(time, str):
        time = importlib.import_module("botocore.utils").parse_timestamp(time)
    moment: datetime = time
    return round(moment.timestamp() * 1_000)


def read_code(error: BaseException) -> str | None:
    """Return the code of an error that the service answered; None for another error."""
    response = getattr(error, "response", None)
    return response.get("Error", {}).get("Code", "").rpartition("#")[2] if isinstance(response, dict) else None


def is_throttled(error: BaseException) -> bool:
    """Return whether the service refuses a request because there are too many."""
    return read_code(error) in THROTTLING


def is_passing(error: BaseException) -> bool:
    """Return whether the same request may succeed later: throttling, failures of the service and of connections."""
    code = read_code(error)
    if code is None:
        errors = importlib.import_module("botocore.exceptions")
        return isinstance(error, errors.HTTPClientError | errors.IncompleteReadError | OSError)
    response: Any = error.response  # type: ignore[attr-defined]
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code in THROTTLING or code in TRANSIENT or status >= 500


def describe(error: BaseException) -> str:
    """Return an error as a line without secrets."""
    return hide(f"{type(error).__name__}: {error}")
