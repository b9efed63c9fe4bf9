import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;

import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

/**
 * A record there and back through Apicurio's serializer and deserializer, which register the schema
 * and find it by the id in the bytes: URL. It prints one JSON line.
 */
public class ApicurioSerdes {
    private static final String SCHEMA = "{\"type\":\"record\",\"name\":\"Flight\",\"namespace\":\"java\","
        + "\"fields\":[{\"name\":\"carrier\",\"type\":\"string\"},{\"name\":\"delay\",\"type\":\"int\"}]}";

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.url", arguments[0] + "/apis/registry/v3");
        settings.put("apicurio.registry.auto-register", "true");
        GenericRecord row = new GenericData.Record(new Schema.Parser().parse(SCHEMA));
        row.put("carrier", "UA");
        row.put("delay", 11);
        AvroKafkaSerializer<GenericRecord> serializer = new AvroKafkaSerializer<>();
        serializer.configure(settings, false);
        byte[] blob = serializer.serialize("java", row);
        AvroKafkaDeserializer<GenericRecord> deserializer = new AvroKafkaDeserializer<>();
        deserializer.configure(settings, false);
        GenericRecord read = deserializer.deserialize("java", blob);
        int id = ByteBuffer.wrap(blob, 1, 4).getInt();
        System.out.printf("{\"carrier\": \"%s\", \"delay\": %s, \"id\": %d}%n", read.get("carrier"), read.get("delay"), id);
        System.exit(0);
    }
}
