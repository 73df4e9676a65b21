// The AWS SDK for Go 2: PutRecords by 100; entries that were refused are put again.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

func main() {
	loaded, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	client := kinesis.NewFromConfig(loaded, func(options *kinesis.Options) {
		options.BaseEndpoint = aws.String(os.Getenv("ENDPOINT"))
	})
	stream := os.Getenv("STREAM")
	entries := given()
	for first := 0; first < len(entries); first += 100 {
		rest := entries[first:min(first+100, len(entries))]
		for len(rest) > 0 {
			answer, err := client.PutRecords(context.Background(), &kinesis.PutRecordsInput{
				StreamName: &stream,
				Records:    rest,
			})
			if err != nil {
				log.Fatal(err)
			}
			var refused []types.PutRecordsRequestEntry
			for at, one := range answer.Records {
				if one.ErrorCode != nil {
					refused = append(refused, rest[at])
				}
			}
			rest = refused
		}
	}
}

func given() []types.PutRecordsRequestEntry {
	var entries []types.PutRecordsRequestEntry
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one struct{ Key, Data string }
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			log.Fatal(err)
		}
		entries = append(entries, types.PutRecordsRequestEntry{
			PartitionKey: aws.String(one.Key),
			Data:         []byte(one.Data),
		})
	}
	return entries
}
