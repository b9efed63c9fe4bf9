import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consume, transform, produce, exactly once, with Kafka's own Java clients.
 *
 *     java -cp 'kafka-clients.jar:...' jobs/exactly_once/JavaWorker.java \
 *         127.0.0.1:9092 INPUT OUTPUT GROUP worker-0
 *
 * Start as many workers as you like, each with a name of its own. A name is the member's
 * group.instance.id, so that a worker which is started again gets its partitions at once, and its
 * producer's transactional.id, so that it ends the transaction of the run before it. A record and
 * the offset behind it are in one transaction: both are committed, or neither.
 */
public class JavaWorker {
    /** The work. */
    private static String transformed(String value) {
        return value.toUpperCase();
    }

    /** After an abort: back to the group's offsets, as the consumer has read past them. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition at : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(at);
            if (offset == null) {
                consumer.seekToBeginning(List.of(at));
            } else {
                consumer.seek(at, offset);
            }
        }
    }

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        String source = arguments[1];
        String output = arguments[2];
        String group = arguments[3];
        String name = arguments[4];

        Map<String, Object> consumerSettings = new HashMap<>();
        consumerSettings.put("bootstrap.servers", bootstrap);
        consumerSettings.put("group.id", group);
        consumerSettings.put("group.instance.id", name);
        consumerSettings.put("session.timeout.ms", "6000");
        consumerSettings.put("enable.auto.commit", "false");
        consumerSettings.put("auto.offset.reset", "earliest");
        consumerSettings.put("isolation.level", "read_committed");
        consumerSettings.put("max.poll.records", "200");
        Map<String, Object> producerSettings = new HashMap<>();
        producerSettings.put("bootstrap.servers", bootstrap);
        producerSettings.put("transactional.id", group + "-" + name);

        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                 consumerSettings, new StringDeserializer(), new StringDeserializer());
             KafkaProducer<String, String> producer = new KafkaProducer<>(
                 producerSettings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>(
                            output, record.partition(), record.key(), transformed(record.value())));
                        offsets.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (ProducerFencedException | FencedInstanceIdException
                         | OutOfOrderSequenceException | AuthorizationException error) {
                    // Another worker has this name, or nothing helps. The transaction is undone.
                    throw error;
                } catch (KafkaException error) {
                    producer.abortTransaction();
                    rewind(consumer);
                }
            }
        }
    }
}
