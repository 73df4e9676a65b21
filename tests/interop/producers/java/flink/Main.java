// Flink: KinesisStreamsSink in a job of one task, in batches of 100.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.kinesis.sink.KinesisStreamsSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Main {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<String> given = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode one = mapper.readTree(line);
            given.add(one.get("data").asText());
        }
        Properties properties = new Properties();
        properties.put("aws.region", System.getenv("AWS_REGION"));
        properties.put("aws.endpoint", System.getenv("ENDPOINT"));
        properties.put("aws.http.protocol.version", "HTTP1_1");
        KinesisStreamsSink<String> sink = KinesisStreamsSink.<String>builder()
                .setKinesisClientProperties(properties)
                .setSerializationSchema(new SimpleStringSchema())
                .setPartitionKeyGenerator(one -> one.split("~")[1])
                .setStreamName(System.getenv("STREAM"))
                .setMaxBatchSize(100)
                .build();
        StreamExecutionEnvironment job = StreamExecutionEnvironment.getExecutionEnvironment();
        job.getConfig().disableClosureCleaner();
        job.setParallelism(1);
        job.fromCollection(given).sinkTo(sink);
        job.execute();
    }
}
