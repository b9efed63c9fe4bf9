// @kafkajs/confluent-schema-registry against a registry: Avro, JSON Schema and Protobuf there and
// back. It prints one JSON line: schema type -> the decoded value.

const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

const ROW = { carrier: "UA", delay: 11 };
const SCHEMAS = {
  AVRO: JSON.stringify({
    type: "record",
    name: "Flight",
    namespace: "js",
    fields: [
      { name: "carrier", type: "string" },
      { name: "delay", type: "int" },
    ],
  }),
  JSON: JSON.stringify({
    type: "object",
    properties: { carrier: { type: "string" }, delay: { type: "integer" } },
  }),
  PROTOBUF: 'syntax = "proto3"; package js; message Flight { string carrier = 1; int32 delay = 2; }',
};

async function main(host) {
  const decoded = {};
  for (const type of Object.keys(SCHEMAS)) {
    const writer = new SchemaRegistry({ host });
    const subject = `kafkajs-${type}-value`;
    const { id } = await writer.register(
      { type: SchemaType[type], schema: SCHEMAS[type] },
      { subject }
    );
    const again = await writer.getLatestSchemaId(subject);
    if (again !== id) throw new Error(`${type}: id ${id}, latest ${again}`);
    const blob = await writer.encode(id, ROW);
    decoded[type] = await new SchemaRegistry({ host }).decode(blob);
  }
  console.log(JSON.stringify(decoded));
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
