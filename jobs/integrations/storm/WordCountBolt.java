import java.util.HashMap;
import java.util.Map;

import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** Counts in memory; each word that comes in goes out with its count so far. */
public class WordCountBolt extends BaseBasicBolt {
    static final String COUNT = "count";
    private transient Map<String, Long> counts;

    @Override
    public void prepare(Map<String, Object> config, TopologyContext context) {
        counts = new HashMap<>();
    }

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
        String word = tuple.getStringByField(SplitSentenceBolt.WORD);
        collector.emit(new Values(word, counts.merge(word, 1L, Long::sum)));
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields(SplitSentenceBolt.WORD, COUNT));
    }
}
