import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;

/** Reads records as a broker that loads its groups does: a line each, key and value in base64; says what it has read. */
public class ReadRecords {
    public static void main(String[] arguments) throws Exception {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            ByteBuffer key = ByteBuffer.wrap(Base64.getDecoder().decode(parts[0]));
            ByteBuffer value = ByteBuffer.wrap(Base64.getDecoder().decode(parts[1]));
            CoordinatorRecord read = serde.deserialize(key, value);
            ApiMessage message = read.value().message();
            System.out.println(
                CoordinatorRecordJsonConverters.writeRecordKeyAsJson(read.key())
                    + "\t" + CoordinatorRecordJsonConverters.writeRecordValueAsJson(message, read.value().version())
                    + "\t" + message.unknownTaggedFields().stream().map(field -> field.tag()).toList());
        }
    }
}
