// Telegraf: an agent that reads line protocol and writes it to Kinesis, by the tag of each metric.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/influxdata/telegraf/agent"
	"github.com/influxdata/telegraf/config"
	_ "github.com/influxdata/telegraf/plugins/inputs/file"
	_ "github.com/influxdata/telegraf/plugins/outputs/kinesis"
	_ "github.com/influxdata/telegraf/plugins/parsers/influx"
	_ "github.com/influxdata/telegraf/plugins/serializers/influx"
)

const settings = `
[agent]
  metric_batch_size = 100
  omit_hostname = true
[[inputs.file]]
  files = [%q]
  data_format = "influx"
[[outputs.kinesis]]
  region = %q
  endpoint_url = %q
  streamname = %q
  data_format = "influx"
  [outputs.kinesis.partition]
    method = "tag"
    key = "key"
`

func main() {
	lines, err := os.CreateTemp("", "telegraf")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(lines.Name())
	given := bufio.NewScanner(os.Stdin)
	given.Buffer(nil, 1<<20)
	for at := 1; given.Scan(); at++ {
		var one struct{ Key, Data string }
		if err := json.Unmarshal(given.Bytes(), &one); err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(lines, "flights,key=%s data=%s %d\n", one.Key, strconv.Quote(one.Data), at)
	}
	loaded := config.NewConfig()
	made := fmt.Sprintf(settings, lines.Name(), os.Getenv("AWS_REGION"), os.Getenv("ENDPOINT"), os.Getenv("STREAM"))
	if err := loaded.LoadConfigData([]byte(made), "telegraf.conf"); err != nil {
		log.Fatal(err)
	}
	if err := agent.NewAgent(loaded).Once(context.Background(), 0); err != nil {
		log.Fatal(err)
	}
}
