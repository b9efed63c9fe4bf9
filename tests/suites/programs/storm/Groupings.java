import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * Each record of a topic goes to bolts of TASKS tasks by each of the seven groupings.
 *
 *     java Groupings TOPIC RECORDS    # prints "grouping task value count", a line each
 *
 * Ends when every bolt has seen what it should.
 */
public class Groupings {
    static final int TASKS = 3;
    static final String VALUE = "value";
    static final String DIRECT_STREAM = "direct";
    static final Map<String, AtomicLong> SEEN = new ConcurrentHashMap<>();

    /** Counts by (grouping, task, value). */
    public static class Counter extends BaseRichBolt {
        private final String grouping;
        private transient OutputCollector collector;
        private transient int task;

        Counter(String grouping) {
            this.grouping = grouping;
        }

        @Override
        public void prepare(Map<String, Object> config, TopologyContext context, OutputCollector to) {
            collector = to;
            task = context.getThisTaskIndex();
            // A task that sees nothing is told of, too.
            SEEN.putIfAbsent(grouping + " " + task + " -", new AtomicLong());
        }

        @Override
        public void execute(Tuple tuple) {
            String key = grouping + " " + task + " " + tuple.getStringByField(VALUE);
            SEEN.computeIfAbsent(key, unused -> new AtomicLong()).incrementAndGet();
            collector.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            // the end of the line
        }
    }

    /** Hands each record on, and names the task of `direct`: that of the value's number. */
    public static class Sender extends BaseRichBolt {
        private transient OutputCollector collector;
        private transient List<Integer> tasks;

        @Override
        public void prepare(Map<String, Object> config, TopologyContext context, OutputCollector to) {
            collector = to;
            tasks = context.getComponentTasks("direct");
        }

        @Override
        public void execute(Tuple tuple) {
            String value = tuple.getStringByField(VALUE);
            collector.emit(tuple, new Values(value));
            int number = Integer.parseInt(value.substring(1));
            collector.emitDirect(tasks.get(number % TASKS), DIRECT_STREAM, tuple, new Values(value));
            collector.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields(VALUE));
            declarer.declareStream(DIRECT_STREAM, true, new Fields(VALUE));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = System.getProperty("bootstrap.servers");
        long records = Long.parseLong(arguments[1]);
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("spout", spout(servers, arguments[0]));
        builder.setBolt("sender", new Sender()).shuffleGrouping("spout");
        builder.setBolt("shuffle", new Counter("shuffle"), TASKS).shuffleGrouping("sender");
        builder.setBolt("fields", new Counter("fields"), TASKS)
                .fieldsGrouping("sender", new Fields(VALUE));
        builder.setBolt("all", new Counter("all"), TASKS).allGrouping("sender");
        builder.setBolt("global", new Counter("global"), TASKS).globalGrouping("sender");
        builder.setBolt("none", new Counter("none"), TASKS).noneGrouping("sender");
        builder.setBolt("direct", new Counter("direct"), TASKS)
                .directGrouping("sender", DIRECT_STREAM);
        builder.setBolt("local-or-shuffle", new Counter("local-or-shuffle"), TASKS)
                .localOrShuffleGrouping("sender");
        long wanted = records * (6 + TASKS);
        try (LocalCluster cluster = new LocalCluster()) {
            cluster.submitTopology("groupings", new Config(), builder.createTopology());
            while (SEEN.values().stream().mapToLong(AtomicLong::get).sum() < wanted) {
                Thread.sleep(100);
            }
            new TreeMap<>(SEEN).forEach((key, count) -> System.out.println("seen " + key + " " + count));
            cluster.killTopologyWithOpts("groupings", LocalCluster.KILL_NOW);
        }
        System.exit(0);
    }

    private static KafkaSpout<String, String> spout(String servers, String topic) {
        return new KafkaSpout<>(
                KafkaSpoutConfig.builder(servers, topic)
                        .setProp(ConsumerConfig.GROUP_ID_CONFIG, "groupings")
                        .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.EARLIEST)
                        .setRecordTranslator(record -> new Values(record.value()), new Fields(VALUE))
                        .build());
    }
}
