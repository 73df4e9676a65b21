package interop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.client.builder.AwsClientBuilder;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.StreamConfig;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.coordinator.CoordinatorConfig.ClientVersionConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy.AutoDetectionAndDeferredDeletionStrategy;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy.NoLeaseDeletionStrategy;
import software.amazon.kinesis.processor.MultiStreamTracker;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * One worker of a Java KCL: {@code NAME ENDPOINT APPLICATION FOLDER FAILOVER_MILLIS MODE FORMER STOP}.
 *
 * <p>MODE is a {@link ClientVersionConfig} without its prefix. FORMER: {@code keep} or
 * {@code delete} the leases of former streams. For STOP see {@link JavaProcessor}. The streams are
 * the lines of {@code FOLDER/streams}: account, name and creation epoch.
 */
public final class JavaWorker implements MultiStreamTracker {
    private static final InitialPositionInStreamExtended OLDEST =
            InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);

    private final Path streams;
    private final boolean deletesFormer;

    private JavaWorker(Path streams, boolean deletesFormer) {
        this.streams = streams;
        this.deletesFormer = deletesFormer;
    }

    public static void main(String[] args) {
        String name = args[0];
        URI endpoint = URI.create(args[1]);
        String application = args[2];
        Path folder = Path.of(args[3]);
        long failoverMillis = Long.parseLong(args[4]);
        JavaWorker tracker = new JavaWorker(folder.resolve("streams"), args[6].equals("delete"));
        Journal journal = new Journal(name, folder);

        KinesisAsyncClient kinesis = at(endpoint, KinesisAsyncClient.builder()).build();
        DynamoDbAsyncClient dynamo = at(endpoint, DynamoDbAsyncClient.builder()).build();
        CloudWatchAsyncClient unused = at(endpoint, CloudWatchAsyncClient.builder()).build();
        ConfigsBuilder configs = new ConfigsBuilder(
                tracker, application, kinesis, dynamo, unused, name, new JavaProcessor.Factory(journal, args[7]));

        var coordination = configs.coordinatorConfig()
                .clientVersionConfig(ClientVersionConfig.valueOf("CLIENT_VERSION_CONFIG_" + args[5]))
                .parentShardPollIntervalMillis(1000)
                .shardConsumerDispatchPollIntervalMillis(200);
        // As quick as a test wants it: a leader that was killed is replaced after a failover time.
        var leases = configs.leaseManagementConfig()
                .failoverTimeMillis(failoverMillis)
                .leaseAssignmentIntervalMillis(2000L)
                // A worker that makes the first leases sleeps so long for each stream.
                .shardSyncIntervalMillis(200)
                .dynamoDbLockBasedLeaderLeaseDurationInMillis(failoverMillis)
                .dynamoDbLockBasedLeaderHeartbeatPeriodInMillis(failoverMillis / 4);
        // Or it would ask EC2's metadata service, which is not there, for its CPU.
        leases.workerUtilizationAwareAssignmentConfig().disableWorkerMetrics(true);
        var retrieval = configs.retrievalConfig();
        retrieval.retrievalSpecificConfig(new PollingConfig(kinesis).idleTimeBetweenReadsInMillis(250));
        Scheduler scheduler = new Scheduler(
                configs.checkpointConfig(),
                coordination,
                leases,
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                retrieval);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> endGracefully(scheduler)));
        scheduler.run();
    }

    /** SIGTERM comes here; the exit status is 0 if the shutdown was graceful. */
    private static void endGracefully(Scheduler scheduler) {
        boolean isGraceful = false;
        try {
            isGraceful = scheduler.startGracefulShutdown().get(40, TimeUnit.SECONDS);
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(isGraceful ? 0 : 3);
    }

    private static <B extends AwsClientBuilder<B, ?>> B at(URI endpoint, B builder) {
        return builder.endpointOverride(endpoint)
                .region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("test", "test")));
    }

    @Override
    public List<StreamConfig> streamConfigList() {
        try {
            return Files.readAllLines(streams).stream()
                    .map(StreamIdentifier::multiStreamInstance)
                    .map(stream -> new StreamConfig(stream, OLDEST))
                    .toList();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public InitialPositionInStreamExtended orphanedStreamInitialPositionInStream() {
        return OLDEST;
    }

    @Override
    public FormerStreamsLeasesDeletionStrategy formerStreamsLeasesDeletionStrategy() {
        if (!deletesFormer) {
            return new NoLeaseDeletionStrategy();
        }
        return new AutoDetectionAndDeferredDeletionStrategy() {
            @Override
            public Duration waitPeriodToDeleteFormerStreams() {
                return Duration.ZERO;
            }
        };
    }

    /** Appends lines that survive a kill, each with its time. */
    static final class Journal {
        private final String reader;
        private final Path file;

        Journal(String reader, Path folder) {
            this.reader = reader;
            this.file = folder.resolve(reader + ".jsonl");
        }

        /** Writes one line; {@code more} is the rest of a JSON object. */
        synchronized void write(String shard, String more) {
            // CLOCK_MONOTONIC, as Python's time.monotonic: one for all processes of a machine.
            double at = System.nanoTime() / 1e9;
            String line = String.format(
                    Locale.ROOT, "{\"at\": %.6f, \"reader\": \"%s\", \"shard\": \"%s\", %s}\n", at, reader, shard, more);
            try {
                Files.write(
                        file,
                        line.getBytes(StandardCharsets.UTF_8),
                        StandardOpenOption.CREATE,
                        StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        /** Writes a place in a shard: an array of sequence number and sub-sequence number. */
        static String place(String sequenceNumber, long subSequenceNumber) {
            return String.format(Locale.ROOT, "[\"%s\", %d]", sequenceNumber, subSequenceNumber);
        }

        static String join(List<String> values) {
            return "[" + String.join(", ", new ArrayList<>(values)) + "]";
        }
    }
}
