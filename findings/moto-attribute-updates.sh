#!/usr/bin/env bash
# moto stores bytes and booleans of an AttributeUpdates update as texts of Python.
#
# moto 5.2.5, seen on 2026-11-29: UpdateItem with AttributeUpdates (the older form, which a Java KCL 3.5 uses for its
# leases) stores the byte 01 as the string b'\x01' and false as the string 'False'. UpdateExpression stores both
# rightly.
# Hurt: whoever tests a Java KCL on moto. A state that was prepared for a checkpoint is no longer bytes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'moto[dynamodb]==5.2.5' boto3==1.44.8
"$work/venv/bin/python" - <<'PY'
import boto3
from moto import mock_aws

with mock_aws():
    dynamodb = boto3.client(
        "dynamodb", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    dynamodb.create_table(
        TableName="t",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.update_item(
        TableName="t",
        Key={"key": {"S": "older"}},
        AttributeUpdates={
            "state": {"Value": {"B": b"\x01"}, "Action": "PUT"},
            "flag": {"Value": {"BOOL": False}, "Action": "PUT"},
        },
    )
    dynamodb.update_item(
        TableName="t",
        Key={"key": {"S": "newer"}},
        UpdateExpression="SET #s = :s, flag = :f",
        ExpressionAttributeNames={"#s": "state"},
        ExpressionAttributeValues={":s": {"B": b"\x01"}, ":f": {"BOOL": False}},
    )
    older, newer = (
        dynamodb.get_item(TableName="t", Key={"key": {"S": key}})["Item"]
        for key in ("older", "newer")
    )
    print("by AttributeUpdates:", older["state"], older["flag"])
    print("by UpdateExpression:", newer["state"], newer["flag"])
    assert (older["state"], older["flag"]) == ({"S": r"b'\x01'"}, {"S": "False"})
    assert (newer["state"], newer["flag"]) == ({"B": b"\x01"}, {"BOOL": False})
PY
