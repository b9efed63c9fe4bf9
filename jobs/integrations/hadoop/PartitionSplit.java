import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;

import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.kafka.common.TopicPartition;

/** Records [from, until) of one partition. */
public class PartitionSplit extends InputSplit implements Writable {
    private String topic;
    private int partition;
    private long from;
    private long until;

    /** For Hadoop, which then calls readFields. */
    public PartitionSplit() {
    }

    PartitionSplit(TopicPartition partition, long from, long until) {
        this.topic = partition.topic();
        this.partition = partition.partition();
        this.from = from;
        this.until = until;
    }

    TopicPartition partition() {
        return new TopicPartition(topic, partition);
    }

    long from() {
        return from;
    }

    long until() {
        return until;
    }

    /** In records, where others have bytes: Hadoop only compares the splits of a job. */
    @Override
    public long getLength() {
        return until - from;
    }

    @Override
    public String[] getLocations() {
        return new String[0];
    }

    @Override
    public void write(DataOutput out) throws IOException {
        out.writeUTF(topic);
        out.writeInt(partition);
        out.writeLong(from);
        out.writeLong(until);
    }

    @Override
    public void readFields(DataInput in) throws IOException {
        topic = in.readUTF();
        partition = in.readInt();
        from = in.readLong();
        until = in.readLong();
    }

    @Override
    public String toString() {
        return topic + "-" + partition + " [" + from + ", " + until + ")";
    }
}
