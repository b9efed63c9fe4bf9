import java.io.IOException;
import java.util.Map;
import java.util.Properties;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.OutputFormat;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.NullOutputFormat;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A job's output as records of a topic, at least once.
 *
 * kafka.output.topic names the topic, kafka.output.queue.bytes bounds a list of messages; any other
 * kafka.output.X is the producer's X: kafka.output.bootstrap.servers, kafka.output.acks, ...
 */
public class KafkaOutputFormat extends OutputFormat<Object, Object> {
    static final String PREFIX = "kafka.output.";
    static final String TOPIC = PREFIX + "topic";
    static final String QUEUE_BYTES = PREFIX + "queue.bytes";
    static final long QUEUE_BYTES_DEFAULT = 10 << 20;
    static final String SERVERS = PREFIX + "bootstrap.servers";

    @Override
    public RecordWriter<Object, Object> getRecordWriter(TaskAttemptContext context) {
        Configuration configuration = context.getConfiguration();
        return new KafkaRecordWriter(
                new KafkaProducer<>(
                        clientProperties(configuration, PREFIX),
                        new ByteArraySerializer(),
                        new ByteArraySerializer()),
                configuration.get(TOPIC),
                configuration.getLong(QUEUE_BYTES, QUEUE_BYTES_DEFAULT));
    }

    @Override
    public void checkOutputSpecs(JobContext context) throws IOException {
        require(context.getConfiguration(), TOPIC);
        require(context.getConfiguration(), SERVERS);
    }

    @Override
    public OutputCommitter getOutputCommitter(TaskAttemptContext context) {
        return new NullOutputFormat<>().getOutputCommitter(context);
    }

    /** The rows that begin with a prefix, without it: configs of a client. */
    static Properties clientProperties(Configuration configuration, String prefix) {
        Properties found = new Properties();
        for (Map.Entry<String, String> row : configuration.getPropsWithPrefix(prefix).entrySet()) {
            found.put(row.getKey(), row.getValue());
        }
        found.remove("topic");
        found.remove("queue.bytes");
        found.remove("offsets.dir");
        return found;
    }

    static void require(Configuration configuration, String name) throws IOException {
        if (configuration.get(name) == null) {
            throw new IOException("set " + name);
        }
    }
}
