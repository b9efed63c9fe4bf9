// @confluentinc/schemaregistry against a registry: Avro, JSON Schema and Protobuf serializers there
// and back. It prints one JSON line: schema type -> the deserialized value.

const {
  AvroDeserializer,
  AvroSerializer,
  JsonDeserializer,
  JsonSerializer,
  ProtobufDeserializer,
  ProtobufSerializer,
  SchemaRegistryClient,
  SerdeType,
} = require("@confluentinc/schemaregistry");
const { createRegistry } = require("@bufbuild/protobuf");
const { TimestampSchema } = require("@bufbuild/protobuf/wkt");

const ROW = { carrier: "UA", delay: 11 };
const AVRO = {
  type: "record",
  name: "Flight",
  namespace: "confluentjs",
  fields: [
    { name: "carrier", type: "string" },
    { name: "delay", type: "int" },
  ],
};
const JSON_SCHEMA = {
  type: "object",
  properties: { carrier: { type: "string" }, delay: { type: "integer" } },
};

async function registered(client, subject, schemaType, schema) {
  await client.register(subject, { schemaType, schema: JSON.stringify(schema) });
  return client;
}

async function main(url) {
  const fresh = () => new SchemaRegistryClient({ baseURLs: [url] });
  const use = { useLatestVersion: true };
  const decoded = {};

  let client = await registered(fresh(), "cjs-avro-value", "AVRO", AVRO);
  let blob = await new AvroSerializer(client, SerdeType.VALUE, use).serialize("cjs-avro", ROW);
  decoded.AVRO = await new AvroDeserializer(fresh(), SerdeType.VALUE, {}).deserialize("cjs-avro", blob);

  client = await registered(fresh(), "cjs-json-value", "JSON", JSON_SCHEMA);
  blob = await new JsonSerializer(client, SerdeType.VALUE, use).serialize("cjs-json", ROW);
  decoded.JSON = await new JsonDeserializer(fresh(), SerdeType.VALUE, {}).deserialize("cjs-json", blob);

  const registry = createRegistry(TimestampSchema);
  const message = { $typeName: TimestampSchema.typeName, seconds: 7n, nanos: 0 };
  const serializer = new ProtobufSerializer(fresh(), SerdeType.VALUE, { registry, autoRegisterSchemas: true });
  blob = await serializer.serialize("cjs-protobuf", message);
  const read = await new ProtobufDeserializer(fresh(), SerdeType.VALUE, {}).deserialize("cjs-protobuf", blob);
  decoded.PROTOBUF = { seconds: String(read.seconds) };
  console.log(JSON.stringify(decoded));
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
