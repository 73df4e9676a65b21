import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.state.KeyValueStore;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ActiveUsersTest {
    @RepeatedTest(10) // The first run loads the classes.
    void aSilentUserIsEvicted(@TempDir Path directory) {
        try (var driver = driver(directory)) {
            var heartbeats = heartbeats(driver);
            heartbeats.pipeInput("ann", "");
            heartbeats.pipeInput("bob", "");
            driver.advanceWallClockTime(Duration.ofSeconds(60));
            heartbeats.pipeInput("ann", "");
            driver.advanceWallClockTime(Duration.ofSeconds(61));
            assertNotNull(users(driver).get("ann"));
            assertNull(users(driver).get("bob"));
        }
    }

    @Test
    void aNewDriverBeginsEmpty(@TempDir Path directory) {
        try (var driver = driver(directory)) {
            heartbeats(driver).pipeInput("ann", "");
        }
        try (var driver = driver(directory)) {
            assertNull(users(driver).get("ann"));
        }
    }

    private static TopologyTestDriver driver(Path directory) {
        var properties = new Properties();
        properties.put("application.id", "active-users");
        properties.put("state.dir", directory.toString());
        return new TopologyTestDriver(ActiveUsers.topology(), properties);
    }

    private static TestInputTopic<String, String> heartbeats(TopologyTestDriver driver) {
        return driver.createInputTopic("heartbeats", new StringSerializer(), new StringSerializer());
    }

    private static KeyValueStore<String, Long> users(TopologyTestDriver driver) {
        return driver.getKeyValueStore("last-heartbeats");
    }
}
