import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.mapreduce.InputFormat;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A topic as a job's input: one split per partition, from the offset where the last run ended to the
 * end of the partition when this job starts.
 *
 * kafka.input.topic names the topic, kafka.input.offsets.dir the output folder of the last run
 * (without it, or for a partition that is not in it: from the beginning); any other kafka.input.X is
 * the consumer's X. Only committed records are read.
 */
public class KafkaInputFormat extends InputFormat<BytesWritable, BytesWritable> {
    static final String PREFIX = "kafka.input.";
    static final String TOPIC = PREFIX + "topic";
    static final String OFFSETS = PREFIX + "offsets.dir";
    static final String SERVERS = PREFIX + "bootstrap.servers";

    @Override
    public List<InputSplit> getSplits(JobContext context) throws IOException {
        Configuration configuration = context.getConfiguration();
        KafkaOutputFormat.require(configuration, TOPIC);
        KafkaOutputFormat.require(configuration, SERVERS);
        List<TopicPartition> partitions = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                client(configuration), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            String topic = configuration.get(TOPIC);
            consumer.partitionsFor(topic)
                    .forEach(row -> partitions.add(new TopicPartition(topic, row.partition())));
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<InputSplit> splits = new ArrayList<>();
            for (TopicPartition partition : partitions) {
                long start = starts.get(partition);
                long from = offsetOfLastRun(configuration, partition, start);
                if (from < start || from > ends.get(partition)) {
                    throw new IOException("the last run ended at offset " + from + " of " + partition
                            + ", which has " + start + " to " + ends.get(partition)
                            + ": records are lost, or the topic is another one");
                }
                splits.add(new PartitionSplit(partition, from, ends.get(partition)));
            }
            return splits;
        }
    }

    @Override
    public RecordReader<BytesWritable, BytesWritable> createRecordReader(
            InputSplit split, TaskAttemptContext context) {
        return new KafkaRecordReader();
    }

    static Properties client(Configuration configuration) {
        Properties found = KafkaOutputFormat.clientProperties(configuration, PREFIX);
        found.putIfAbsent(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        found.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        found.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        return found;
    }

    /** The file of an output folder that holds the offset behind a partition's last record. */
    static String offsetFile(TopicPartition partition) {
        return "_offset-" + partition;
    }

    private static long offsetOfLastRun(
            Configuration configuration, TopicPartition partition, long start) throws IOException {
        String folder = configuration.get(OFFSETS);
        if (folder == null) {
            return start;
        }
        Path file = new Path(folder, offsetFile(partition));
        FileSystem files = file.getFileSystem(configuration);
        if (!files.exists(file)) {
            return start;
        }
        try (BufferedReader reader = new BufferedReader(
                new InputStreamReader(files.open(file), StandardCharsets.UTF_8))) {
            return Long.parseLong(reader.readLine().trim());
        }
    }
}
