#!/usr/bin/env bash
# a8m/kinesis-producer gives all user records of an aggregate the partition key of the first one.
#
# github.com/a8m/kinesis-producer v0.2.0, seen on 2026-11-29: three records are put with the keys "ann", "bob" and "cat".
# They are sent as one aggregate whose table of keys has "ann" alone.
# Hurt: consumers that group by partition key, and the order of "bob" and "cat": from one aggregate to the next one,
# their records go to other shards.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"log"

	producer "github.com/a8m/kinesis-producer"
	"github.com/aws/aws-sdk-go/service/kinesis"
	"github.com/golang/protobuf/proto"
)

var found = map[string][]string{}

// service stands in place of the network.
type service struct{}

func (service) PutRecords(input *kinesis.PutRecordsInput) (*kinesis.PutRecordsOutput, error) {
	for _, entry := range input.Records {
		packed := new(producer.AggregatedRecord)
		if err := proto.Unmarshal(entry.Data[4:len(entry.Data)-16], packed); err != nil {
			log.Fatal(err)
		}
		for _, record := range packed.Records {
			key := packed.PartitionKeyTable[record.GetPartitionKeyIndex()]
			found[key] = append(found[key], string(record.Data))
		}
	}
	none := int64(0)
	return &kinesis.PutRecordsOutput{FailedRecordCount: &none}, nil
}

func main() {
	quiet := &producer.StdLogger{Logger: log.New(io.Discard, "", 0)}
	sender := producer.New(&producer.Config{StreamName: "s", Client: service{}, Logger: quiet})
	sender.Start()
	for _, key := range []string{"ann", "bob", "cat"} {
		if err := sender.Put([]byte("data of "+key), key); err != nil {
			log.Fatal(err)
		}
	}
	sender.Stop()
	fmt.Printf("sent, by key: %q\n", found)
	if len(found) != 1 || len(found["ann"]) != 3 {
		log.Fatal("this has changed")
	}
}
GO
export GOPATH="$work/go" GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/a8m/kinesis-producer@v0.2.0 github.com/aws/aws-sdk-go@v1.55.8 github.com/golang/protobuf@v1.5.4 2>/dev/null
go run .
