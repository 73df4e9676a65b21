#!/usr/bin/env bash
# Telegraf's Kinesis output reports success for metrics that were refused, and for a call that failed: they are lost.
#
# github.com/influxdata/telegraf v1.36.4, seen on 2026-11-29: of three metrics, one is refused by PutRecords; then each call
# of another three fails. Write returns no error in both cases, so that the agent drops all of them from its buffer, and none is
# put again.
# Hurt: whoever relies on metric_buffer_limit, which keeps metrics of other outputs until they are written: a throttled shard
# or a minute without the service loses metrics, with a line in the log.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
cat > main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/metric"
	"github.com/influxdata/telegraf/plugins/outputs"
	"github.com/influxdata/telegraf/plugins/outputs/kinesis"
	"github.com/influxdata/telegraf/plugins/serializers/influx"
	"github.com/influxdata/telegraf/testutil"
)

var puts []int
var failing bool

func answer(writer http.ResponseWriter, request *http.Request) {
	writer.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if !strings.HasSuffix(request.Header.Get("X-Amz-Target"), ".PutRecords") {
		fmt.Fprint(writer, "{}")
		return
	}
	var call struct{ Records []struct{ Data []byte } }
	if err := json.NewDecoder(request.Body).Decode(&call); err != nil {
		log.Fatal(err)
	}
	puts = append(puts, len(call.Records))
	if failing {
		writer.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(writer, `{"__type": "InternalFailure"}`)
		return
	}
	put := `{"SequenceNumber": "1", "ShardId": "shardId-000000000000"}`
	refused := `{"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}`
	fmt.Fprintf(writer, `{"FailedRecordCount": 1, "Records": [%s, %s, %s]}`, put, refused, put)
}

func main() {
	server := httptest.NewServer(http.HandlerFunc(answer))
	output := outputs.Outputs["kinesis"]().(*kinesis.KinesisOutput)
	output.StreamName, output.Region, output.EndpointURL = "s", "us-east-1", server.URL
	output.AccessKey, output.SecretKey = "a", "b"
	output.Partition = &kinesis.Partition{Method: "measurement"}
	output.Log = testutil.Logger{Quiet: true}
	line := &influx.Serializer{}
	if err := line.Init(); err != nil {
		log.Fatal(err)
	}
	output.SetSerializer(line)
	if err := output.Connect(); err != nil {
		log.Fatal(err)
	}
	var metrics []telegraf.Metric
	for number := range 3 {
		metrics = append(metrics, metric.New("m", nil, map[string]any{"number": number}, time.Unix(0, 0)))
	}
	one := output.Write(metrics)
	failing = true
	all := output.Write(metrics)
	fmt.Println("records of each call:", puts, "- one was refused in the first, and the others failed")
	fmt.Println("errors of Write:", one, all)
	if one != nil || all != nil || fmt.Sprint(puts) != "[3 3 3 3]" {
		log.Fatal("this has changed")
	}
}
GO
export GOPATH="$work/go" GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/influxdata/telegraf@v1.36.4 2>/dev/null
go run .
