module producers/kinesis-producer

go 1.24

require (
	github.com/a8m/kinesis-producer v0.2.0
	github.com/aws/aws-sdk-go v1.55.8
)

require (
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/jmespath/go-jmespath v0.4.0 // indirect
	github.com/jpillora/backoff v1.1.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)
