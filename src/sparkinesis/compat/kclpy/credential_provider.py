"""Translation of the credential providers in a properties file to credential sources.

The daemon takes a comma-separated list of providers; bars separate the parts of one:
``StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/r|session|externalId=x``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkinesis.stream.address import REGION, is_url
from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource

_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[!-~]{1,574}")
# The names in both versions of the SDK, and the KCL's own, which also take an endpoint.
_ASSUMES_ROLE = re.compile(r"(Kcl)?S[tT][sS]AssumeRole(Session)?CredentialsProvider")


def credential_provider(value: str) -> CredentialSource:
    """Return the credential source for the first provider of the list. Raises ValueError.

    A role and a profile are translated. Any other provider, such as DefaultCredentialsProvider,
    becomes boto3's own chain: environment, files, container, instance. Errors never show the value,
    because it may contain an external id.
    """
    kind, *arguments = [part.strip() for part in value.split(",", maxsplit=1)[0].split("|")]
    kind = kind.rsplit(".", maxsplit=1)[-1]
    if _ASSUMES_ROLE.fullmatch(kind):
        return _role(arguments)
    if kind == "ProfileCredentialsProvider" and arguments:
        return CredentialSource(profile=arguments[0].removeprefix("profileName="))
    return FOUND_BY_BOTO


def _role(arguments: Sequence[str]) -> CredentialSource:
    positional = [argument for argument in arguments if "=" not in argument.split("/")[0]]
    named = dict(
        argument.split("=", maxsplit=1) for argument in arguments if argument not in positional
    )
    if len(positional) != 2 or not _ROLE_ARN.fullmatch(positional[0]):
        raise ValueError(
            "a role provider takes a role ARN and a session name: "
            "StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/reader|name"
        )
    arn, session = positional
    return CredentialSource(
        role_arn=arn,
        session_name=session,
        external_id=named.get("externalId"),
        sts_endpoint=_sts_endpoint(named),
    )


def _sts_endpoint(named: dict[str, str]) -> str | None:
    if "endpoint" in named:  # URL^region, the region being what the SDK for Java signs for
        url = named["endpoint"].split("^")[0]
        if "://" not in url:
            url = f"https://{url}"
        if not is_url(url):
            raise ValueError("endpoint= takes a URL and a region, as https://HOST^eu-west-1")
        return url
    if "endpointRegion" in named:
        region = named["endpointRegion"]
        if not REGION.fullmatch(region):
            raise ValueError("endpointRegion= takes an AWS region, such as eu-west-1")
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        return f"https://sts.{region}.{domain}"
    return None
