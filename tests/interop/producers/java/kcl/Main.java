// The Java KCL's de-aggregation, with the filter by hash range by which it drops aggregates.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.List;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

public class Main {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            JsonNode given = mapper.readTree(line);
            KinesisClientRecord record = KinesisClientRecord.builder()
                .sequenceNumber(given.get("SequenceNumber").asText())
                .partitionKey(given.get("PartitionKey").asText())
                .data(ByteBuffer.wrap(Base64.getDecoder().decode(given.get("Data").asText())))
                .build();
            BigInteger first = new BigInteger(given.get("First").asText());
            BigInteger last = new BigInteger(given.get("Last").asText());
            for (KinesisClientRecord one : new AggregatorUtil().deaggregate(List.of(record), first, last)) {
                byte[] data = new byte[one.data().remaining()];
                one.data().get(data);
                ObjectNode user = mapper.createObjectNode();
                user.put("key", one.partitionKey());
                user.put("hash_key", one.explicitHashKey());
                user.put("data", Base64.getEncoder().encodeToString(data));
                System.out.println(mapper.writeValueAsString(user));
            }
        }
    }
}
