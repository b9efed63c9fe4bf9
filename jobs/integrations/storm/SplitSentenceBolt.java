import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** Splits at each single space: two in a row have an empty word between them. */
public class SplitSentenceBolt extends BaseBasicBolt {
    static final String WORD = "word";

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
        for (String word : tuple.getStringByField(MessageScheme.MESSAGE).split(" ", -1)) {
            collector.emit(new Values(word));
        }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields(WORD));
    }
}
