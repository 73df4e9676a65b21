// The KPL: user records with their keys, as fast as they come; all settings that matter are its own.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import software.amazon.kinesis.producer.KinesisProducer;
import software.amazon.kinesis.producer.KinesisProducerConfiguration;

public class Main {
    public static void main(String[] arguments) throws Exception {
        URI endpoint = URI.create(System.getenv("ENDPOINT"));
        KinesisProducerConfiguration configuration = new KinesisProducerConfiguration()
                .setRegion(System.getenv("AWS_REGION"))
                .setKinesisEndpoint(endpoint.getHost())
                .setKinesisPort(endpoint.getPort())
                .setStsEndpoint(endpoint.getHost())
                .setStsPort(endpoint.getPort())
                .setVerifyCertificate(false)
                .setMetricsLevel("none");
        KinesisProducer producer = new KinesisProducer(configuration);
        String stream = System.getenv("STREAM");
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode one = mapper.readTree(line);
            byte[] data = one.get("data").asText().getBytes(StandardCharsets.UTF_8);
            producer.addUserRecord(stream, one.get("key").asText(), ByteBuffer.wrap(data));
        }
        producer.flushSync();
        producer.destroy();
    }
}
