package interop;

import static interop.JavaWorker.Journal.place;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.ShardRecordProcessorFactory;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * Writes down what it is given, as tests/interop/kcl/worker.py does.
 *
 * <p>A record's data is {@code KEY NUMBER STOP}. At a record with this worker's own STOP, the
 * processor checkpoints just there and takes no more of the shard; {@code prepare} instead of a name
 * prepares a checkpoint there, with a state. Otherwise it checkpoints every {@link #EVERY} ms.
 */
final class JavaProcessor implements ShardRecordProcessor {
    private static final long EVERY = 2000;

    private final JavaWorker.Journal journal;
    private final StreamIdentifier stream;
    private final String stop;
    private String shard;
    private boolean isStopped;
    private long checkpointAt;
    private KinesisClientRecord last;

    record Factory(JavaWorker.Journal journal, String stop) implements ShardRecordProcessorFactory {
        @Override
        public ShardRecordProcessor shardRecordProcessor() {
            throw new UnsupportedOperationException("this application reads several streams");
        }

        @Override
        public ShardRecordProcessor shardRecordProcessor(StreamIdentifier stream) {
            return new JavaProcessor(journal, stream, stop);
        }
    }

    private JavaProcessor(JavaWorker.Journal journal, StreamIdentifier stream, String stop) {
        this.journal = journal;
        this.stream = stream;
        this.stop = stop;
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = stream.serialize() + ":" + input.shardId();
        var from = input.extendedSequenceNumber();
        journal.write(shard, "\"from\": " + place(from.sequenceNumber(), from.subSequenceNumber()));
    }

    @Override
    public void processRecords(ProcessRecordsInput input) {
        List<String> records = new ArrayList<>();
        List<String> places = new ArrayList<>();
        KinesisClientRecord stopAt = null;
        for (KinesisClientRecord record : input.records()) {
            if (isStopped) {
                break;
            }
            String[] parts = StandardCharsets.UTF_8.decode(record.data()).toString().split(" ");
            records.add("[\"" + parts[0] + "\", " + parts[1] + "]");
            places.add(place(record.sequenceNumber(), record.subSequenceNumber()));
            last = record;
            if (parts[2].equals(stop) || parts[2].equals("prepare")) {
                isStopped = true;
                stopAt = parts[2].equals("prepare") ? null : record;
                if (stopAt == null) {
                    prepare(input.checkpointer(), record);
                }
            }
        }
        if (!records.isEmpty()) {
            journal.write(
                    shard,
                    "\"records\": " + JavaWorker.Journal.join(records) + ", \"places\": "
                            + JavaWorker.Journal.join(places));
        }
        if (stopAt != null || (!isStopped && last != null && System.currentTimeMillis() >= checkpointAt)) {
            checkpoint(input.checkpointer(), last);
        }
    }

    @Override
    public void leaseLost(LeaseLostInput input) {
        journal.write(shard, "\"lost\": true");
    }

    @Override
    public void shardEnded(ShardEndedInput input) {
        if (isDone(() -> input.checkpointer().checkpoint())) {
            journal.write(shard, "\"checkpoint\": " + place("SHARD_END", 0));
        }
    }

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {
        journal.write(shard, "\"asked\": true");
        if (!isStopped && last != null) {
            checkpoint(input.checkpointer(), last);
        }
    }

    private void checkpoint(RecordProcessorCheckpointer checkpointer, KinesisClientRecord at) {
        checkpointAt = System.currentTimeMillis() + EVERY;
        if (isDone(() -> checkpointer.checkpoint(at.sequenceNumber(), at.subSequenceNumber()))) {
            journal.write(shard, "\"checkpoint\": " + place(at.sequenceNumber(), at.subSequenceNumber()));
        }
    }

    private static void prepare(RecordProcessorCheckpointer checkpointer, KinesisClientRecord at) {
        byte[] state = "half done".getBytes(StandardCharsets.UTF_8);
        isDone(() -> checkpointer.prepareCheckpoint(at.sequenceNumber(), at.subSequenceNumber(), state));
    }

    private interface Call {
        void run() throws Exception;
    }

    /** Returns false if another worker has the lease. */
    private static boolean isDone(Call call) {
        try {
            call.run();
            return true;
        } catch (ShutdownException lost) {
            return false;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
