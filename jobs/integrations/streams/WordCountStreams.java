import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A running count of each word of streams-plaintext-input, into streams-wordcount-output: the word
 * is the key, the count (as text) the value.
 *
 *     java WordCountStreams streams.properties
 *
 * The file has Kafka Streams' own configs, at least bootstrap.servers. With
 * processing.guarantee=exactly_once_v2 the count in the state store, the record in the output and
 * the offset behind the input are committed in one transaction.
 */
public class WordCountStreams {
    static final String INPUT = "streams-plaintext-input";
    static final String OUTPUT = "streams-wordcount-output";
    static final String STORE = "counts";
    private static final Duration CLOSE = Duration.ofSeconds(20);

    static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(INPUT, Consumed.with(Serdes.ByteArray(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
                // Another key: the words go through a repartition topic.
                .groupBy((unused, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(STORE))
                .toStream()
                .mapValues(count -> String.valueOf(count))
                .to(OUTPUT, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    public static void main(String[] arguments) throws Exception {
        Properties configs = new Properties();
        configs.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        // Every update goes out, not the last one of a commit interval.
        configs.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            configs.load(file);
        }
        KafkaStreams streams = new KafkaStreams(topology(), configs);
        CountDownLatch ends = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            System.out.println("closed " + streams.close(CLOSE));
            ends.countDown();
        }));
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == KafkaStreams.State.ERROR) {
                ends.countDown();
            }
        });
        streams.start();
        ends.await();
        if (streams.state() == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
        }
    }
}
