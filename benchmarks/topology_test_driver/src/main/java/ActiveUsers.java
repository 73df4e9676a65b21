import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Users are active from a heartbeat until two minutes of silence. */
final class ActiveUsers implements Processor<String, String, Void, Void> {
    static final Duration SILENCE = Duration.ofMinutes(2);

    private ProcessorContext<Void, Void> context;
    private KeyValueStore<String, Long> heartbeats;

    static Topology topology() {
        var store = Stores.persistentKeyValueStore("last-heartbeats");
        return new Topology()
            .addSource("source", Serdes.String().deserializer(), Serdes.String().deserializer(), "heartbeats")
            .addProcessor("active-users", ActiveUsers::new, "source")
            .addStateStore(Stores.keyValueStoreBuilder(store, Serdes.String(), Serdes.Long()), "active-users");
    }

    @Override
    public void init(ProcessorContext<Void, Void> context) {
        this.context = context;
        heartbeats = context.getStateStore("last-heartbeats");
        context.schedule(Duration.ofSeconds(1), PunctuationType.WALL_CLOCK_TIME, this::evict);
    }

    @Override
    public void process(Record<String, String> heartbeat) {
        heartbeats.put(heartbeat.key(), context.currentSystemTimeMs());
    }

    private void evict(long now) {
        try (var users = heartbeats.all()) {
            while (users.hasNext()) {
                var user = users.next();
                if (now - user.value > SILENCE.toMillis()) {
                    heartbeats.delete(user.key);
                }
            }
        }
    }
}
