import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The features of transactions with Kafka's own Java clients: FEATURE BOOTSTRAP NAME.
 * What each feature must do is written in tests/suites/client_features.py, which judges the result.
 */
public class TransactionFeatures {
    private static final int RECORDS = 4;
    private static final long QUIET_MS = 5_000;

    private final String bootstrap;
    private final String name;

    private TransactionFeatures(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
    }

    private KafkaProducer<String, String> producer() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", name + "-id");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", name + "-group");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private void send(KafkaProducer<String, String> producer, String... values) throws Exception {
        for (String value : values) {
            producer.send(new ProducerRecord<>(name + "-out", 0, null, value)).get(30, TimeUnit.SECONDS);
        }
    }

    private void commit() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                send(producer, "committed-" + number);
                producer.commitTransaction();
            }
        }
    }

    private void abort() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            producer.beginTransaction();
            send(producer, "aborted-0", "aborted-1");
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, "committed-0");
            producer.commitTransaction();
        }
    }

    private void fence() throws Exception {
        KafkaProducer<String, String> old = producer();
        old.beginTransaction();
        send(old, "aborted-0");
        try (KafkaProducer<String, String> current = producer()) {
            try {
                old.commitTransaction();
                throw new IllegalStateException("the older producer could commit");
            } catch (KafkaException error) {
                System.out.println("refused: " + error.getClass().getSimpleName());
            }
            current.beginTransaction();
            send(current, "committed-0");
            current.commitTransaction();
        } finally {
            old.close(Duration.ZERO);
        }
    }

    private void offsets() throws Exception {
        TopicPartition input = new TopicPartition(name + "-in", 0);
        try (KafkaProducer<String, String> producer = producer();
             KafkaConsumer<String, String> consumer = consumer()) {
            consumer.subscribe(List.of(input.topic()));
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            while (records.size() < RECORDS) {
                consumer.poll(Duration.ofMillis(500)).forEach(records::add);
            }
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                send(producer, "copied-" + record.value());
            }
            producer.sendOffsetsToTransaction(
                Map.of(input, new OffsetAndMetadata(RECORDS)), consumer.groupMetadata());
            producer.commitTransaction();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(
                Map.of(input, new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.abortTransaction();
        }
    }

    private void read() {
        TopicPartition output = new TopicPartition(name + "-out", 0);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(output));
            consumer.seekToBeginning(List.of(output));
            long last = System.currentTimeMillis();
            while (System.currentTimeMillis() - last < QUIET_MS) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.value());
                    last = System.currentTimeMillis();
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        TransactionFeatures features = new TransactionFeatures(arguments[1], arguments[2]);
        switch (arguments[0]) {
            case "commit": features.commit(); break;
            case "abort": features.abort(); break;
            case "fence": features.fence(); break;
            case "offsets": features.offsets(); break;
            case "read": features.read(); break;
            default: throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }
}
