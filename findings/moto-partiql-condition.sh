#!/usr/bin/env bash
# moto reports success for a PartiQL update whose condition fails.
#
# moto 5.2.5, seen on 2026-11-29: an UPDATE whose WHERE clause names the key and a value that the item does not have
# changes nothing, and is answered like a success, by BatchExecuteStatement and by ExecuteStatement. DynamoDB
# answers ConditionalCheckFailed (in `Error` of the batch's response, or as an exception).
# Hurt: whoever tests optimistic locking by PartiQL with moto. Two owners both see their write succeed.
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
        TableName="leases",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.put_item(
        TableName="leases", Item={"leaseKey": {"S": "shard"}, "leaseCounter": {"N": "7"}}
    )
    update = {
        "Statement": 'UPDATE "leases" SET leaseCounter=? WHERE leaseKey=? AND leaseCounter=?',
        "Parameters": [{"N": "4"}, {"S": "shard"}, {"N": "3"}],
    }
    (batched,) = dynamodb.batch_execute_statement(Statements=[update])["Responses"]
    single = dynamodb.execute_statement(**update)["ResponseMetadata"]["HTTPStatusCode"]
    counter = dynamodb.get_item(TableName="leases", Key={"leaseKey": {"S": "shard"}})["Item"]
    print("BatchExecuteStatement:", batched)
    print("ExecuteStatement: HTTP", single)
    print("the counter is still", counter["leaseCounter"]["N"])
    assert "Error" not in batched and single == 200
    assert counter["leaseCounter"] == {"N": "7"}
PY
