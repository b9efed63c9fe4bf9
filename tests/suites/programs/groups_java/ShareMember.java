import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group with Kafka's own Java client: BOOTSTRAP GROUP MODE TOPICS.
 * What it must do and print is written in tests/suites/group_members.py.
 */
public class ShareMember {
    private static volatile boolean isClosing;

    private static synchronized void tell(String text) {
        System.out.println(System.currentTimeMillis() + " " + text);
        System.out.flush();
    }

    private static AcknowledgeType verdict(ConsumerRecord<String, String> record) {
        short deliveries = record.deliveryCount().orElse((short) 0);
        switch (record.value().split("-")[0]) {
            case "release": return deliveries == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
            case "poison": return AcknowledgeType.RELEASE;
            case "reject": return AcknowledgeType.REJECT;
            case "renew": return AcknowledgeType.RENEW;
            default: return AcknowledgeType.ACCEPT;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", arguments[2]);
        settings.put("max.poll.records", "10");
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
        Map<Long, Long> renewedFrom = new HashMap<>();
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.setAcknowledgementCommitCallback((offsets, error) ->
                offsets.forEach((at, numbers) -> numbers.forEach(number ->
                    tell((error == null ? "acked " : "refused ") + at.topic() + " " + at.partition() + " " + number
                        + (error == null ? "" : " " + error.getClass().getSimpleName())))));
            consumer.subscribe(List.of(arguments[3].split(",")));
            tell("started");
            while (!isClosing) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> record : records) {
                    tell("record " + record.topic() + " " + record.partition() + " " + record.offset() + " "
                        + record.value() + " " + record.deliveryCount().orElse((short) 0));
                    if (!arguments[2].equals("explicit")) {
                        continue;
                    }
                    AcknowledgeType verdict = verdict(record);
                    if (record.value().startsWith("hold") && record.deliveryCount().orElse((short) 0) == 1) {
                        Thread.sleep(8_000);
                    }
                    if (verdict == AcknowledgeType.RENEW) {
                        long now = System.currentTimeMillis();
                        if (now - renewedFrom.computeIfAbsent(record.offset(), o -> now) > 8_000) {
                            verdict = AcknowledgeType.ACCEPT;
                        }
                    }
                    consumer.acknowledge(record, verdict);
                }
                consumer.commitSync().forEach((at, error) -> error.ifPresent(e -> tell("error " + at + " " + e)));
            }
        }
        tell("closed");
        System.exit(0);
    }
}
