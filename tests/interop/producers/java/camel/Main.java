// Camel: a route that sends each record as a message to aws2-kinesis, with the key in its header.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.component.aws2.kinesis.Kinesis2Constants;
import org.apache.camel.impl.DefaultCamelContext;

public class Main {
    public static void main(String[] arguments) throws Exception {
        String uri = "aws2-kinesis://" + System.getenv("STREAM")
                + "?useDefaultCredentialsProvider=true&overrideEndpoint=true"
                + "&region=" + System.getenv("AWS_REGION")
                + "&uriEndpointOverride=" + System.getenv("ENDPOINT");
        ObjectMapper mapper = new ObjectMapper();
        try (DefaultCamelContext context = new DefaultCamelContext()) {
            context.start();
            ProducerTemplate template = context.createProducerTemplate();
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode one = mapper.readTree(line);
                byte[] data = one.get("data").asText().getBytes(StandardCharsets.UTF_8);
                template.sendBodyAndHeader(uri, data, Kinesis2Constants.PARTITION_KEY, one.get("key").asText());
            }
        }
    }
}
