import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A member of a consumer group with Kafka's own Java client:
 * BOOTSTRAP GROUP PROTOCOL TOPICS [NAME=VALUE ...].
 * What it must do and print is written in tests/suites/group_members.py.
 */
public class GroupMember implements ConsumerRebalanceListener {
    private final Map<String, String> options = new HashMap<>();
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;

    private GroupMember(String[] arguments) {
        for (int at = 4; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            options.put(pair[0], pair[1]);
        }
        boolean isConsumer = arguments[2].equals("consumer");
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("group.protocol", arguments[2]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "20");
        settings.put("metadata.max.age.ms", "2000");
        if (options.containsKey("instance")) {
            settings.put("group.instance.id", options.get("instance"));
        }
        if (!isConsumer) {
            settings.put("session.timeout.ms", "10000");
            settings.put("heartbeat.interval.ms", "500");
        } else if (options.containsKey("assignor")) {
            settings.put("group.remote.assignor", options.get("assignor"));
        }
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        if (options.containsKey("out")) {
            Map<String, Object> writing = new HashMap<>();
            writing.put("bootstrap.servers", arguments[0]);
            writing.put("transactional.id", options.get("id"));
            producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
            producer.initTransactions();
        }
        if (!arguments[3].startsWith("^")) {
            consumer.subscribe(List.of(arguments[3].split(",")), this);
        } else if (isConsumer) {
            consumer.subscribe(new SubscriptionPattern(arguments[3]), this);
        } else {
            consumer.subscribe(Pattern.compile(arguments[3]), this);
        }
    }

    private static synchronized void tell(String text) {
        System.out.println(System.currentTimeMillis() + " " + text);
        System.out.flush();
    }

    private static String names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(p -> p.topic() + ":" + p.partition()).sorted().collect(Collectors.joining(" "));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned " + names(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        tell("revoked " + names(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        tell("lost " + names(partitions));
    }

    private void run() {
        while (!isClosing) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (records.isEmpty()) {
                continue;
            }
            if (producer != null) {
                copy(records);
                continue;
            }
            for (ConsumerRecord<String, String> record : records) {
                tell("record " + record.topic() + " " + record.partition() + " " + record.offset() + " " + record.value());
            }
            try {
                consumer.commitSync();
            } catch (CommitFailedException | RebalanceInProgressException error) {
                tell("refused " + error.getClass().getSimpleName());
            }
        }
        consumer.close();
    }

    private void copy(ConsumerRecords<String, String> records) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> after = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(options.get("out"), record.value()));
                after.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(after, consumer.groupMetadata());
            producer.commitTransaction();
        } catch (ProducerFencedException error) {
            throw error;
        } catch (KafkaException error) {
            tell("refused " + error.getClass().getSimpleName());
            producer.abortTransaction();
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            committed.forEach((partition, offset) -> {
                if (offset == null) {
                    consumer.seekToBeginning(List.of(partition));
                } else {
                    consumer.seek(partition, offset.offset());
                }
            });
        }
    }

    private static volatile boolean isClosing;

    public static void main(String[] arguments) throws Exception {
        GroupMember member = new GroupMember(arguments);
        Thread reader = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException error) {
                tell("error " + error);
            }
            isClosing = true;
        });
        reader.setDaemon(true);
        reader.start();
        tell("started");
        member.run();
        tell("closed");
        System.exit(0);
    }
}
