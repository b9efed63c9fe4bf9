import java.io.Closeable;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Fetches the records of a split, a request's worth at a time. */
class FetchContext implements Closeable {
    private static final Duration LONGEST_WAIT = Duration.ofSeconds(1);

    private final PartitionSplit split;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private Iterator<ConsumerRecord<byte[], byte[]>> messages = List.<ConsumerRecord<byte[], byte[]>>of().iterator();
    private long requestMs;
    private long requests;

    /** `client`: configs of the consumer; max.partition.fetch.bytes is the buffer's size. */
    FetchContext(PartitionSplit split, Properties client) {
        this.split = split;
        this.consumer = new KafkaConsumer<>(client, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(split.partition()));
        consumer.seek(split.partition(), split.from());
    }

    /** The next record of the split, fetched if need be; null at its end. */
    ConsumerRecord<byte[], byte[]> next() {
        while (true) {
            while (messages.hasNext()) {
                ConsumerRecord<byte[], byte[]> message = messages.next();
                if (message.offset() < split.until()) {
                    return message;
                }
            }
            if (!fetchMore()) {
                return null;
            }
        }
    }

    /** One fetch, which may bring nothing; false when there is no more data. */
    private boolean fetchMore() {
        // Not the last record's offset: transaction markers and compacted records end a split, too.
        if (consumer.position(split.partition()) >= split.until()) {
            return false;
        }
        long start = System.nanoTime();
        messages = consumer.poll(LONGEST_WAIT).records(split.partition()).iterator();
        requestMs += (System.nanoTime() - start) / 1_000_000;
        requests++;
        return true;
    }

    long requestMs() {
        return requestMs;
    }

    long requests() {
        return requests;
    }

    @Override
    public void close() {
        consumer.close();
    }
}
