import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.storm.shade.net.minidev.json.JSONObject;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** Writes {"word":"...","count":"..."}, both as strings, into the field message. */
public class ReportBolt extends BaseBasicBolt {
    static final String MESSAGE = "message";

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
        Map<String, String> fields = new LinkedHashMap<>();
        fields.put("word", tuple.getStringByField(SplitSentenceBolt.WORD));
        fields.put("count", String.valueOf(tuple.getLongByField(WordCountBolt.COUNT)));
        collector.emit(new Values(JSONObject.toJSONString(fields)));
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields(MESSAGE));
    }
}
