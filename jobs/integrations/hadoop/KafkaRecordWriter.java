import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;

/**
 * Collects a task's output and sends it to a topic, a list at a time.
 *
 * The list goes out before a value that would bring it over queueBytes, or when it has LIST_MAX
 * messages: a value larger than queueBytes is sent alone. What was not acknowledged stays in the
 * list and fails the task; the attempt that follows sends all again.
 */
public class KafkaRecordWriter extends RecordWriter<Object, Object> {
    /** Messages of a list. */
    static final int LIST_MAX = 32_767;

    private final Producer<byte[], byte[]> producer;
    private final String topic;
    private final long queueBytes;
    private final List<ProducerRecord<byte[], byte[]>> pending = new ArrayList<>();
    private long totalBytes;
    private long flushes;

    KafkaRecordWriter(Producer<byte[], byte[]> producer, String topic, long queueBytes) {
        this.producer = producer;
        this.topic = topic;
        this.queueBytes = queueBytes;
    }

    @Override
    public void write(Object key, Object value) throws IOException {
        byte[] bytes = valueBytes(value);
        if (totalBytes + bytes.length > queueBytes || pending.size() >= LIST_MAX) {
            flush();
        }
        pending.add(new ProducerRecord<>(topic, keyBytes(key), bytes));
        totalBytes += bytes.length;
    }

    /** Send the list and wait until all of it is acknowledged. */
    void flush() throws IOException {
        if (pending.isEmpty()) {
            return;
        }
        try {
            List<Future<RecordMetadata>> sent = new ArrayList<>(pending.size());
            for (ProducerRecord<byte[], byte[]> message : pending) {
                sent.add(producer.send(message));
            }
            producer.flush();
            for (Future<RecordMetadata> result : sent) {
                result.get();
            }
        } catch (ExecutionException | KafkaException error) {
            throw new IOException(pending.size() + " messages to " + topic + " failed", error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while sending to " + topic, error);
        }
        pending.clear();
        totalBytes = 0;
        flushes++;
    }

    @Override
    public void close(TaskAttemptContext context) throws IOException {
        try {
            flush();
        } finally {
            producer.close();
        }
        context.getCounter("Kafka", "lists").increment(flushes);
    }

    private static byte[] valueBytes(Object value) {
        if (value instanceof byte[] bytes) {
            return bytes;
        }
        if (value instanceof BytesWritable bytes) {
            return bytes.copyBytes();  // its buffer may be longer
        }
        String kind = value == null ? "null" : value.getClass().getName();
        throw new IllegalArgumentException(
                "a value must be byte[] or BytesWritable, not " + kind);
    }

    private static byte[] keyBytes(Object key) {
        if (key == null || key instanceof NullWritable) {
            return null;
        }
        if (key instanceof byte[] bytes) {
            return bytes;
        }
        if (key instanceof BytesWritable bytes) {
            return bytes.copyBytes();
        }
        return key.toString().getBytes(StandardCharsets.UTF_8);
    }
}
