import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.DefaultTopicSelector;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.tuple.Fields;

/**
 * A running count of each word: consumeTopic -> split -> count -> JSON -> productTopic.
 *
 *     java WordCountKafka          # in this process: runs 100 s, then kills the topology
 *     storm jar ... WordCountKafka NAME    # submits it under that name, with one worker
 *
 * -Dbootstrap.servers= names the brokers, -Drun.seconds= another time; Ctrl-C ends it sooner.
 * The spout's offsets are those of the group wordCount, so that a new run goes on where the last
 * one ended. A tuple that fails is sent again: each word is counted at least once.
 */
public class WordCountKafka {
    static final String TOPOLOGY_NAME = "WordCountKafka";
    static final String KAFKA_SPOUT = "kafkaSpout";
    static final String SPLIT_SENTENCE_BOLT = "splitSentenceBolt";
    static final String WORD_COUNT_BOLT = "wordCountBolt";
    static final String REPORT_BOLT = "reportBolt";
    static final String KAFKA_BOLT = "kafkaBolt";
    static final String CONSUME_TOPIC = "consumeTopic";
    static final String PRODUCT_TOPIC = "productTopic";
    static final String GROUP = "wordCount";
    private static final int COMMIT_MS = 1_000;

    public static void main(String[] arguments) throws Exception {
        String servers = System.getProperty("bootstrap.servers", "127.0.0.1:9092");
        Config config = new Config();
        if (arguments.length > 0) {
            config.setNumWorkers(1);
            StormSubmitter.submitTopology(arguments[0], config, topology(servers));
            return;
        }
        runHere(config, topology(servers), Long.getLong("run.seconds", 100));
    }

    static StormTopology topology(String servers) {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout(KAFKA_SPOUT, spout(servers));
        builder.setBolt(SPLIT_SENTENCE_BOLT, new SplitSentenceBolt(), 2).shuffleGrouping(KAFKA_SPOUT);
        builder.setBolt(WORD_COUNT_BOLT, new WordCountBolt(), 2)
                .fieldsGrouping(SPLIT_SENTENCE_BOLT, new Fields(SplitSentenceBolt.WORD));
        builder.setBolt(REPORT_BOLT, new ReportBolt(), 2).shuffleGrouping(WORD_COUNT_BOLT);
        builder.setBolt(KAFKA_BOLT, sink(servers)).shuffleGrouping(REPORT_BOLT);
        return builder.createTopology();
    }

    private static KafkaSpout<byte[], byte[]> spout(String servers) {
        return new KafkaSpout<>(
                new KafkaSpoutConfig.Builder<byte[], byte[]>(servers, CONSUME_TOPIC)
                        .setProp(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class)
                        .setProp(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class)
                        .setProp(ConsumerConfig.GROUP_ID_CONFIG, GROUP)
                        .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
                        .setOffsetCommitPeriodMs(COMMIT_MS)
                        .setRecordTranslator(new MessageScheme())
                        .build());
    }

    private static KafkaBolt<String, String> sink(String servers) {
        Properties producer = new Properties();
        producer.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        producer.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        producer.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        return new KafkaBolt<String, String>()
                .withProducerProperties(producer)
                .withTopicSelector(new DefaultTopicSelector(PRODUCT_TOPIC))
                .withTupleToKafkaMapper(
                        new FieldNameBasedTupleToKafkaMapper<>("no key", ReportBolt.MESSAGE));
    }

    private static void runHere(Config config, StormTopology topology, long seconds) throws Exception {
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch hasEnded = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isAsked.countDown();
            try {
                hasEnded.await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        try (LocalCluster cluster = new LocalCluster()) {
            cluster.submitTopology(TOPOLOGY_NAME, config, topology);
            isAsked.await(seconds, TimeUnit.SECONDS);
            cluster.killTopologyWithOpts(TOPOLOGY_NAME, LocalCluster.KILL_NOW);
            System.out.println("killed topology " + TOPOLOGY_NAME);
        } finally {
            hasEnded.countDown();
        }
        System.exit(0);  // threads of the cluster may be left
    }
}
