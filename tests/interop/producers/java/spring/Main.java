// Spring Cloud Stream's Kinesis binder: messages by a StreamBridge, with a key and two partitions.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.micrometer.observation.ObservationRegistry;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.support.MessageBuilder;

@EnableAutoConfiguration
public class Main {
    @Bean
    ObservationRegistry observations() {
        return ObservationRegistry.NOOP;
    }

    public static void main(String[] arguments) throws Exception {
        SpringApplication application = new SpringApplication(Main.class);
        application.setDefaultProperties(Map.of(
                "spring.cloud.aws.region.static", System.getenv("AWS_REGION"),
                "spring.cloud.aws.endpoint", System.getenv("ENDPOINT"),
                "spring.cloud.stream.output-bindings", "flights",
                "spring.cloud.stream.bindings.flights.destination", System.getenv("STREAM"),
                "spring.cloud.stream.bindings.flights.producer.partition-key-expression", "headers.key",
                "spring.cloud.stream.bindings.flights.producer.partition-count", "2"));
        ObjectMapper mapper = new ObjectMapper();
        try (ConfigurableApplicationContext context = application.run()) {
            StreamBridge bridge = context.getBean(StreamBridge.class);
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode one = mapper.readTree(line);
                byte[] data = one.get("data").asText().getBytes(StandardCharsets.UTF_8);
                bridge.send("flights", MessageBuilder.withPayload(data).setHeader("key", one.get("key").asText()).build());
            }
        }
    }
}
