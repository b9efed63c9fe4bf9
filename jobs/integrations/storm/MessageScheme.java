import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.List;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.storm.kafka.spout.RecordTranslator;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/** A record's value as the field msg; what is not UTF-8 gives no tuple, and its offset is passed. */
public class MessageScheme implements RecordTranslator<byte[], byte[]> {
    static final String MESSAGE = "msg";

    @Override
    public List<Object> apply(ConsumerRecord<byte[], byte[]> record) {
        if (record.value() == null) {
            return null;
        }
        try {
            ByteBuffer bytes = ByteBuffer.wrap(record.value());
            return new Values(StandardCharsets.UTF_8.newDecoder().decode(bytes).toString());
        } catch (CharacterCodingException error) {
            return null;
        }
    }

    @Override
    public Fields getFieldsFor(String stream) {
        return new Fields(MESSAGE);
    }
}
