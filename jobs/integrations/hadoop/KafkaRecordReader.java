import java.io.IOException;
import java.nio.charset.StandardCharsets;

import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Reads a split, and leaves the offset behind it beside the task's output: both are committed with
 * the task, or neither is.
 */
class KafkaRecordReader extends RecordReader<BytesWritable, BytesWritable> {
    private static final String COUNTERS = "Kafka";

    private PartitionSplit split;
    private TaskAttemptContext context;
    private FetchContext fetches;
    private ConsumerRecord<byte[], byte[]> current;
    private long reached;
    private boolean isWhole;

    @Override
    public void initialize(InputSplit given, TaskAttemptContext of) {
        split = (PartitionSplit) given;
        context = of;
        reached = split.from();
        fetches = new FetchContext(split, KafkaInputFormat.client(of.getConfiguration()));
    }

    @Override
    public boolean nextKeyValue() {
        current = fetches.next();
        isWhole = current == null;
        reached = isWhole ? split.until() : current.offset() + 1;
        return !isWhole;
    }

    /** The record's key; empty when it has none. */
    @Override
    public BytesWritable getCurrentKey() {
        return writable(current.key());
    }

    @Override
    public BytesWritable getCurrentValue() {
        return writable(current.value());
    }

    @Override
    public float getProgress() {
        return split.getLength() == 0 ? 1 : (reached - split.from()) / (float) split.getLength();
    }

    @Override
    public void close() throws IOException {
        if (fetches == null) {
            return;
        }
        fetches.close();
        context.getCounter(COUNTERS, "fetches").increment(fetches.requests());
        context.getCounter(COUNTERS, "fetch ms").increment(fetches.requestMs());
        fetches = null;
        if (isWhole) {
            writeOffset();
        }
    }

    private void writeOffset() throws IOException {
        Path output = FileOutputFormat.getOutputPath(context);
        if (output == null) {
            return;  // the job has no folder
        }
        Path work = new FileOutputCommitter(output, context).getWorkPath();
        Path file = new Path(work, KafkaInputFormat.offsetFile(split.partition()));
        try (FSDataOutputStream out = file.getFileSystem(context.getConfiguration()).create(file)) {
            out.write((reached + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }

    private static BytesWritable writable(byte[] bytes) {
        return new BytesWritable(bytes == null ? new byte[0] : bytes);
    }
}
