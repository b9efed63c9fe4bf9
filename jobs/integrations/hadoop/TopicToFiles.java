import java.io.IOException;

import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.output.TextOutputFormat;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * A topic's new records become lines of text files, one file per partition.
 *
 *     hadoop jar ... TopicToFiles -D kafka.input.bootstrap.servers=HOST:PORT TOPIC OUTPUT [LAST]
 *
 * LAST is the OUTPUT of the run before, where the offsets are that it reached.
 */
public class TopicToFiles extends Configured implements Tool {
    /** A record's key, a tab, its value; a record without a key is its value. */
    public static class RecordMapper extends Mapper<BytesWritable, BytesWritable, Text, Text> {
        @Override
        protected void map(BytesWritable key, BytesWritable value, Context context)
                throws IOException, InterruptedException {
            context.write(key.getLength() == 0 ? null : text(key), text(value));
        }

        private static Text text(BytesWritable bytes) {
            Text text = new Text();
            text.set(bytes.getBytes(), 0, bytes.getLength());
            return text;
        }
    }

    @Override
    public int run(String[] arguments) throws Exception {
        if (arguments.length < 2 || arguments.length > 3) {
            System.err.println("usage: TopicToFiles [-D name=value] TOPIC OUTPUT [LAST]");
            return 2;
        }
        Job job = Job.getInstance(getConf(), arguments[0] + " to files");
        job.getConfiguration().set(KafkaInputFormat.TOPIC, arguments[0]);
        if (arguments.length == 3) {
            job.getConfiguration().set(KafkaInputFormat.OFFSETS, arguments[2]);
        }
        job.setJarByClass(TopicToFiles.class);
        job.setInputFormatClass(KafkaInputFormat.class);
        job.setMapperClass(RecordMapper.class);
        job.setNumReduceTasks(0);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(Text.class);
        job.setOutputFormatClass(TextOutputFormat.class);
        FileOutputFormat.setOutputPath(job, new Path(arguments[1]));
        return job.waitForCompletion(true) ? 0 : 1;
    }

    public static void main(String[] arguments) throws Exception {
        System.exit(ToolRunner.run(new TopicToFiles(), arguments));
    }
}
