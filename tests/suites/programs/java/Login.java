import java.io.FileReader;
import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A login with Kafka's own Java clients, one record written and read: PROPERTIES TOPIC VALUE GROUP.
 */
public class Login {
    private static final long LIMIT_S = 20;

    private static void write(Properties settings, String topic, String value) throws Exception {
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            producer.send(new ProducerRecord<>(topic, value)).get(LIMIT_S, TimeUnit.SECONDS);
        }
    }

    private static void read(Properties settings, String topic, String value) {
        StringDeserializer text = new StringDeserializer();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.subscribe(Collections.singletonList(topic));
            while (System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.value().equals(value)) {
                        System.out.println(value);
                        return;
                    }
                }
            }
        }
        throw new IllegalStateException("the record did not come");
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        settings.put("max.block.ms", "20000");
        write(settings, arguments[1], arguments[2]);
        settings.put("group.id", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        read(settings, arguments[1], arguments[2]);
        System.exit(0);
    }
}
