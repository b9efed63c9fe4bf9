import java.io.IOException;

import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.Reducer;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.TextInputFormat;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * Lines of text files become records of a topic: what is before the first tab is the key.
 *
 *     hadoop jar ... FilesToTopic -D kafka.output.bootstrap.servers=HOST:PORT INPUT TOPIC
 */
public class FilesToTopic extends Configured implements Tool {
    /** A line's key and value; a line without a tab has no key. */
    public static class LineMapper extends Mapper<LongWritable, Text, Text, BytesWritable> {
        @Override
        protected void map(LongWritable position, Text line, Context context)
                throws IOException, InterruptedException {
            int tab = line.find("\t");
            Text key = new Text();
            if (tab >= 0) {
                key.set(line.getBytes(), 0, tab);
            }
            int from = tab + 1;
            BytesWritable value = new BytesWritable();
            value.set(line.getBytes(), from, line.getLength() - from);
            context.write(key, value);
        }
    }

    /** Hands each line to the output format; the empty key of the sort is none in the topic. */
    public static class SendingReducer extends Reducer<Text, BytesWritable, Object, Object> {
        @Override
        protected void reduce(Text key, Iterable<BytesWritable> values, Context context)
                throws IOException, InterruptedException {
            for (BytesWritable value : values) {
                context.write(key.getLength() == 0 ? null : key, value);
            }
        }
    }

    @Override
    public int run(String[] arguments) throws Exception {
        if (arguments.length != 2) {
            System.err.println("usage: FilesToTopic [-D name=value] INPUT TOPIC");
            return 2;
        }
        Job job = Job.getInstance(getConf(), "files to " + arguments[1]);
        job.getConfiguration().set(KafkaOutputFormat.TOPIC, arguments[1]);
        job.setJarByClass(FilesToTopic.class);
        job.setInputFormatClass(TextInputFormat.class);
        FileInputFormat.addInputPath(job, new Path(arguments[0]));
        job.setMapperClass(LineMapper.class);
        job.setReducerClass(SendingReducer.class);
        job.setMapOutputKeyClass(Text.class);
        job.setMapOutputValueClass(BytesWritable.class);
        job.setOutputFormatClass(KafkaOutputFormat.class);
        job.setReduceSpeculativeExecution(false);  // a second attempt sends the records twice
        return job.waitForCompletion(true) ? 0 : 1;
    }

    public static void main(String[] arguments) throws Exception {
        System.exit(ToolRunner.run(new FilesToTopic(), arguments));
    }
}
