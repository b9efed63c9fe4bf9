import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;

import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.conf.Configuration;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What KafkaRecordWriter sends, and when, with Kafka's own mock of a producer: a line per case. */
public class WriterBoundaries {
    private static final TaskAttemptContext TASK =
            new TaskAttemptContextImpl(new Configuration(), new TaskAttemptID());

    /** Remembers how many messages each flush had. */
    private static class Lists extends MockProducer<byte[], byte[]> {
        private final List<Integer> sizes = new ArrayList<>();
        private int flushed;
        private boolean fails;

        Lists() {
            super(true, null, new ByteArraySerializer(), new ByteArraySerializer());
        }

        @Override
        public Future<RecordMetadata> send(ProducerRecord<byte[], byte[]> message) {
            Future<RecordMetadata> sent = super.send(message);
            return fails ? CompletableFuture.failedFuture(new TimeoutException("no broker")) : sent;
        }

        @Override
        public void flush() {
            super.flush();
            sizes.add(history().size() - flushed);
            flushed = history().size();
        }
    }

    private static void sizes(String name, long queueBytes, int... values) throws IOException {
        Lists producer = new Lists();
        KafkaRecordWriter writer = new KafkaRecordWriter(producer, "topic", queueBytes);
        for (int size : values) {
            writer.write(null, new byte[size]);
        }
        List<Integer> before = List.copyOf(producer.sizes);
        writer.close(TASK);
        System.out.println(name + " " + before + " " + producer.sizes + " " + producer.closed());
    }

    private static void refused(String name, Object value) throws IOException {
        try {
            new KafkaRecordWriter(new Lists(), "topic", 1).write(null, value);
            System.out.println(name + " taken");
        } catch (IllegalArgumentException error) {
            System.out.println(name + " " + error.getMessage());
        }
    }

    public static void main(String[] arguments) throws Exception {
        sizes("nothing", 100);
        sizes("below", 100, 40, 40);
        sizes("exact", 100, 40, 60);
        sizes("beyond", 100, 40, 60, 1);
        sizes("large", 100, 10, 150, 10);
        sizes("first-large", 100, 150);
        sizes("count", 1 << 20, new int[KafkaRecordWriter.LIST_MAX]);
        sizes("count-beyond", 1 << 20, new int[KafkaRecordWriter.LIST_MAX + 1]);
        refused("text", new Text("x"));
        refused("null", null);

        Lists producer = new Lists();
        KafkaRecordWriter writer = new KafkaRecordWriter(producer, "topic", 100);
        BytesWritable padded = new BytesWritable(new byte[50], 3);
        writer.write(new Text("k"), padded);
        producer.fails = true;
        for (int attempt = 0; attempt < 2; attempt++) {
            try {
                writer.flush();
            } catch (IOException error) {
                System.out.println("failed " + error.getMessage() + ": " + error.getCause().getCause());
            }
        }
        producer.fails = false;
        writer.close(TASK);
        ProducerRecord<byte[], byte[]> last = producer.history().get(2);
        System.out.println("kept " + new String(last.key()) + " " + last.value().length);
    }
}
