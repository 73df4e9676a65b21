// Beam: KinesisIO.write with a key for each record, on the direct runner; aggregation is its default.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.io.aws2.common.ClientConfiguration;
import org.apache.beam.sdk.io.aws2.kinesis.KinesisIO;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.values.KV;
import software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider;
import software.amazon.awssdk.regions.Region;

public class Main {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<KV<String, String>> given = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode one = mapper.readTree(line);
            given.add(KV.of(one.get("key").asText(), one.get("data").asText()));
        }
        ClientConfiguration configuration = ClientConfiguration.builder()
                .credentialsProvider(DefaultCredentialsProvider.create())
                .region(Region.of(System.getenv("AWS_REGION")))
                .endpoint(URI.create(System.getenv("ENDPOINT")))
                .build();
        Pipeline pipeline = Pipeline.create();
        pipeline.apply(Create.of(given)).apply(KinesisIO.<KV<String, String>>write()
                .withStreamName(System.getenv("STREAM"))
                .withPartitioner(KV::getKey)
                .withSerializer(one -> one.getValue().getBytes(StandardCharsets.UTF_8))
                .withClientConfiguration(configuration));
        pipeline.run().waitUntilFinish();
    }
}
