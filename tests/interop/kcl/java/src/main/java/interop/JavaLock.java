package interop;

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import com.amazonaws.services.dynamodbv2.ReleaseLockOptions;
import com.amazonaws.services.dynamodbv2.model.LockCurrentlyUnavailableException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.dynamodb.model.AttributeValue;
import software.amazon.kinesis.coordinator.DynamoDbAsyncToSyncClientAdapter;

/**
 * The leader's lock, by the lock client and as the KCL's {@code DynamoDBLockBasedLeaderDecider} calls
 * it: {@code NAME ENDPOINT TABLE DURATION_MILLIS}.
 *
 * <p>Answers each line of its input by one line: {@code lead}: yes or no; {@code release}: done, the
 * row is deleted; {@code leave}: done, the row stays as a released one.
 */
public final class JavaLock {
    private static final String KEY = "Leader";

    private final String name;
    private final long millis;
    private final AmazonDynamoDBLockClient client;

    private JavaLock(String name, URI endpoint, String table, long millis) {
        this.name = name;
        this.millis = millis;
        DynamoDbAsyncClient dynamo = DynamoDbAsyncClient.builder()
                .endpointOverride(endpoint)
                .region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("x", "x")))
                .build();
        client = new AmazonDynamoDBLockClient(
                AmazonDynamoDBLockClientOptions.builder(new DynamoDbAsyncToSyncClientAdapter(dynamo), table)
                        .withPartitionKeyName("leaseKey")
                        .withTimeUnit(TimeUnit.MILLISECONDS)
                        .withLeaseDuration(millis)
                        .withHeartbeatPeriod(millis / 4)
                        .withCreateHeartbeatBackgroundThread(true)
                        .withOwnerName(name)
                        .build());
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        JavaLock lock = new JavaLock(args[0], URI.create(args[1]), args[2], Long.parseLong(args[3]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(lock.answer(line));
            System.out.flush();
        }
        System.exit(0);
    }

    private String answer(String line) throws InterruptedException {
        switch (line) {
            case "lead":
                return leads() ? "yes" : "no";
            case "release":
                held().close();
                return "done";
            case "leave":
                client.releaseLock(ReleaseLockOptions.builder(held()).withDeleteLock(false).build());
                return "done";
            default:
                throw new IllegalArgumentException(line);
        }
    }

    private boolean leads() throws InterruptedException {
        Optional<LockItem> known = client.getLock(KEY, Optional.empty());
        if (known.isPresent() && !known.get().isExpired()) {
            return known.get().getOwnerName().equals(name);
        }
        AcquireLockOptions options = AcquireLockOptions.builder(KEY)
                .withRefreshPeriod(millis / 4)
                .withTimeUnit(TimeUnit.MILLISECONDS)
                .withShouldSkipBlockingWait(true)
                .withAdditionalAttributes(
                        Map.of("entityType", AttributeValue.builder().s("LEADER").build()))
                .build();
        try {
            return client.tryAcquireLock(options).isPresent();
        } catch (LockCurrentlyUnavailableException held) {
            return false; // as the KCL takes it
        }
    }

    private LockItem held() {
        return client.getLock(KEY, Optional.empty()).orElseThrow();
    }
}
