// a8m/kinesis-producer: aggregates in the KPL's format; all settings are its own.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	"github.com/a8m/kinesis-producer"
	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/session"
	"github.com/aws/aws-sdk-go/service/kinesis"
)

func main() {
	made := session.Must(session.NewSession(aws.NewConfig().WithEndpoint(os.Getenv("ENDPOINT"))))
	pr := producer.New(&producer.Config{
		StreamName: os.Getenv("STREAM"),
		Client:     kinesis.New(made),
	})
	pr.Start()
	go func() {
		for failed := range pr.NotifyFailures() {
			log.Println(failed)
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one struct{ Key, Data string }
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			log.Fatal(err)
		}
		if err := pr.Put([]byte(one.Data), one.Key); err != nil {
			log.Fatal(err)
		}
	}
	pr.Stop()
}
