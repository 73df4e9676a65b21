// Benthos: lines from its standard input to aws_kinesis, in batches of 100; the rest is its defaults.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	_ "github.com/benthosdev/benthos/v4/public/components/aws"
	_ "github.com/benthosdev/benthos/v4/public/components/io"
	_ "github.com/benthosdev/benthos/v4/public/components/pure"
	"github.com/benthosdev/benthos/v4/public/service"
)

const settings = `
input:
  stdin: {}
pipeline:
  processors:
    - mapping: |
        meta key = this.key
        root = this.data
output:
  aws_kinesis:
    stream: %s
    partition_key: ${! meta("key") }
    batching:
      count: 100
      period: 1s
    endpoint: %s
    region: %s
`

func main() {
	builder := service.NewStreamBuilder()
	made := fmt.Sprintf(settings, os.Getenv("STREAM"), os.Getenv("ENDPOINT"), os.Getenv("AWS_REGION"))
	if err := builder.SetYAML(made); err != nil {
		log.Fatal(err)
	}
	stream, err := builder.Build()
	if err != nil {
		log.Fatal(err)
	}
	if err := stream.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
