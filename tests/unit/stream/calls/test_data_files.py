"""botocore's data files, read by our loader, are those that botocore reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.session
import pytest
from botocore.exceptions import DataNotFoundError, UnknownServiceError
from botocore.regions import EndpointResolver

from sparkinesis.stream.calls.data_files import data_loader
from sparkinesis.stream.calls.default_region import partition_of
from sparkinesis.stream.calls.session import new_session

SERVICES = ("kinesis", "dynamodb", "sts", "portal.sso", "no-such-service")
REGIONS = ("us-east-1", "eu-west-1", "cn-north-1", "us-gov-west-1", "us-iso-east-1", "xx-new-9")


@pytest.mark.parametrize("service", ["kinesis", "dynamodb", "sts", "sso"])
@pytest.mark.parametrize("kind", ["service-2", "endpoint-rule-set-1"])
def test_a_service_has_the_same_model(service: str, kind: str) -> None:
    theirs = botocore.loaders.create_loader().load_service_model(service, kind)
    ours = data_loader(None)
    assert ours.load_service_model(service, kind) == theirs
    assert ours.load_service_model(service, kind) is ours.load_service_model(service, kind)


def test_all_partitions_have_the_same_endpoints() -> None:
    loaders = botocore.loaders.create_loader(), data_loader(None)
    theirs, ours = (EndpointResolver(each.load_data("endpoints")) for each in loaders)
    assert ours.get_available_partitions() == theirs.get_available_partitions()
    for service in SERVICES:
        for partition in theirs.get_available_partitions():
            assert ours.get_available_endpoints(
                service, partition, allow_non_regional=True
            ) == theirs.get_available_endpoints(service, partition, allow_non_regional=True)
        for region in REGIONS:
            for fips, dualstack in ((False, False), (True, False), (False, True), (True, True)):
                variants = {"use_fips_endpoint": fips, "use_dualstack_endpoint": dualstack}
                found, expected = (
                    _outcome(each, service, region, variants) for each in (ours, theirs)
                )
                assert found == expected
    theirs_whole, ours_whole = (each.load_data("endpoints") for each in loaders)
    assert json.dumps(ours_whole, default=dict, sort_keys=True) == json.dumps(
        theirs_whole, sort_keys=True
    )


def _outcome(resolver: Any, service: str, region: str, variants: dict[str, bool]) -> object:
    try:
        return resolver.construct_endpoint(service, region, **variants)
    except Exception as error:  # noqa: BLE001 - whatever it is, both raise it
        return type(error), str(error)


def test_an_endpoint_that_is_not_looked_at_is_not_parsed() -> None:
    (aws, *_) = data_loader(None).load_data("endpoints")["partitions"]
    services = aws["services"]
    assert "kinesis" in services
    assert len(services) > 100
    assert services._parsed == {}
    assert services["kinesis"] is services["kinesis"]
    assert list(services._parsed) == ["kinesis"]


def test_a_users_folder_of_models_comes_first(tmp_path: Path) -> None:
    model = {"metadata": {"serviceId": "Mine"}, "operations": {}, "shapes": {}}
    folder = tmp_path / "mine" / "2024-01-01"
    folder.mkdir(parents=True)
    (folder / "service-2.json").write_text(json.dumps(model))
    loader = data_loader(str(tmp_path))
    assert loader.load_service_model("mine", "service-2") == model
    assert loader.load_service_model("kinesis", "service-2")["metadata"]["serviceId"] == "Kinesis"
    (tmp_path / "endpoints.json").write_text('{"partitions": [], "version": 3}')
    assert loader.load_data("endpoints") == {"partitions": [], "version": 3}


def test_the_folders_of_a_users_models_may_name_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MODELS", "models")
    assert f"{tmp_path}/models" in data_loader("~/$MODELS:/other").search_paths
    assert data_loader("~/$MODELS:/other").search_paths[1] == "/other"


def test_unknown_services_and_files_are_botocores_errors() -> None:
    with pytest.raises(UnknownServiceError, match="no-such-service"):
        data_loader(None).load_service_model("no-such-service", "service-2")
    with pytest.raises(DataNotFoundError):
        data_loader(None).load_service_model("kinesis", "no-such-kind")
    with pytest.raises(DataNotFoundError):
        data_loader(None).load_data("no-such-file")


def test_sessions_use_the_loader_and_share_what_it_has_parsed() -> None:
    one, other = (new_session().get_component("data_loader") for _ in range(2))
    assert one is other
    assert one.load_data("endpoints") is other.load_data("endpoints")
    regions = botocore.session.Session().get_available_regions("kinesis")
    assert new_session().get_available_regions("kinesis") == regions


@pytest.mark.parametrize(
    ("region", "partition"),
    [("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("x", "aws")],
)
def test_the_partition_of_a_region(region: str, partition: str) -> None:
    assert partition_of(region) == partition
