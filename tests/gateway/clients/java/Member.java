import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A group member made of kafka-clients, of 2.8 as of 4.3. Arguments are pairs of a setting and its value, and "topics".
 * Orders are lines of words (commit TOPIC PARTITION OFFSET, find TOPIC PARTITION, close); events are JSON lines.
 */
public final class Member {
  private static final TreeSet<String> OWNED = new TreeSet<>();

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    for (int i = 0; i + 1 < arguments.length; i += 2) settings.put(arguments[i], arguments[i + 1]);
    String[] topics = ((String) settings.remove("topics")).split(",");
    settings.put("enable.auto.commit", "false");
    settings.put("auto.offset.reset", "earliest");
    ConcurrentLinkedQueue<String> orders = new ConcurrentLinkedQueue<>();
    Thread reader = new Thread(() -> {
      new BufferedReader(new InputStreamReader(System.in)).lines().forEach(orders::add);
      orders.add("close");
    });
    reader.setDaemon(true);
    reader.start();
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.subscribe(Arrays.asList(topics), new Reporter());
      String order = "";
      while (!"close".equals(order)) {
        poll(consumer);
        order = orders.poll();
        if (order != null && !"close".equals(order)) obey(consumer, order.split(" "));
      }
      System.err.println("root: closing");
    }
    say("{\"event\": \"closed\"}");
  }

  /**
   * Polls. Where a KIP-848 member was fenced while it asked for committed offsets, Kafka's own client tells so by an
   * exception of poll, and joins again with the next one, as an application that goes on has it.
   */
  private static void poll(KafkaConsumer<byte[], byte[]> consumer) {
    try {
      consumer.poll(Duration.ofMillis(100));
    } catch (UnknownMemberIdException fenced) {
      System.err.println("root: poll told of " + fenced);
    }
  }

  private static void obey(KafkaConsumer<byte[], byte[]> consumer, String[] words) {
    TopicPartition place = new TopicPartition(words[1], Integer.parseInt(words[2]));
    String shown = "\"place\": [\"" + words[1] + "\", " + words[2] + "]";
    if ("commit".equals(words[0])) {
      try {
        consumer.commitSync(Collections.singletonMap(place, new OffsetAndMetadata(Long.parseLong(words[3]))));
        say("{\"event\": \"committed\", " + shown + ", \"offset\": " + words[3] + "}");
      } catch (KafkaException refused) {
        say("{\"event\": \"refused\", \"error\": \"" + refused.getClass().getName() + "\"}");
      }
    } else {
      Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(Collections.singleton(place));
      long offset = found.get(place) == null ? -1 : found.get(place).offset();
      say("{\"event\": \"found\", " + shown + ", \"offset\": " + offset + "}");
    }
  }

  private static synchronized void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  private static final class Reporter implements ConsumerRebalanceListener {
    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
      places.forEach(place -> OWNED.add("[\"" + place.topic() + "\", " + place.partition() + "]"));
      report();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
      places.forEach(place -> OWNED.remove("[\"" + place.topic() + "\", " + place.partition() + "]"));
      if (!places.isEmpty()) report();
    }

    private void report() {
      say("{\"event\": \"assigned\", \"partitions\": [" + OWNED.stream().collect(Collectors.joining(", ")) + "]}");
    }
  }
}
