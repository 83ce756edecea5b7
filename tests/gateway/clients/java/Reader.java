import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A group member that reads records and commits them, as tests/gateway/reader.py: it tells of each as JSON lines, until
 * killed. Arguments are pairs of a setting and its value, and "topic".
 */
public final class Reader {
  public static void main(String[] arguments) {
    Properties settings = new Properties();
    for (int i = 0; i + 1 < arguments.length; i += 2) settings.put(arguments[i], arguments[i + 1]);
    String topic = (String) settings.remove("topic");
    settings.put("enable.auto.commit", "false");
    settings.put("auto.offset.reset", "earliest");
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.subscribe(Collections.singletonList(topic));
      while (true) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
        if (!records.isEmpty()) take(consumer, records);
      }
    }
  }

  private static void take(KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records) {
    List<String> read = new ArrayList<>();
    Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
    for (ConsumerRecord<byte[], byte[]> record : records) {
      read.add("[" + record.partition() + ", " + record.offset() + "]");
      next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
    }
    System.out.println("{\"event\": \"read\", \"records\": [" + String.join(", ", read) + "]}");
    try {
      consumer.commitSync(next);
    } catch (KafkaException refused) {
      System.out.println("{\"event\": \"refused\", \"error\": \"" + refused.getClass().getName() + "\"}");
      return;
    }
    List<String> committed = new ArrayList<>();
    next.forEach((place, offset) -> committed.add("[" + place.partition() + ", " + offset.offset() + "]"));
    System.out.println("{\"event\": \"committed\", \"offsets\": [" + String.join(", ", committed) + "]}");
  }
}
